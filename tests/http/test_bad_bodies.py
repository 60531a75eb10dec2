"""Bodies that are too large, lie about their length or are not what they claim."""

import gzip
import json
from itertools import product

import pytest

from tests.conformance.frames import Frames
from tests.http.asking import VERSION, fresh, post, producing, refusal, store, stored
from tests.http.conftest import Start

BODY = 64 << 10
GZIP = (b"x-oms-h-compression", b"gzip")


@pytest.fixture
def small(start: Start) -> Frames:
    """Connect to a bridge that takes bodies of 64 KiB at most."""
    return Frames(start(OMS_LIMITS__BODY=str(BODY)).url)


def test_a_body_of_just_the_limit_is_taken(small: Frames) -> None:
    with small as frames:
        target = fresh()
        store(frames, target, bytes(BODY))
        assert stored(frames, target) == [bytes(BODY)]


def test_a_body_beyond_the_limit_is_refused_and_others_go_on(small: Frames, subtests: pytest.Subtests) -> None:
    with small as frames:
        for size, declared in product((BODY + 1, 40 * BODY), (True, False)):
            with subtests.test(f"{size} bytes, {declared=}"):
                target = fresh()
                length = [(b"content-length", b"%d" % size)] if declared else []
                answer = post(frames, producing(target, *length), bytes(size))
                refusal(answer, 413, "body-too-large", str(BODY))
                store(frames, target)
                assert stored(frames, target) == [b"good"]


def test_a_declared_length_beyond_every_number_is_refused(small: Frames, server: str) -> None:
    with small as frames:
        stream = frames.request("POST", "/v1/messages", producing(fresh(), (b"content-length", b"9" * 30)))
        answer = frames.answer(stream)
        if server == "hypercorn":
            refusal(answer, 413, "body-too-large")
        else:  # Granian refuses the stream itself
            assert (answer.status, answer.ended) == (None, "reset")


def test_a_length_that_lies_stores_nothing(small: Frames, subtests: pytest.Subtests) -> None:
    """HTTP/2 itself calls such a request malformed (RFC 9113 8.1.1), and no bridge has to answer it."""
    small.hang_up()
    url = f"http://{small.authority.decode()}"
    target = fresh()
    for says, sends in ((b"10", b"short"), (b"3", b"longer"), (b"0", b"some"), (b"nine", b"nine")):
        with subtests.test(f"{says!r} for {sends!r}"), Frames(url) as frames:
            answer = frames.ask("POST", "/v1/messages", producing(target, (b"content-length", says)), sends)
            assert answer.status is None, answer
            assert answer.ended in ("reset", "closed")
    with Frames(url) as again:
        assert stored(again, target) == []


def test_a_corrupt_gzip_body_is_refused(small: Frames, subtests: pytest.Subtests) -> None:
    bodies = {
        "empty": b"",
        "text": b"plain",
        "cut": gzip.compress(b"x" * 99)[:-4],
        "longer": gzip.compress(b"x" * 99) + b"rest",
        "damaged": gzip.compress(b"x" * 9999)[:30] + bytes(20),
    }
    with small as frames:
        target = fresh()
        for name, body in bodies.items():
            with subtests.test(name):
                refusal(post(frames, producing(target, GZIP), body), 400, "body-invalid", "gzip")
        assert stored(frames, target) == []


def test_a_bomb_is_refused_at_the_limit(small: Frames, subtests: pytest.Subtests) -> None:
    nested = gzip.compress(gzip.compress(bytes(30 << 20)) + bytes(BODY))
    bombs = {
        "one": (gzip.compress(bytes(40 << 20)), 413, "body-too-large"),
        "just": (gzip.compress(bytes(BODY + 1)), 413, "body-too-large"),
        "members": (gzip.compress(bytes(BODY // 2)) * 3, 413, "body-too-large"),
        "nested": (nested, 413, "body-too-large"),
    }
    with small as frames:
        target = fresh()
        for name, (bomb, status, code) in bombs.items():
            with subtests.test(name):
                assert len(bomb) <= BODY, "else the limit of the body refuses it"
                refusal(post(frames, producing(target, GZIP), bomb), status, code)
        assert stored(frames, target) == []


def test_many_empty_members_do_not_stop_the_bridge(frames: Frames) -> None:
    member = gzip.compress(b"")
    target = fresh()
    slow = frames.request("POST", "/v1/messages", producing(target, GZIP), member * ((4 << 20) // len(member)))
    assert frames.answer(slow).status == 200
    assert stored(frames, target) == [b""]


def test_another_coding_is_refused(frames: Frames) -> None:
    answer = post(frames, producing(fresh(), (b"x-oms-h-compression", b"zstd")), b"x")
    refusal(answer, 400, "header-invalid", "x-oms-h-compression", "must be gzip", "zstd")
    answer = post(frames, producing(fresh(), (b"content-encoding", b"br")), b"x")
    refusal(answer, 415, "content-type-unsupported", "content-encoding", "must be gzip")
    batch = [VERSION, (b"content-type", b"application/json"), (b"content-encoding", b"gzip")]
    refusal(post(frames, batch, gzip.compress(b"[]")), 415, "content-type-unsupported", "content-encoding")


def test_one_bad_part_leaves_the_others_stored(frames: Frames) -> None:
    target = fresh().decode()
    good = f"--b\r\nx-oms-h-destination: {target}\r\n\r\ngood\r\n"
    bad = (
        f"--b\r\nx-oms-h-destination: {target}\r\nx-oms-h-qos: 9\r\n\r\nbad\r\n",
        "--b\r\nx-oms-h-destination: ..\r\n\r\nbad\r\n",
        f"--b\r\nx-oms-h-destination: {target}\r\nbroken line\r\n\r\nbad\r\n",
        f"--b\r\nx-oms-h-destination: {target}\r\nx-oms-h-destination: {target}\r\n\r\nbad\r\n",
        f"--b\r\nx-oms-h-destination: {target}\r\ncontent-length: 99\r\n\r\nbad\r\n",
        f"--b\r\nx-oms-h-destination: {target}\r\nx-oms-h-compression: gzip\r\n\r\nbad\r\n",
        f"--b\r\nx-oms-h-destination: {target}\r\nx-oms-p-long: {'x' * 33_000}\r\n\r\nbad\r\n",
        "--b\r\nno blank line\r\n",
    )
    body = (good + good.join(bad) + good + "--b--").encode()
    answer = post(frames, [VERSION, (b"content-type", b"multipart/mixed; boundary=b")], body)
    assert answer.status == 207
    results = json.loads(answer.body)
    assert [r["status"] for r in results] == [200, *[s for n in range(8) for s in (400 if n != 6 else 431, 200)]]
    assert all(r["detail"] and r["code"] for r in results if r["status"] != 200)
    assert stored(frames, target.encode()) == [b"good"] * 9


def test_a_batch_that_cannot_be_taken_apart_is_refused(frames: Frames, subtests: pytest.Subtests) -> None:
    for kind in (b"multipart/mixed", b"multipart/form-data; boundary=b", b"multipart/mixed; boundary="):
        with subtests.test(repr(kind)):
            refusal(post(frames, [VERSION, (b"content-type", kind)], b"--b--"), 415, "content-type-unsupported")


def test_a_batch_of_too_many_stores_nothing(start: Start) -> None:
    target = fresh().decode()
    with Frames(start(OMS_LIMITS__BATCH="3").url) as frames:
        item = {"header": {"destination": target}}
        answer = post(frames, [VERSION, (b"content-type", b"application/json")], json.dumps([item] * 4).encode())
        refusal(answer, 413, "body-too-large", "3")
        part = f"--b\r\nx-oms-h-destination: {target}\r\n\r\n\r\n"
        body = f"{part * 4}--b--".encode()
        answer = post(frames, [VERSION, (b"content-type", b"multipart/mixed; boundary=b")], body)
        refusal(answer, 413, "body-too-large", "3")
        assert stored(frames, target.encode()) == []
