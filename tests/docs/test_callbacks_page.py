"""The page about callbacks: its code works, its tables are those of the code."""

import base64
import io
import re
import secrets
import time
from pathlib import Path

import pytest
import yaml
from standardwebhooks import Webhook

from bridge.callbacks.registry import STATES
from bridge.callbacks.retry_policy import MAX_BACKOFF, backoff
from bridge.message import Message
from bridge.settings import load
from bridge.signatures import Signer
from bridge.wire.callback_batch import decode_results, encode_batch

PAGE = (Path(__file__).parents[2] / "docs" / "callbacks.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_of_the_settings_can_be_loaded(tmp_path: Path) -> None:
    (sample,) = blocks("yaml")
    (secret,) = re.findall(r"one line: (whsec_\S+)", sample)
    (tmp_path / "secret").write_text(secret)
    chosen = yaml.safe_load(sample)
    chosen["callbacks"]["secrets_file"] = str(tmp_path / "secret")
    config = tmp_path / "bridge.yaml"
    config.write_text(yaml.safe_dump(chosen))
    settings = load(config, {}, {})
    assert settings.callbacks.secrets == (secret,)
    assert len(settings.callbacks.targets) == 3
    assert secret not in repr(settings)


@pytest.mark.parametrize("body", [b'{"total": 12}', b"\xff\x00"])
def test_a_signature_can_be_checked_by_hand(body: bytes) -> None:
    by_hand, _ = blocks("python")
    scope: dict[str, object] = {}
    exec(by_hand, scope)  # noqa: S102 - our own page
    is_genuine = scope["is_genuine"]
    assert callable(is_genuine)
    old, new = (f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}" for _ in range(2))
    now = int(time.time())

    def signed(seconds: int) -> dict[str, str]:
        return {n.decode(): v.decode() for n, v in Signer.parse([new, old]).headers("order.7", seconds, body)}

    assert is_genuine(old, signed(now), body)
    assert is_genuine(new, signed(now), body)
    assert not is_genuine(old, signed(now), body + b" ")
    assert not is_genuine(old, signed(now - 400), body)
    assert not is_genuine(f"whsec_{base64.b64encode(b'x' * 32).decode()}", signed(now), body)
    shifted = {n.decode(): v.decode() for n, v in Signer.parse([old]).headers("7", now - 400, b"%d.%b" % (now, body))}
    moved = {"webhook-id": f"7.{now - 400}", "webhook-timestamp": str(now)}
    assert not is_genuine(old, shifted | moved, body), "a time of the body is not taken for that of the signature"
    if body.isascii():
        assert Webhook(old).verify(body, signed(now)) == {"total": 12}


def test_the_endpoint_for_batches_returns_results_that_the_bridge_reads() -> None:
    *_, endpoint = blocks("python")
    handled: list[tuple[str, bytes]] = []

    def handle(message_id: str, body: bytes) -> None:
        if body == b"poison":
            raise ValueError(body)
        handled.append((message_id, body))

    scope: dict[str, object] = {"__name__": "page", "handle": handle}
    exec(endpoint, scope)  # noqa: S102 - our own page
    application = scope["application"]
    assert callable(application)
    messages = [Message("orders", body, message_id=f"m-{body.decode()}") for body in (b"one", b"poison", b"two")]
    _, body = encode_batch(messages, "application/json")
    started: list[tuple[str, list[tuple[str, str]]]] = []
    environ = {"CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body)}
    (answer,) = application(environ, lambda *given: started.append(given))
    assert started == [("200 OK", [("content-type", "application/json")])]
    results = decode_results(answer, 3, required=True)
    assert results is not None
    assert [result.status for result in results] == [200, 422, 200]
    assert handled == [("m-one", b"one"), ("m-two", b"two")]


def test_the_pauses_are_those_of_the_schedule() -> None:
    ((first, rest),) = re.findall(r"are up to ([\d, ]+) s, then (\d+) s each, and at least half of that", PAGE)
    assert [int(pause) * 1000 for pause in first.split(", ")] == [
        backoff(step, MAX_BACKOFF, 1) for step in range(1, 11)
    ]
    assert rest == "600"
    assert [backoff(step, MAX_BACKOFF, 0) * 2 for step in range(1, 16)] == [
        backoff(step, MAX_BACKOFF, 1) for step in range(1, 16)
    ]
    assert {backoff(step, MAX_BACKOFF, 1) for step in range(11, 16)} == {600_000}
    longest = sum(backoff(step, MAX_BACKOFF, 1) for step in range(1, 16))
    (low, high) = re.findall(r"that is (\d+) to (\d+) minutes", PAGE)[0]
    assert (int(low), int(high)) == (round(longest / 2 / 60_000), round(longest / 60_000))


def test_every_state_is_explained() -> None:
    explained = re.findall(
        r"^\| `([a-z]+)` \|", PAGE.partition("| state | meaning |")[2].partition("\n\n")[0], re.MULTILINE
    )
    assert explained == list(STATES)
