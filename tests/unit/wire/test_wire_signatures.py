"""Signatures of webhooks: the examples that their senders publish, and everything that must not pass."""

import base64
import hashlib
import hmac
from datetime import UTC, datetime
from typing import Final, NamedTuple

import pytest
from standardwebhooks import Webhook

from bridge.errors import SignatureInvalid
from bridge.signatures import WebhookVerifier, parse_key

TOLERANCE: Final = 300_000
_SLACK_BODY: Final = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
    b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
    b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)


class Example(NamedTuple):
    """One signed request."""

    scheme: str
    secret: str
    body: bytes
    headers: dict[bytes, bytes]
    signature: bytes
    """The header with the signature."""
    seconds: int | None = None
    """When it was signed; None: the scheme does not say."""
    header: str | None = None

    def verifier(self, *secrets: str) -> WebhookVerifier:
        return WebhookVerifier.parse(self.scheme, secrets or (self.secret,), TOLERANCE, self.header)

    @property
    def now(self) -> int:
        return (self.seconds or 0) * 1000


def digest(secret: str, signed: bytes) -> bytes:
    return hmac.new(secret.encode(), signed, hashlib.sha256).digest()


_STRIPE_SECRET: Final = "whsec_test_secret"  # noqa: S105 - as in Stripe's own tests
_STRIPE: Final = digest(_STRIPE_SECRET, b'1492774577.{"id": "evt_1"}').hex().encode()
_PLAIN: Final = digest("key", b"body")
EXAMPLES: Final = {
    # https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
    "github": Example(
        "github",
        "It's a Secret to Everybody",
        b"Hello, World!",
        {b"x-hub-signature-256": b"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"},
        b"x-hub-signature-256",
    ),
    # https://docs.slack.dev/authentication/verifying-requests-from-slack
    "slack": Example(
        "slack",
        "8f742231b10e8888abcd99yyyzzz85a5",
        _SLACK_BODY,
        {
            b"x-slack-request-timestamp": b"1531420618",
            b"x-slack-signature": b"v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
        },
        b"x-slack-signature",
        1531420618,
    ),
    # https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
    "standard-webhooks": Example(
        "standard-webhooks",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        b'{"test": 2432232314}',
        {
            b"webhook-id": b"msg_p5jXN8AQM9LWM0D4loKWxJek",
            b"webhook-timestamp": b"1614265330",
            b"webhook-signature": b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        },
        b"webhook-signature",
        1614265330,
    ),
    # https://docs.stripe.com/webhooks?verify=verify-manually, whose example has no secret: signed here as it says
    "stripe": Example(
        "stripe",
        _STRIPE_SECRET,
        b'{"id": "evt_1"}',
        {b"stripe-signature": b"t=1492774577,v1=" + _STRIPE + b",v0=6ffbb59b2300aae63f272406069a9788"},
        b"stripe-signature",
        1492774577,
    ),
    "hmac in hexadecimal": Example(
        "hmac", "key", b"body", {b"x-sign": _PLAIN.hex().encode()}, b"x-sign", header="x-sign"
    ),
    "hmac with its name": Example(
        "hmac", "key", b"body", {b"x-sign": b"sha256=" + _PLAIN.hex().upper().encode()}, b"x-sign", header="x-sign"
    ),
    "hmac in base64": Example(
        "hmac", "key", b"body", {b"x-sign": base64.b64encode(_PLAIN)}, b"x-sign", header="x-sign"
    ),
}
TIMED: Final = {name: example for name, example in EXAMPLES.items() if example.seconds is not None}


def refused(verifier: WebhookVerifier, headers: dict[bytes, bytes], body: bytes, now: int) -> str:
    with pytest.raises(SignatureInvalid) as failure:
        verifier.verify(headers, body, now)
    return failure.value.detail


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_published_example_is_valid(name: str) -> None:
    example = EXAMPLES[name]
    example.verifier().verify(example.headers, example.body, example.now)


@pytest.mark.parametrize("name", EXAMPLES)
def test_another_body_another_secret_and_a_cut_signature_are_refused(name: str, subtests: pytest.Subtests) -> None:
    example = EXAMPLES[name]
    signature = example.headers[example.signature]
    other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" if name == "standard-webhooks" else "another"
    with subtests.test("body"):
        refused(example.verifier(), example.headers, example.body + b" ", example.now)
    with subtests.test("secret"):
        sentence = refused(example.verifier(other), example.headers, example.body, example.now)
        assert example.secret not in sentence
        assert other not in sentence
    broken = (b"", b",", b"=", b"sha256=", b"v0=", b"v1,", b"v1,%", b"\xff", signature[:-40], signature[40:])
    for text in (*broken, b"t=1," + signature):
        with subtests.test(repr(text)):
            refused(example.verifier(), example.headers | {example.signature: text}, example.body, example.now)


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_header_is_required(name: str, subtests: pytest.Subtests) -> None:
    example = EXAMPLES[name]
    for missing in example.headers:
        with subtests.test(missing.decode()):
            headers = {header: value for header, value in example.headers.items() if header != missing}
            assert f"{missing.decode()} is required" in refused(example.verifier(), headers, example.body, example.now)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_secret_can_be_changed(name: str) -> None:
    example = EXAMPLES[name]
    other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" if name == "standard-webhooks" else "another"
    for secrets in ((other, example.secret), (example.secret, other)):
        example.verifier(*secrets).verify(example.headers, example.body, example.now)


@pytest.mark.parametrize("name", TIMED)
def test_a_replay_outside_the_tolerance_is_refused(name: str) -> None:
    example = TIMED[name]
    for now in (example.now - TOLERANCE, example.now + TOLERANCE):
        example.verifier().verify(example.headers, example.body, now)
    for now in (example.now - TOLERANCE - 1, example.now + TOLERANCE + 1):
        assert "300000 ms" in refused(example.verifier(), example.headers, example.body, now)


@pytest.mark.parametrize("name", TIMED)
def test_a_new_time_needs_a_new_signature(name: str, subtests: pytest.Subtests) -> None:
    """The time is signed: a replay cannot have a newer one."""
    example = TIMED[name]
    old = str(example.seconds).encode()
    for new in (b"%d" % ((example.seconds or 0) + 1), b"-1", b"1e9", b"", b"9" * 13):
        with subtests.test(repr(new)):
            headers = {header: value.replace(old, new) for header, value in example.headers.items()}
            refused(example.verifier(), headers, example.body, example.now)


def test_a_timestamp_cannot_be_moved_from_the_body_into_the_id() -> None:
    """What is signed has three parts with full stops between them, and each of them could be shifted."""
    verifier = EXAMPLES["standard-webhooks"].verifier()
    old, now, rest = 1_600_000_000, 1_700_000_000, b" is now"
    key = parse_key(EXAMPLES["standard-webhooks"].secret, 1)
    body = b"%d.%b" % (now, rest)
    mac = hmac.new(key, b"msg_1.%d.%b" % (old, body), hashlib.sha256).digest()
    signature = {b"webhook-signature": b"v1," + base64.b64encode(mac)}
    sent = {b"webhook-id": b"msg_1", b"webhook-timestamp": b"%d" % old, **signature}
    verifier.verify(sent, body, old * 1000)
    moved = {b"webhook-id": b"msg_1.%d" % old, b"webhook-timestamp": b"%d" % now, **signature}
    assert "webhook-id" in refused(verifier, moved, rest, now * 1000)


def test_only_slack_asks_for_a_challenge(subtests: pytest.Subtests) -> None:
    body = b'{"token": "Jhj5dZrVaK7ZwHHjRyZWjbDl", "challenge": "3eZbrw1a", "type": "url_verification"}'
    for name, example in EXAMPLES.items():
        with subtests.test(name):
            assert example.verifier().challenge(body) == ("3eZbrw1a" if name == "slack" else None)
    others = [b"", b"{", b"[1]", b'"url_verification"', b'{"type": "url_verification"}', b"[" * 4000, b"\xff"]
    others += [b'{"type": "url_verification", "challenge": 1}', body.replace(b"url_", b"")]
    others += [body.replace(b"3eZ", b"a" * 5000), EXAMPLES["slack"].body]
    for other in others:
        with subtests.test(body=other[:40]):
            assert EXAMPLES["slack"].verifier().challenge(other) is None


def test_what_the_library_of_standard_webhooks_signs_is_valid() -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - the published example
    signed_at = datetime.fromtimestamp(1_700_000_000, tz=UTC)
    signature = Webhook(secret).sign("msg_1", signed_at, '{"a": 1}').encode()
    headers = {
        b"webhook-id": b"msg_1",
        b"webhook-timestamp": b"1700000000",
        b"webhook-signature": b"v1a,AAAA v1,AAAA " + signature,
    }
    verifier = WebhookVerifier.parse("standard-webhooks", [secret], TOLERANCE)
    verifier.verify(headers, b'{"a": 1}', 1_700_000_000_000)


def test_secrets_of_another_form_are_refused() -> None:
    with pytest.raises(ValueError, match="no secret"):
        WebhookVerifier.parse("github", [], TOLERANCE)
    with pytest.raises(ValueError, match="secret 2 does not begin with whsec_") as failure:
        WebhookVerifier.parse("standard-webhooks", ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "hunter2"], TOLERANCE)
    assert "hunter2" not in str(failure.value)
