"""Batches of callbacks on real bridges: each form, its signature, results, and what survives a restart."""

import base64
import hashlib
import hmac
import json
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from bridge.long_work import run_at_once
from bridge.message import Message
from bridge.wire import jsonform, multipart
from bridge.wire.stream_framings import StreamMessage, decode_line
from tests.http.callback_endpoint import (
    SECRET,
    Answer,
    Endpoint,
    Posted,
    listed,
    produce,
    pull,
    register,
    settled,
    wait_until,
)
from tests.http.conftest import MOSTLY_HYPERCORN
from tests.launch import Bridge

pytestmark = MOSTLY_HYPERCORN


def decoded(post: Posted) -> list[Message]:
    """Read a batch by its content type."""
    kind = post.headers["content-type"]
    if kind == "application/json":
        messages = list(run_at_once(jsonform.decode_array(post.body, 1000)))
    elif kind == "application/x-ndjson":
        messages = [
            line.message for line in map(decode_line, post.body.splitlines()) if isinstance(line, StreamMessage)
        ]
    else:
        messages = list(run_at_once(multipart.decode(post.body, multipart.boundary_of(kind), 1000, 1 << 15)))
    assert all(isinstance(message, Message) for message in messages)
    return [message for message in messages if isinstance(message, Message)]


def bodies(posts: list[Posted]) -> list[bytes]:
    return [message.body for post in posts for message in decoded(post)]


def is_genuine(post: Posted) -> bool:
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    signed = f"{post.headers['webhook-id']}.{post.headers['webhook-timestamp']}.".encode() + post.body
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return expected in post.headers["webhook-signature"].split(" ")


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("*/*", "multipart/mixed"),
        ("application/x-ndjson", "application/x-ndjson"),
        ("application/json", "application/json"),
    ],
)
def test_a_backlog_arrives_in_batches(calling: Bridge, endpoint: Endpoint, name: str, accept: str, form: str) -> None:
    for number in range(25):
        produce(calling, name, b"%d" % number)
    answer = register(calling, name, endpoint.url("/" + name), accept=accept, maxmessages=10)
    assert answer.status_code == 201
    assert answer.json().items() >= {"maxMessages": 10, "form": form, "credit": 64}.items()
    wait_until(lambda: (listed(calling, name) or {})["delivered"] == 25)
    posts = endpoint.to("/" + name)
    assert sorted(map(int, bodies(posts))) == list(range(25))
    assert max(len(decoded(post)) for post in posts) == 10
    assert len(posts) <= 5
    assert len({post.headers["webhook-id"] for post in posts}) == len(posts)
    for post in posts:
        assert is_genuine(post)
        assert post.headers["content-type"].split(";")[0] == form
        assert not [header for header in post.headers if header.startswith(("x-oms-h-", "x-oms-p-"))]
        assert {message.delivery_count for message in decoded(post)} == {1}
    if form == "application/json":
        assert Webhook(SECRET).verify(posts[0].body, dict(posts[0].headers))
    wait_until(settled(calling, name))
    register(calling, name, "")
    assert pull(calling, name).status_code == 204, "all are acknowledged"


def test_results_settle_some_and_bury_others(calling: Bridge, endpoint: Endpoint, name: str) -> None:
    def judge(post: Posted) -> Answer:
        results = [{"status": 422 if message.body == b"poison" else 200} for message in decoded(post)]
        return 200, {"content-type": "application/json; charset=utf-8"}, json.dumps(results).encode()

    endpoint.scripts["/" + name] = judge
    for body in (b"one", b"poison", b"two"):
        produce(calling, name, body)
    register(calling, name, endpoint.url("/" + name), accept="application/json", maxmessages=10)
    buried = pull(calling, f"{name}.dlq", wait=30_000)
    assert buried.content == b"poison"
    assert [decoded(post)[0].delivery_count for post in endpoint.to("/" + name) if bodies([post]) == [b"poison"]] == [
        2,
        3,
    ]
    entry = listed(calling, name)
    assert entry is not None
    assert (entry["delivered"], entry["failed"]) == (2, 3)
    assert {failure["status"] for failure in entry["failures"]} == {422}
    assert sorted(set(bodies(endpoint.to("/" + name)))) == [b"one", b"poison", b"two"]


def test_key_order_holds_in_batches(calling: Bridge, endpoint: Endpoint, name: str) -> None:
    def every_seventh_fails(post: Posted) -> Answer:
        results = [{"status": 500 if m.delivery_count == 1 and int(m.body) % 7 == 3 else 200} for m in decoded(post)]
        return 207, {"content-type": "application/json"}, json.dumps(results).encode()

    endpoint.scripts["/" + name] = every_seventh_fails
    for number in range(40):
        produce(calling, name, b"%d" % number, messagekey=f"k{number % 5}")
    register(calling, name, endpoint.url("/" + name), accept="application/json", maxmessages=10)
    wait_until(lambda: (listed(calling, name) or {})["delivered"] == 40)
    arrived = [message for post in endpoint.to("/" + name) for message in decoded(post)]
    for key in range(5):
        numbers = [int(message.body) for message in arrived if message.message_key == f"k{key}"]
        assert numbers == sorted(numbers)
    assert all(len({m.message_key for m in decoded(post)}) == len(decoded(post)) for post in endpoint.to("/" + name))


def test_what_is_refused(calling: Bridge, endpoint: Endpoint, name: str, subtests: pytest.Subtests) -> None:
    for number, accept, status, code in (
        (0, "*/*", 400, "header-invalid"),
        (1001, "*/*", 400, "header-invalid"),
        ("many", "*/*", 400, "header-invalid"),
        (10, "text/event-stream", 406, "not-acceptable"),
    ):
        with subtests.test(number=number):
            answer = register(calling, name, endpoint.url("/"), accept=accept, maxmessages=number)
            assert (answer.status_code, answer.json()["code"]) == (status, code)
            assert listed(calling, name) is None
    single = register(calling, name, endpoint.url("/"), accept="text/event-stream")
    assert single.status_code == 201, "without batches the header has no meaning"
    assert "maxMessages" not in single.json()


def test_a_registration_with_batches_survives(tmp_path: Path, server: str, endpoint: Endpoint) -> None:
    backend = f"memory://?journal={tmp_path}/journal"
    with Bridge(tmp_path / "1", server=server, backend=backend, settings=endpoint.settings()) as bridge:
        register(bridge, "kept", endpoint.url("/kept"), accept="application/json", maxmessages=7)
        bridge.kill()
    with Bridge(tmp_path / "2", server=server, backend=backend, settings=endpoint.settings()) as bridge:
        wait_until(lambda: listed(bridge, "kept"))
        assert (listed(bridge, "kept") or {}).items() >= {"maxMessages": 7, "form": "application/json"}.items()
        produce(bridge, "kept", b"x")
        (post,) = endpoint.wait_for("/kept", 1)
        assert bodies([post]) == [b"x"]
