"""Header blocks that are too large."""

import json

import httpx
import pytest

from tests.conformance.frames import Frames
from tests.http.asking import VERSION, Pair, fresh, post, producing, pulling, refusal, store, stored
from tests.launch import Bridge

LIMIT = 32 << 10


def test_a_header_block_within_the_limit_is_taken(frames: Frames) -> None:
    target = fresh()
    store(frames, target, b"good", *((b"x-oms-p-n%d" % number, b"x" * 1000) for number in range(30)))
    assert stored(frames, target) == [b"good"]


def test_a_header_block_beyond_the_limit_is_refused_and_others_go_on(frames: Frames) -> None:
    target = fresh()
    for size in (LIMIT, LIMIT + 8000):
        answer = post(frames, producing(target, (b"x-oms-p-large", b"x" * size)))
        refusal(answer, 431, "headers-too-large", str(LIMIT))
    many = [(b"x-oms-p-n%d" % number, b"") for number in range(1000)]
    assert post(frames, producing(target, *many)).status in (200, 431)
    store(frames, target)
    assert b"good" in stored(frames, target)


def test_a_header_block_far_beyond_the_limit_costs_at_most_its_own_connection(bridge: Bridge) -> None:
    target = fresh()
    with Frames(bridge.url) as frames, Frames(bridge.url) as neighbour:
        answer = post(frames, producing(target, *((b"x-oms-p-n%d" % n, b"x" * 8000) for n in range(60))))
        assert answer.status in (None, 431), answer
        store(neighbour, target)
        assert stored(neighbour, target) == [b"good"]


def test_headers_that_would_grow_beyond_what_consumers_take_are_refused(
    frames: Frames, subtests: pytest.Subtests
) -> None:
    """Escaped they are three times as long: the message would be accepted, and end every consumer's connection."""
    target = fresh()
    large: dict[str, list[Pair]] = {
        "value": [(b"x-oms-p-a*", b"UTF-8''%0A" + b"(" * 21_000)],
        "key": [(b"x-oms-h-messagekey*", b"UTF-8''%0A" + b"(" * 21_000)],
        "many": [(b"x-oms-p-%d" % number, b"") for number in range(1_450)],
    }
    for name, pairs in large.items():
        with subtests.test(name):
            refusal(post(frames, producing(target, *pairs)), 431, "headers-too-large", "61440")
    item = {"header": {"destination": target.decode()}, "properties": {"large": "x" * 70_000}}
    small = {"header": {"destination": target.decode()}, "properties": {"small": "x" * 50_000}}
    answer = post(frames, [VERSION, (b"content-type", b"application/json")], json.dumps([item, small]).encode())
    assert [result["status"] for result in json.loads(answer.body)] == [431, 200]
    with httpx.Client(http1=False, http2=True, trust_env=False) as consumer:
        url = f"http://{frames.authority.decode()}/v1/messages"
        taken = consumer.get(url, headers={name.decode(): value.decode() for name, value in pulling(target)})
    assert taken.json()["properties"] == {"small": "x" * 50_000}
    assert (taken.headers["x-oms-form"], taken.headers["content-type"]) == ("json", "application/vnd.oms.message+json")


def test_a_produce_that_requires_headers_is_refused_if_they_may_not_fit(bridge: Bridge) -> None:
    """In each form of a produce, whatever it is that makes them large."""
    target = fresh().decode()
    many, large = {f"n{number}": "v" for number in range(65)}, {"large": "x" * 4000}
    fields = {"x-oms-version": "1.0.0", "x-oms-require": "headers", "x-oms-h-destination": target}
    with httpx.Client(base_url=bridge.url, trust_env=False) as client:

        def refused(answer: httpx.Response) -> None:
            assert (answer.status_code, answer.json()["code"]) == (422, "field-unsupported"), answer.text

        for properties in (many, large):
            pairs = {f"x-oms-p-{name}": value for name, value in properties.items()}
            refused(client.post("/v1/messages", headers=fields | pairs))
            refused(client.post(f"/v1/destinations/{target}/messages?require=headers", headers=pairs))
        refused(client.post("/v1/messages", headers=fields | {"x-oms-h-messagekey": "k" * 3000}))
        event = {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "large": "x" * 4000}
        refused(
            client.post("/v1/messages", headers=fields | {"content-type": "application/cloudevents+json"}, json=event)
        )
        del fields["x-oms-h-destination"]
        item = {"header": {"destination": target}, "properties": {"small": "v"}}
        batch = client.post("/v1/messages", headers=fields, json=[item | {"properties": many}, item])
        assert [result["status"] for result in batch.json()] == [422, 200]
        line = json.dumps(item | {"properties": large}).encode() + b"\n"
        stream = client.post("/v1/stream", headers=fields | {"content-type": "application/x-ndjson"}, content=line)
        assert json.loads(stream.text.splitlines()[0])["code"] == "field-unsupported"
        ok = client.post(
            "/v1/messages", headers=fields | {"x-oms-h-destination": target, "x-oms-require": "Headers, qos"}
        )
        assert ok.status_code == 200, ok.text
    with Frames(bridge.url) as frames:
        assert len(stored(frames, target.encode())) == 2
