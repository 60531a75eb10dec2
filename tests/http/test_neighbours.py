"""Bad requests and good ones on one connection."""

import gzip
from functools import cache

from tests.conformance.frames import Frames
from tests.http.asking import VERSION, Pair, fresh, post, producing, pulling, refusal, store, stored
from tests.launch import Bridge

Bad = tuple[str, str, list[Pair], bytes, int, str]


def bad_requests(target: bytes) -> list[Bad]:
    """One of each kind that the bridge answers itself, with its status and its code."""
    return [
        ("POST", "/v1/messages", [(b"x-oms-h-destination", target)], b"", 400, "header-missing"),
        ("POST", "/v1/messages", [*producing(b"..")], b"x" * 1000, 400, "destination-invalid"),
        ("POST", "/v1/messages", producing(target, (b"x-oms-h-qos", b"9")), b"x", 400, "header-invalid"),
        (
            "POST",
            "/v1/messages",
            producing(target, (b"x-oms-p-a", b"1"), (b"x-oms-p-a", b"1")),
            b"x",
            400,
            "header-repeated",
        ),
        ("POST", "/v1/messages", producing(target, (b"x-oms-h-messagekey", b"\xff")), b"x", 400, "header-invalid"),
        ("POST", "/v1/messages", producing(target, (b"x-oms-h-compression", b"gzip")), b"no gzip", 400, "body-invalid"),
        ("POST", "/v1/messages", producing(target, (b"x-oms-h-compression", b"gzip")), _bomb(), 413, "body-too-large"),
        ("POST", "/v1/messages", producing(target, (b"content-length", b"99999999")), b"", 413, "body-too-large"),
        ("POST", "/v1/messages", producing(target, (b"x-oms-p-a", b"x" * 33_000)), b"", 431, "headers-too-large"),
        ("POST", "/v1/messages", producing(target, (b"origin", b"https://evil.example")), b"", 403, "forbidden"),
        ("POST", "/v1/messages", producing(target, (b"x-oms-h-partition", b"4096")), b"", 400, "partition-unknown"),
        ("POST", "/v1/messages", producing(target, (b"x-oms-require", b"durability")), b"", 422, "field-unsupported"),
        ("POST", "/v1/messages", [VERSION, (b"content-type", b"application/json")], b"[" * 9999, 400, "body-invalid"),
        (
            "POST",
            "/v1/messages",
            [VERSION, (b"content-type", b"multipart/mixed; boundary=b")],
            b"--b\r\n",
            400,
            "body-invalid",
        ),
        ("GET", "/v1/messages", [VERSION], b"", 400, "header-missing"),
        ("GET", "/v1/messages", pulling(target, (b"x-oms-waitmills", b"soon")), b"", 400, "header-invalid"),
        ("POST", "/v1/ack", [VERSION, (b"x-oms-receipt", b"forged")], b"", 400, "receipt-invalid"),
        ("PUT", "/v1/messages", [VERSION], b"", 405, "method-not-allowed"),
        ("GET", "/v1/nothing", [VERSION], b"", 404, "not-found"),
        (
            "POST",
            "/v1/extend",
            [VERSION, (b"x-oms-receipt", b"r"), (b"x-oms-leasemills", b"0")],
            b"",
            400,
            "header-invalid",
        ),
    ]


@cache
def _bomb() -> bytes:
    return gzip.compress(bytes(5 << 20))


def test_two_hundred_bad_requests_leave_the_good_ones_of_their_connection_alone(frames: Frames) -> None:
    target, untouched = fresh(), fresh()
    waiting_for = fresh()
    wait = (b"x-oms-waitmills", b"60000")
    waiting = frames.request("GET", "/v1/messages", pulling(waiting_for, wait), b"")
    half = frames.request("POST", "/v1/messages", producing(target))
    frames.send(half, b"first half, ")
    for turn in range(10):
        bad = [
            (frames.request(method, path, pairs, None if status == 413 and not body else body), status, code)
            for method, path, pairs, body, status, code in bad_requests(untouched)
        ]
        good = [frames.request("POST", "/v1/messages", producing(target), b"%d-%d" % (turn, n)) for n in range(5)]
        for stream, status, code in bad:
            refusal(frames.answer(stream), status, code)
        assert [frames.answer(stream).status for stream in good] == [200] * 5
    frames.send(half, b"second half", end=True)
    assert frames.answer(half).status == 200
    store(frames, waiting_for, b"news")
    assert frames.answer(waiting).body == b"news"
    expected = {b"%d-%d" % (turn, n) for turn in range(10) for n in range(5)} | {b"first half, second half"}
    assert set(stored(frames, target)) == expected
    assert stored(frames, untouched) == []


def test_a_client_that_resets_its_bad_requests_hurts_only_itself(bridge: Bridge) -> None:
    target = fresh()
    with Frames(bridge.url) as rude, Frames(bridge.url) as polite:
        for _ in range(5):
            for method, path, pairs, body, *_ in bad_requests(fresh())[:12]:
                stream = rude.request(method, path, pairs, body or None)
                rude.reset(stream)
            store(polite, target)
        assert stored(polite, target) == [b"good"] * 5


def test_frames_that_are_no_http2_end_their_own_connection_only(bridge: Bridge) -> None:
    target = fresh()
    with Frames(bridge.url) as polite:
        for noise in (b"\0" * 100, b"\xff" * 1000, b"GET / HTTP/1.1\r\n\r\n", b"\0\0\4\3\0\0\0\0\5abcd"):
            with Frames(bridge.url) as rude:
                store(rude, target)
                rude.raw(noise)
        store(polite, target)
        assert stored(polite, target) == [b"good"] * 5


def test_the_bridge_is_still_well_after_all_this(bridge: Bridge) -> None:
    with Frames(bridge.url) as frames:
        assert post(frames, producing(fresh())).status == 200
    assert bridge.alive
    assert '"level": "error"' not in bridge.log
