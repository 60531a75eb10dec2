"""Destinations with settings of their own, on a running bridge: signed requests, and headers as properties."""

import hashlib
import hmac
import json
import time
from pathlib import Path

import pytest

from tests.conformance.frames import Answer, Frames
from tests.http.asking import VERSION, Pair, fresh, post, producing, pull, refusal, stored
from tests.http.conftest import Start
from tests.launch import Bridge

EVENT: Pair = (b"content-type", b"application/cloudevents+json")
KEYS = ("old key", "new key")


def signed(body: bytes, key: str = KEYS[1]) -> Pair:
    return b"x-hub-signature-256", b"sha256=" + hmac.new(key.encode(), body, hashlib.sha256).hexdigest().encode()


def slack(body: bytes, seconds: int) -> list[Pair]:
    digest = hmac.new(KEYS[0].encode(), b"v0:%d:%b" % (seconds, body), hashlib.sha256).hexdigest()
    return [(b"x-slack-request-timestamp", b"%d" % seconds), (b"x-slack-signature", b"v0=" + digest.encode())]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("webhooks")
    (folder / "keys").write_text("\n".join(KEYS) + "\n\n")
    by = f"secret_file: {folder / 'keys'}"
    config = folder / "bridge.yaml"
    config.write_text(
        f"""
destinations:
  github: {{properties_from_headers: [X-GitHub-Event, x-other], verify: {{scheme: github, {by}}}}}
  slack: {{verify: {{scheme: slack, {by}, tolerance: 60000}}}}
  shop: {{verify: {{scheme: hmac, {by}, header: x-shop-signature}}}}
  open: {{properties_from_headers: [user-agent]}}
"""
    )
    return config


@pytest.fixture
def webhooks(start: Start, config: Path) -> Bridge:
    return start(OMS_CONFIG=str(config))


def messages(destination: str) -> str:
    return f"/v1/destinations/{destination}/messages"


def test_a_signed_request_is_stored_with_its_headers_as_properties(webhooks: Bridge) -> None:
    with Frames(webhooks.url) as frames:
        for key in KEYS:
            body = f'{{"zen": "{key}"}}'.encode()
            headers = [signed(body, key), (b"x-github-event", b"ping"), (b"x-unnamed", b"1")]
            assert frames.ask("POST", messages("github"), headers, body).status == 200
            pulled = pull(frames, b"github", group=b"inspector")
            assert (pulled.body, pulled.headers[b"x-oms-p-x-github-event"]) == (body, b"ping")
            assert b"x-oms-p-x-unnamed" not in pulled.headers


def test_properties_come_from_the_headers_of_the_settings_only(webhooks: Bridge) -> None:
    with Frames(webhooks.url) as frames:
        headers = [(b"user-agent", b"GitHub-Hookshot/1"), (b"x-github-event", b"ping")]
        assert frames.ask("POST", messages("open"), headers, b"x").status == 200
        pulled = pull(frames, b"open")
        properties = {name: value for name, value in pulled.headers.items() if name.startswith(b"x-oms-p-")}
        assert properties == {b"x-oms-p-user-agent": b"GitHub-Hookshot/1"}
        twice = [*headers, (b"x-oms-p-user-agent", b"another")]
        refusal(frames.ask("POST", messages("open"), twice, b"x"), 400, "header-repeated", "user-agent")


def test_an_unsigned_request_stores_nothing(webhooks: Bridge, subtests: pytest.Subtests) -> None:
    body = b"forged"
    requests: dict[str, tuple[str, str, list[Pair]]] = {
        "without a signature": ("POST", messages("shop"), []),
        "in the header of another scheme": ("POST", messages("shop"), [signed(body)]),
        "with another key": ("POST", messages("shop"), [(b"x-shop-signature", signed(body, "guessed")[1])]),
        "of another body": ("POST", messages("shop"), [(b"x-shop-signature", signed(b"another")[1])]),
        "with an id": ("PUT", f"{messages('shop')}/7", []),
        "as an event": ("POST", messages("shop"), [EVENT]),
        "as an event with headers": ("POST", "/v1/messages", producing(b"shop", EVENT)),
        "with headers": ("POST", "/v1/messages", producing(b"shop")),
        "with headers and a signature": ("POST", "/v1/messages", producing(b"shop", signed(body))),
    }
    with Frames(webhooks.url) as frames:
        for what, (method, path, headers) in requests.items():
            with subtests.test(what):
                answer = frames.ask(method, path, headers, body)
                refusal(answer, 401, "signature-invalid")
                assert answer.headers[b"www-authenticate"] == b"Webhook-Signature"
                assert not any(key.encode() in answer.body for key in KEYS)
        assert stored(frames, b"shop") == []


def test_a_batch_stores_only_what_needs_no_signature(webhooks: Bridge) -> None:
    target = fresh()
    batch = [{"header": {"destination": name}, "data": "eA=="} for name in ("shop", target.decode())]
    headers = [VERSION, (b"content-type", b"application/json")]
    with Frames(webhooks.url) as frames:
        answer = post(frames, headers, json.dumps(batch).encode())
        assert [(result["status"], result.get("code")) for result in json.loads(answer.body)] == [
            (401, "signature-invalid"),
            (200, None),
        ]
        assert stored(frames, target) == [b"x"]
        assert stored(frames, b"shop") == []


def test_a_header_in_another_charset_becomes_a_property(webhooks: Bridge) -> None:
    with Frames(webhooks.url) as frames:
        for raw, text in {b"caf\xe9/1.0": b"caf%C3%A9%2F1.0", b"\xc3\xa9": b"%C3%A9"}.items():
            assert frames.ask("POST", messages("open"), [(b"user-agent", raw)], b"x").status == 200
            pulled = pull(frames, b"open", group=b"charsets")
            while pulled.status == 200 and b"x-oms-p-user-agent*" not in pulled.headers:
                pulled = pull(frames, b"open", group=b"charsets")
            assert pulled.headers[b"x-oms-p-user-agent*"] == b"UTF-8''" + text


def test_slack_gets_its_challenge_back(webhooks: Bridge) -> None:
    now = int(time.time())
    body = b'{"token": "t", "challenge": "3eZbrw1aBm2rZgRN", "type": "url_verification"}'
    json_body = (b"content-type", b"application/json")
    with Frames(webhooks.url) as frames:
        before = stored(frames, b"slack")
        for method, path in ("POST", messages("slack")), ("PUT", f"{messages('slack')}/7"):
            answer = frames.ask(method, path, [json_body, *slack(body, now)], body)
            assert (answer.status, answer.body) == (200, b"3eZbrw1aBm2rZgRN")
            assert answer.headers[b"content-type"] == b"text/plain; charset=utf-8"
        refusal(frames.ask("POST", messages("slack"), [json_body], body), 401, "signature-invalid")
        forged = [json_body, *slack(b"another", now)]
        refusal(frames.ask("POST", messages("slack"), forged, body), 401, "signature-invalid")
        assert stored(frames, b"slack") == before
        assert frames.ask("POST", messages("open"), [json_body], body).status == 200
        assert stored(frames, b"open")[-1:] == [body], "elsewhere it is a message as any other"


def handshake(frames: Frames, path: str, origin: bytes = b"eventgrid.azure.net", *more: Pair) -> Answer:
    """Ask as a sender of CloudEvents does before its first event."""
    return frames.ask("OPTIONS", path, [(b"webhook-request-origin", origin), *more], b"")


def test_a_sender_of_cloud_events_may_post(webhooks: Bridge, subtests: pytest.Subtests) -> None:
    asked = [
        (b"webhook-request-callback", b"https://eventgrid.azure.net/validate?id=1"),
        (b"webhook-request-rate", b"120"),
    ]
    with Frames(webhooks.url) as frames:
        for origin in (b"eventgrid.azure.net", b"events.example:8443"):
            for path in (messages("open"), messages(fresh().decode()), f"{messages('open')}?key=k"):
                with subtests.test(origin=origin, path=path):
                    answer = handshake(frames, path, origin, *asked)
                    assert (answer.status, answer.headers[b"webhook-allowed-origin"]) == (200, origin)
                    assert (answer.headers[b"webhook-allowed-rate"], answer.headers[b"allow"]) == (b"*", b"POST")
        event = b'{"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": 7}'
        assert frames.ask("POST", messages("events"), [EVENT], event).status == 200


def test_no_other_options_request_is_a_handshake(webhooks: Bridge) -> None:
    with Frames(webhooks.url) as frames:
        refusal(handshake(frames, messages("slack")), 401, "signature-invalid", "only signed")
        refusal(handshake(frames, messages("a,b")), 400, "destination-invalid")
        refusal(handshake(frames, messages("open"), b"a b"), 400, "header-invalid", "webhook-request-origin")
        refusal(handshake(frames, messages("open"), b"a", (b"origin", b"https://evil.example")), 403, "forbidden")
        for answer in (handshake(frames, "/v1/messages"), frames.ask("OPTIONS", messages("open"), [], b"")):
            assert answer.status == 204
            assert not {name for name in answer.headers if name.startswith(b"webhook-")}
            assert b"access-control-allow-methods" in answer.headers


def test_the_allowed_rate_is_the_quota_in_a_minute(start: Start) -> None:
    with Frames(start(OMS_LIMITS__QUOTA="7").url) as frames:
        assert handshake(frames, messages("open")).headers[b"webhook-allowed-rate"] == b"420"


def test_a_replay_is_refused_after_the_tolerance_of_the_settings(webhooks: Bridge) -> None:
    now = int(time.time())
    with Frames(webhooks.url) as frames:
        assert frames.ask("POST", messages("slack"), slack(b"new", now), b"new").status == 200
        for seconds in (now - 200, now + 200):
            answer = frames.ask("POST", messages("slack"), slack(b"old", seconds), b"old")
            refusal(answer, 401, "signature-invalid", "60000 ms")
        assert stored(frames, b"slack")[-1:] == [b"new"]
