"""`GET /v1/logs` and `GET /v1/log` on real bridges: what a mirror reads, and how it is refused."""

import json
from pathlib import Path

import pytest

from bridge.message import Message
from bridge.wire.log_block import MEDIA_TYPE, Block, decode
from tests.conformance.frames import Answer, Frames
from tests.http.asking import VERSION, Pair, fresh, post, refusal, store
from tests.http.conftest import MOSTLY_HYPERCORN, Start
from tests.launch import Bridge

pytestmark = MOSTLY_HYPERCORN


def logs(frames: Frames, destination: bytes) -> dict[str, list[int]]:
    answer = frames.ask("GET", "/v1/logs", [VERSION])
    assert (answer.status, answer.headers[b"content-type"]) == (200, b"application/json")
    assert answer.headers[b"cache-control"] == b"no-store"
    found = json.loads(answer.body)["logs"]
    return {log: pair for log, pair in found.items() if log.split("/")[1] == destination.decode()}


def ask(frames: Frames, *pairs: Pair) -> Answer:
    return frames.ask("GET", "/v1/log", [VERSION, *pairs])


def read(frames: Frames, log: str, *pairs: Pair) -> Block:
    answer = ask(frames, (b"x-oms-log", log.encode()), *pairs)
    assert answer.status == 200, answer
    assert answer.headers[b"content-type"] == MEDIA_TYPE.encode()
    assert answer.headers[b"cache-control"] == b"no-store"
    return decode(answer.body)


def test_a_log_is_read_in_pieces(frames: Frames) -> None:
    target = fresh()
    for number in range(5):
        store(frames, target, b"%d" % number, (b"x-oms-h-messagekey", b"k"), (b"x-oms-p-n", b"%d" % number))
    ((log, bounds),) = logs(frames, target).items()
    assert bounds == [0, 5]
    first = read(frames, log, (b"x-oms-maxmessages", b"3"))
    rest = read(frames, log, (b"x-oms-offset", b"%d" % first.next))
    found: list[Message] = [*first.messages(target.decode()), *rest.messages(target.decode())]
    assert [(message.body, message.properties) for message in found] == [
        (b"%d" % number, {"n": str(number)}) for number in range(5)
    ]
    assert {message.message_key for message in found} == {"k"}
    assert all(message.store_timestamp and message.store_host and message.message_id for message in found)
    assert (list(first.offsets), list(rest.offsets), rest.next) == ([0, 1, 2], [3, 4], 5)
    assert read(frames, log, (b"x-oms-offset", b"5")).offsets == []


def test_the_query_says_the_same(frames: Frames) -> None:
    target = fresh()
    store(frames, target, b"x")
    (log,) = logs(frames, target)
    answer = frames.ask("GET", f"/v1/log?version=1.0.0&log={log}&offset=0&maxmessages=1")
    assert [message.body for message in decode(answer.body).messages("x")] == [b"x"]


def test_an_answer_is_bounded_in_messages_and_bytes(frames: Frames) -> None:
    many, large = fresh(), fresh()
    item = {"header": {"destination": many.decode()}, "extensionHeader": {"partition": 0}}
    for _ in range(3):
        answer = post(frames, [VERSION, (b"content-type", b"application/json")], json.dumps([item] * 1000).encode())
        assert answer.status == 200
    (log,) = logs(frames, many)
    assert len(read(frames, log).offsets) == 2000
    assert len(read(frames, log, (b"x-oms-maxmessages", b"999999")).offsets) == 2000
    for _ in range(3):
        store(frames, large, b"x" * (3 << 20), (b"x-oms-h-partition", b"0"))
    (log,) = logs(frames, large)
    assert [len(read(frames, log, (b"x-oms-offset", b"%d" % at)).offsets) for at in range(4)] == [1, 1, 1, 0]


def test_what_is_wrong_is_said(frames: Frames, subtests: pytest.Subtests) -> None:
    log = (b"x-oms-log", b"x")
    wrong: list[tuple[list[Pair], int, str]] = [
        ([], 400, "header-missing"),
        ([(b"x-oms-log", b"x/y/0")], 404, "destination-unknown"),
        ([(b"x-oms-log", b"")], 404, "destination-unknown"),
        ([log, (b"x-oms-offset", b"-1")], 400, "header-invalid"),
        ([log, (b"x-oms-offset", b"9223372036854775808")], 400, "header-invalid"),
        ([log, (b"x-oms-maxmessages", b"0")], 400, "header-invalid"),
    ]
    for pairs, status, code in wrong:
        with subtests.test(str(pairs)):
            refusal(ask(frames, *pairs), status, code)


def test_the_version_is_asked_for_and_strange_origins_are_refused(frames: Frames, subtests: pytest.Subtests) -> None:
    for path in ("/v1/logs", "/v1/log"):
        with subtests.test(path):
            refusal(frames.ask("GET", path), 400, "header-missing", "x-oms-version")
            refusal(frames.ask("GET", path, [VERSION, (b"origin", b"https://evil.example")]), 403, "forbidden")
            refusal(frames.ask("POST", path, [VERSION], b""), 405, "method-not-allowed")


def test_a_life_without_a_journal_ends_its_logs_and_one_with_goes_on(server: str, tmp_path: Path) -> None:
    for backend, stays in (("memory://", False), (f"memory://?journal={tmp_path}/journal", True)):
        names = []
        for life in range(2):
            with Bridge(tmp_path / f"{stays}{life}", server=server, backend=backend) as bridge, Frames(bridge.url) as f:
                store(f, b"orders", b"%d" % life, (b"x-oms-h-partition", b"0"))
                ((log, bounds),) = logs(f, b"orders").items()
                names.append(log)
                assert bounds == [0, 1 + life * stays]
                if life and not stays:
                    refusal(ask(f, (b"x-oms-log", names[0].encode())), 404, "destination-unknown")
                bridge.kill()
        assert (names[0] == names[1]) is stays


def test_a_full_backend_tells_what_it_dropped(start: Start) -> None:
    with Frames(start("memory://?max_messages=3&partitions=1").url) as frames:
        target = fresh()
        for number in range(3):
            store(frames, target, b"%d" % number)
        pull = [VERSION, (b"x-oms-source", target), (b"x-oms-consumerid", b"g")]
        assert frames.ask("GET", "/v1/messages", pull).body == b"0"
        store(frames, target, b"3")
        ((log, bounds),) = logs(frames, target).items()
        assert bounds == [1, 4]
        assert read(frames, log).dropped == [(0, 1)]
