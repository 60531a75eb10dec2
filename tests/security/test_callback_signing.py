"""Signatures, judged by the Standard Webhooks library."""

import base64
import hashlib
import hmac
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from bridge.callbacks.callback_sender import CallbackSender
from bridge.callbacks.registration import BatchOptions, Registration
from bridge.engine.clock import SystemClock
from bridge.engine.destination_names import SubscriptionKey
from bridge.message import Message
from bridge.signatures import Signer, webhook_id
from bridge.wire.callback_batch import FORMS
from tests.security.endpoint import OK, Connected, Received, listening, outlet

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - of the specification's own example
NEXT = "whsec_" + base64.b64encode(bytes(range(64))).decode()


def signed(
    body: bytes, *, message_id: str = "m-1", seconds: int | None = None, secrets: tuple[str, ...] = (SECRET,)
) -> dict[str, str]:
    headers = Signer.parse(secrets).headers(message_id, int(time.time()) if seconds is None else seconds, body)
    return {name.decode("ascii"): value.decode("ascii") for name, value in headers}


def verify(body: bytes, headers: dict[str, str], secret: str = SECRET) -> None:
    Webhook(secret).verify(body, headers, json_parse=False)


def test_the_library_s_own_vector() -> None:
    """From the tests of standardwebhooks 1.1.0, which prove each of its libraries with it."""
    headers = signed(b'{"test": 2432232314}', message_id="msg_p5jXN8AQM9LWM0D4loKWxJek", seconds=1614265330)
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@given(body=st.text(), message_id=st.text(min_size=1))
def test_the_library_verifies_any_text_under_any_id(body: str, message_id: str) -> None:
    verify(body.encode(), signed(body.encode(), message_id=message_id))


@given(body=st.binary())
def test_any_bytes_are_signed_as_the_specification_says(body: bytes) -> None:
    """The library's `verify` decodes the body as UTF-8 first: for other bytes, its three lines without that."""
    headers = signed(body)
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    mac = hmac.new(base64.b64decode(SECRET.removeprefix("whsec_")), content, hashlib.sha256).digest()
    assert headers["webhook-signature"] == "v1," + base64.b64encode(mac).decode()


def test_the_library_cannot_verify_what_is_no_utf_8() -> None:
    """The docs say so; if this fails one day, remove it there."""
    with pytest.raises(UnicodeDecodeError):
        verify(b"\xff", signed(b"\xff"))


def test_each_secret_of_a_rotation_verifies_and_no_other() -> None:
    headers = signed(b"x", secrets=(NEXT, SECRET))
    assert headers["webhook-signature"].count("v1,") == 2
    verify(b"x", headers, NEXT)
    verify(b"x", headers, SECRET)
    with pytest.raises(WebhookVerificationError, match="No matching signature"):
        verify(b"x", headers, "whsec_" + base64.b64encode(os.urandom(32)).decode())
    assert headers["webhook-signature"].split(" ")[0] == signed(b"x", secrets=(NEXT,))["webhook-signature"]


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature", "body"])
def test_tampering_is_noticed(name: str) -> None:
    headers, body = signed(b"pay 10 to A"), b"pay 10 to A"
    verify(body, headers)
    if name == "body":
        body = b"pay 99 to B"
    elif name == "webhook-timestamp":
        headers[name] = str(int(headers[name]) - 1)
    elif name == "webhook-id":
        headers[name] += "1"
    else:
        headers[name] = "v1," + base64.b64encode(bytes(32)).decode()
    with pytest.raises(WebhookVerificationError, match="No matching signature"):
        verify(body, headers)


@pytest.mark.parametrize(("age", "why"), [(301, "too old"), (-330, "too new")])
def test_a_replay_is_noticed(age: int, why: str) -> None:
    with pytest.raises(WebhookVerificationError, match=why):
        verify(b"x", signed(b"x", seconds=int(time.time()) - age))


def test_a_retry_has_the_id_and_a_time_of_its_own() -> None:
    now = int(time.time())
    first, second = signed(b"x", seconds=now - 60), signed(b"x", seconds=now)
    assert first["webhook-id"] == second["webhook-id"]
    assert first["webhook-signature"] != second["webhook-signature"]
    verify(b"x", second)


IDS = (
    ("0190f3b4-7c3e-7aaa-8bbb-1234567890ab", b"0190f3b4-7c3e-7aaa-8bbb-1234567890ab"),
    ("A_b~9", b"A_b~9"),
    ("a.b", b"a%2Eb"),
    ("a%2Eb", b"a%252Eb"),
    ("Z\u00fcrich 1", b"Z%C3%BCrich%201"),
    ("a\r\nhost: evil", b"a%0D%0Ahost%3A%20evil"),
    ("\0\x7f,;/", b"%00%7F%2C%3B%2F"),
)


def test_an_id_that_a_header_cannot_carry_is_escaped(subtests: pytest.Subtests) -> None:
    for message_id, sent in IDS:
        with subtests.test(repr(message_id)):
            assert webhook_id(message_id) == sent


@given(st.text(), st.text())
def test_different_ids_stay_different(one: str, other: str) -> None:
    assert (webhook_id(one) == webhook_id(other)) == (one == other)


def test_half_a_surrogate_pair_is_no_accident() -> None:
    assert webhook_id("\ud800") == b"%3F"


def test_a_full_stop_cannot_move_between_id_and_time() -> None:
    """Without the escape, id `a.1`, time 5 and id `a`, time 1, body `5.…` would share one signature."""
    one = signed(b"x", message_id="a.1", seconds=5)
    other = signed(b"5.x", message_id="a", seconds=1)
    assert one["webhook-signature"] != other["webhook-signature"]


BAD_SECRETS = (
    ("", "does not begin with whsec_"),
    ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "does not begin with whsec_"),
    ("whpk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "does not begin with whsec_"),
    ("whsec_", "has 0 bytes, not 24 to 64"),
    ("whsec_" + base64.b64encode(bytes(23)).decode(), "has 23 bytes"),
    ("whsec_" + base64.b64encode(bytes(65)).decode(), "has 65 bytes"),
    ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS", "is not base64"),
    ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS!", "is not base64"),
    ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa\u00fc", "is not base64"),
    ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n", "is not base64"),
)


def test_a_bad_secret_stops_the_start_and_is_not_shown(subtests: pytest.Subtests) -> None:
    for secret, why in BAD_SECRETS:
        with subtests.test(repr(secret[:20]) + why):
            with pytest.raises(ValueError, match=why) as caught:
                Signer.parse([SECRET, secret])
            assert str(caught.value).startswith("secret 2 ")
            assert "MfKQ" not in str(caught.value)


async def test_what_arrives_verifies() -> None:
    seen: list[Received] = []

    async def looking(connected: Connected) -> None:
        seen.append(await connected.receive())
        await connected.send(OK)

    body = "Z\u00fcrich".encode()
    headers = Signer.parse([NEXT, SECRET]).headers("order.17\r\n\u00fc", int(time.time()), body)
    async with listening(looking) as endpoint, outlet(endpoint.url) as egress:
        await egress.post(endpoint.url, headers, body)
    for secret in (NEXT, SECRET):
        verify(seen[0].body, dict(seen[0].headers), secret)


@pytest.mark.parametrize("missing", [None, ""])
async def test_messages_without_an_id_are_not_taken_for_one(missing: str | None) -> None:
    ids: list[str] = []

    async def looking(connected: Connected) -> None:
        while True:
            received = await connected.receive()
            verify(received.body, dict(received.headers))
            ids.append(dict(received.headers)["webhook-id"])
            await connected.send(OK)

    async with listening(looking) as endpoint, outlet(endpoint.url) as egress:
        send = CallbackSender(egress, Signer.parse([SECRET]), SystemClock())
        registration = Registration(SubscriptionKey("orders", "app"), endpoint.url, 1)
        for message_id in (missing, missing, "m-1"):
            assert (await send(registration, [Message("orders", b"{}", message_id=message_id)])).status == 200
    assert len(set(ids)) == 3
    assert ids[2] == "m-1"
    assert all(ids)


@pytest.mark.parametrize("form", FORMS)
async def test_a_batch_is_signed_as_a_whole_under_an_id_of_its_own(form: str) -> None:
    seen: list[Received] = []

    async def looking(connected: Connected) -> None:
        while True:
            seen.append(await connected.receive())
            await connected.send(OK)

    messages = [Message("orders", b"{}", message_id=f"m-{number}") for number in range(3)]
    async with listening(looking) as endpoint, outlet(endpoint.url) as egress:
        send = CallbackSender(egress, Signer.parse([SECRET]), SystemClock())
        registration = Registration(SubscriptionKey("orders", "app"), endpoint.url, 1, batch=BatchOptions(3, form))
        for _ in range(2):
            assert (await send(registration, messages)).status == 200
    for one in seen:
        verify(one.body, dict(one.headers))
        assert dict(one.headers)["content-type"].split(";")[0] == form.split(";", maxsplit=1)[0]
    assert len({dict(one.headers)["webhook-id"] for one in seen}) == 2
