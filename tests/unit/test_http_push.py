"""One push stream inside the process, with a writer of the test's own: what no socket shows exactly."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from adapters.memory import connect
from bridge.engine.clock import SystemClock
from bridge.engine.destination_names import SubscriptionKey
from bridge.engine.engine import Engine
from bridge.engine.options import EngineOptions
from bridge.engine.pull_and_prefetch import PullRequest
from bridge.errors import BackendUnavailable, LeaseEnded, LimitReached
from bridge.http import heartbeat, push
from bridge.http.push import PushEndpoint
from bridge.http.request_and_reply import BodyStream, Limits, Reply, Request
from bridge.long_work import Slicer, Steps, run_at_once
from bridge.message import Message
from bridge.wire import gzip_body, multipart
from bridge.wire.headers import parse
from bridge.wire.stream_framings import StreamMessage, decode_lines
from tests.calls import settled

T = TypeVar("T")
APP = SubscriptionKey("orders", "app")
LINES = "application/x-ndjson"
EVENTS = "text/event-stream"


class Reader:
    """The other end of one stream; reads so many pieces, the opening among them, and then stands still."""

    def __init__(self, reply: Reply, reads: int) -> None:
        assert reply.stream is not None
        self.pieces: list[bytes] = []
        self.failure: Exception | None = None
        """Raised by the next write."""
        self._reads = asyncio.Semaphore(reads)
        self.came = asyncio.Event()
        self.task = asyncio.ensure_future(reply.stream(self._write))

    async def _write(self, piece: bytes) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            self.came.set()
            raise failure
        await self._reads.acquire()
        self.pieces.append(piece)
        self.came.set()

    @property
    def text(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def items(self) -> list[Any]:
        return [json.loads(line) for line in self.text.splitlines()]

    async def until(self, part: bytes) -> None:
        await self.until_true(lambda: part in self.text)

    async def until_pieces(self, count: int) -> None:
        await self.until_true(lambda: len(self.pieces) >= count)

    async def until_true(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self.came.clear()
                await self.came.wait()

    def let(self, pieces: int) -> None:
        for _ in range(pieces):
            self._reads.release()

    async def leave(self) -> None:
        self.task.cancel()
        await asyncio.wait((self.task,))


class PushBench:
    """An engine on the in-memory backend with its push endpoint."""

    def __init__(self, limits: Limits) -> None:
        self.engine = Engine(
            connect("memory://"), SystemClock(), EngineOptions("host", prefetch=100_000, in_flight=100_000)
        )
        self.push = PushEndpoint(self.engine, limits, Slicer())

    async def produce(self, *found: Message) -> None:
        await self.engine.produce(found, (), "peer")

    async def open(self, accept: str = LINES, last: str = "", **params: object) -> Reply:
        named = {"version": "1.0.0", "source": "orders", "consumerid": "app", "ack": "true"} | params
        pairs = [(b"accept", accept.encode()), (b"last-event-id", last.encode("latin-1"))]
        pairs += [(f"x-oms-{name}".encode(), str(value).encode()) for name, value in named.items()]
        unread = cast("BodyStream", None)
        return await self.push.stream(Request(parse(pairs), 0, b"", "/v1/push", b"", "peer", unguarded, unread))

    async def reader(self, accept: str = LINES, last: str = "", reads: int = 1000, **params: object) -> Reader:
        return Reader(await self.open(accept, last, **params), reads)

    @property
    def consumers(self) -> int:
        return sum(group.consumers for _, group in self.engine.groups)


async def unguarded(work: Coroutine[object, object, T]) -> T:
    return await work


@pytest.fixture
async def bench() -> AsyncIterator[PushBench]:
    bench = PushBench(Limits())
    await bench.engine.start()
    yield bench
    await bench.engine.close()


def messages(count: int, body: bytes = b"") -> list[Message]:
    return [Message("orders", b"%d" % number + body) for number in range(count)]


@pytest.mark.parametrize("ack", ["true", "false"])
async def test_a_stream_whose_reader_keeps_up_lets_the_others_have_their_turn(bench: PushBench, ack: str) -> None:
    """Nothing that it does has to wait: the backend has it all, the reader takes it all."""
    await bench.produce(*messages(1000))
    reader = await bench.reader(ack=ack, credit=1000)
    most = before = 0
    while reader.text.count(b"\n") < 1000:
        await asyncio.sleep(0)
        most, before = max(most, len(reader.pieces) - before), len(reader.pieces)
    assert len(reader.pieces) > 10
    assert most <= 2
    await reader.leave()


async def test_bodies_are_inflated_one_by_one(bench: PushBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 messages of 4 KiB that each inflate to 4 MiB would be 256 MiB in memory."""
    inflated = 0

    def counting(message: Message, limit: int) -> Steps[Message]:
        nonlocal inflated
        inflated += 1
        return gzip_body.inflate_message(message, limit)

    monkeypatch.setattr(push, "gzip_body", SimpleNamespace(inflate_message=counting))
    packed = gzip.compress(bytes(1 << 20))
    await bench.produce(*[Message("orders", packed, compression="gzip")] * 20)
    reader = await bench.reader(reads=1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert inflated == 1
    await reader.leave()


@pytest.mark.parametrize(
    ("failure", "end"), [(TimeoutError(), b""), (LimitReached("no memory"), b'"end":"limit-reached"')]
)
async def test_a_message_that_cannot_be_written_goes_back(bench: PushBench, failure: Exception, end: bytes) -> None:
    """The client has stopped reading, or the message does not fit into the budget of bytes."""
    reader = await bench.reader()
    await bench.produce(*messages(1))
    await reader.until(b'"data"')
    reader.failure = failure
    await bench.produce(*messages(1))
    await asyncio.wait((reader.task,), timeout=20)
    assert reader.task.exception() is (None if end else failure)
    assert end in reader.text
    assert (b'"end"' in reader.text) is bool(end)
    pulled = [await settled(bench.engine.pull(APP, PullRequest(1000), ack=True)) for _ in range(2)]
    assert [each.message.delivery_count for each in pulled if each] == [2, 2]


async def test_a_stream_that_nobody_waits_for_any_more_is_closed(bench: PushBench) -> None:
    reply = await bench.open()
    assert bench.consumers == 1
    assert reply.cleanup is not None
    reply.cleanup()
    assert bench.consumers == 0


@pytest.mark.parametrize("last", ["-\xb2", "-" + "9" * 5000])
async def test_a_last_event_id_that_is_none_costs_no_consumer(bench: PushBench, last: str) -> None:
    await bench.produce(*messages(1))
    reader = await bench.reader(EVENTS, ack="false")
    await reader.until(b"data")
    token = reader.text.partition(b"id: ")[2].partition(b"-")[0].decode()
    await reader.leave()
    fresh = await bench.reader(EVENTS, token + last)
    await fresh.until(b"retry")
    await fresh.leave()
    assert bench.consumers == 0


async def test_what_was_settled_and_not_yet_written_is_sent_to_who_comes_back(bench: PushBench) -> None:
    """A batch is settled as a whole: a reader that leaves in its middle has missed the rest of it."""
    await bench.produce(*messages(10, bytes(push.CHUNK)))
    reader = await bench.reader(EVENTS, ack="false", reads=2)
    await reader.until(b"data")
    for _ in range(20):
        await asyncio.sleep(0)
    await reader.leave()
    seen = reader.text.count(b"data: {")
    last = reader.text.rpartition(b"id: ")[2].partition(b"\n")[0].decode()
    assert 0 < seen < 10
    successor = await bench.reader(EVENTS, last, ack="false", waitmills=0)
    await asyncio.wait((successor.task,), timeout=20)
    assert seen + successor.text.count(b'data: {"version') == 10


async def test_a_stream_that_ended_is_not_cancelled_by_its_successor(bench: PushBench) -> None:
    """Its task goes on: the server still writes the end."""
    await bench.produce(*messages(1))
    reply = await bench.open(EVENTS, ack="false", waitmills=0)
    pieces: list[bytes] = []
    ended, goes_on = asyncio.Event(), asyncio.Event()

    async def write(piece: bytes) -> None:
        pieces.append(piece)

    async def server() -> str:
        assert reply.stream is not None
        await reply.stream(write)
        ended.set()
        await goes_on.wait()
        return "its end was written"

    serving = asyncio.ensure_future(server())
    await ended.wait()
    event = b"".join(pieces).partition(b"id: ")[2].partition(b"\n")[0].decode()
    successor = await bench.reader(EVENTS, event, ack="false")
    goes_on.set()
    assert await serving == "its end was written"
    await successor.leave()


async def test_an_error_of_the_backend_ends_the_stream_and_says_so(
    bench: PushBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.produce(*messages(1))
    reader = await bench.reader(ack="false")
    await reader.until(b'"data"')
    ((_, group),) = bench.engine.groups

    def fail(_entries: object) -> None:
        raise BackendUnavailable("gone")

    monkeypatch.setattr(group, "settle", fail)
    await bench.produce(*messages(1))
    await asyncio.wait((reader.task,), timeout=20)
    assert reader.items[-1] == {"end": "backend-unavailable", "detail": "gone"}
    assert bench.consumers == 0
    monkeypatch.undo()
    pulled = await settled(bench.engine.pull(APP, PullRequest(1000), ack=True))
    assert pulled is not None
    assert pulled.message.delivery_count == 1


async def test_the_receipts_that_a_stream_brings_along_are_settled_first(bench: PushBench) -> None:
    await bench.produce(*messages(2))
    pulled = [await settled(bench.engine.pull(APP, PullRequest(30_000), ack=True)) for _ in range(2)]
    receipts = [each.receipt or "" for each in pulled if each is not None]
    reader = await bench.reader(receipt=receipts[0], waitmills=0)
    await asyncio.wait((reader.task,), timeout=20)
    assert reader.items == [{"end": "waitmills"}]
    bench.engine.leases.nack(receipts[1:], 0, APP)
    with pytest.raises(LeaseEnded):
        await bench.open(receipt=receipts[1])
    assert bench.consumers == 0


@pytest.mark.parametrize("accept", [LINES, EVENTS, "multipart/mixed"])
async def test_a_silent_stream_sends_heartbeats_that_are_no_messages(
    bench: PushBench, accept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.01)
    reader = await bench.reader(accept, maxmessages=2, leasemills=200)
    for number in range(2):
        await reader.until_pieces(len(reader.pieces) + 3)
        await bench.produce(Message("orders", b"%d" % number))
        await reader.until(b"%d" % number if accept.startswith("multipart") else [b"MA==", b"MQ=="][number])
    await asyncio.wait((reader.task,), timeout=20)
    bodies = [each.body for each in read(accept, reader.text)]
    assert bodies == [b"0", b"1"]


def read(accept: str, text: bytes) -> list[Message]:
    """Read a whole stream, its heartbeats excepted."""
    if accept.startswith("multipart"):
        boundary = text.partition(b"\r\n")[0].removeprefix(b"--")
        assert text.endswith(b"--\r\n")
        return [m for m in run_at_once(multipart.decode(text, boundary, 10_000, 1 << 15)) if isinstance(m, Message)]
    if accept == EVENTS:
        events = [event.partition(b"data: ")[2] for event in text.split(b"\n\n") if b"data: " in event]
        text = b"".join(event + b"\n" for event in events)
    return [line.message for line in decode_lines(text) if isinstance(line, StreamMessage)]


async def test_a_heartbeat_that_cannot_be_written_fails_the_next_message(
    bench: PushBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client has stopped reading: the message goes back when the stream ends."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.01)
    reader = await bench.reader()
    await reader.until(b"")
    reader.failure = TimeoutError()
    await reader.until_true(lambda: reader.failure is None)
    await bench.produce(*messages(1))
    await asyncio.wait((reader.task,), timeout=20)
    assert isinstance(reader.task.exception(), TimeoutError)
    assert b"data" not in reader.text
    assert bench.consumers == 0


async def test_messages_and_heartbeats_never_mix(bench: PushBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat that waits for the client is written whole before the next message."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.01)
    reader = await bench.reader(reads=1)
    await reader.until(b"")
    await asyncio.sleep(0.1)
    await bench.produce(*messages(2))
    await asyncio.sleep(0.1)
    assert reader.pieces == [b""]
    reader.let(2)
    await reader.until(b"data")
    assert reader.pieces[:2] == [b"", b"\n"]
    await reader.leave()
