"""One push stream inside the process, with a writer of the test's own: what no socket shows exactly."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from adapters.memory import connect
from bridge.engine.clock import SystemClock
from bridge.engine.engine import Engine, GroupName
from bridge.engine.policy import Policy
from bridge.engine.waiters import Want
from bridge.errors import BackendUnavailable, LeaseEnded
from bridge.http import push
from bridge.http.exchange import Reply, Request
from bridge.http.limits import Limits
from bridge.http.push import Push
from bridge.message import Message
from bridge.wire import compression
from bridge.wire.headers import parse

T = TypeVar("T")
APP = GroupName("orders", "app")
LINES = "application/x-ndjson"
EVENTS = "text/event-stream"


class Reader:
    """The other end of one stream; reads so many pieces, the opening among them, and then stands still."""

    def __init__(self, reply: Reply, reads: int) -> None:
        assert reply.flow is not None
        self.pieces: list[bytes] = []
        self._reads = asyncio.Semaphore(reads)
        self.came = asyncio.Event()
        self.task = asyncio.ensure_future(reply.flow(self._write))

    async def _write(self, piece: bytes) -> None:
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
        async with asyncio.timeout(20):
            while part not in self.text:
                self.came.clear()
                await self.came.wait()

    async def leave(self) -> None:
        self.task.cancel()
        await asyncio.wait((self.task,))


class House:
    """An engine on the in-memory backend, and the endpoint before it."""

    def __init__(self, limits: Limits) -> None:
        self.engine = Engine(connect("memory://"), SystemClock(), Policy("host", window=100_000, in_flight=100_000))
        self.push = Push(self.engine, limits)

    async def produce(self, *found: Message) -> None:
        await self.engine.produce_all(found, (), "peer")

    async def open(self, accept: str = LINES, last: str = "", **asked: object) -> Reply:
        named = {"version": "1.0.0", "source": "orders", "consumerid": "app", "ack": "true"} | asked
        pairs = [(b"accept", accept.encode()), (b"last-event-id", last.encode("latin-1"))]
        pairs += [(f"x-oms-{name}".encode(), str(value).encode()) for name, value in named.items()]
        return await self.push.stream(Request(parse(pairs), b"", b"", "peer", unguarded))

    async def reader(self, accept: str = LINES, last: str = "", reads: int = 1000, **asked: object) -> Reader:
        return Reader(await self.open(accept, last, **asked), reads)

    @property
    def consumers(self) -> int:
        return sum(group.consumers for _, group in self.engine.groups)


async def unguarded(work: Coroutine[object, object, T]) -> T:
    return await work


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = House(Limits())
    await house.engine.start()
    yield house
    await house.engine.close()


def messages(count: int, body: bytes = b"") -> list[Message]:
    return [Message("orders", b"%d" % number + body) for number in range(count)]


@pytest.mark.parametrize("ack", ["true", "false"])
async def test_a_stream_whose_reader_keeps_up_lets_the_others_have_their_turn(house: House, ack: str) -> None:
    """Nothing that it does has to wait: the backend has it all, the reader takes it all."""
    await house.produce(*messages(1000))
    reader = await house.reader(ack=ack, credit=1000)
    most = before = 0
    while reader.text.count(b"\n") < 1000:
        await asyncio.sleep(0)
        most, before = max(most, len(reader.pieces) - before), len(reader.pieces)
    assert len(reader.pieces) > 10
    assert most <= 2
    await reader.leave()


async def test_bodies_are_inflated_one_by_one(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 messages of 4 KiB that each inflate to 4 MiB would be 256 MiB in memory."""
    inflated = 0

    def counting(message: Message, limit: int) -> Message:
        nonlocal inflated
        inflated += 1
        return compression.unpacked(message, limit)

    monkeypatch.setattr(push, "compression", SimpleNamespace(unpacked=counting))
    packed = gzip.compress(bytes(1 << 20))
    await house.produce(*[Message("orders", packed, compression="gzip")] * 20)
    reader = await house.reader(reads=1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert inflated == 1
    await reader.leave()


async def test_a_reader_that_stands_still_is_broken_off_and_what_it_holds_goes_back() -> None:
    house = House(Limits(stall=50))
    await house.engine.start()
    await house.produce(*messages(1))
    reader = await house.reader(reads=2)
    await reader.until(b'"data"')
    await house.produce(*messages(1))
    await asyncio.wait((reader.task,), timeout=20)
    assert reader.task.cancelled()
    assert b'"end"' not in reader.text
    pulled = [await house.engine.pull(APP, Want(1000), ack=True) for _ in range(2)]
    assert [each.message.delivery_count for each in pulled if each] == [2, 2]
    await house.engine.close()


async def test_a_stream_that_nobody_waits_for_any_more_is_closed(house: House) -> None:
    reply = await house.open()
    assert house.consumers == 1
    assert reply.undo is not None
    reply.undo()
    assert house.consumers == 0


@pytest.mark.parametrize("last", ["-\xb2", "-" + "9" * 5000])
async def test_a_last_event_id_that_is_none_costs_no_consumer(house: House, last: str) -> None:
    await house.produce(*messages(1))
    reader = await house.reader(EVENTS, ack="false")
    await reader.until(b"data")
    token = reader.text.partition(b"id: ")[2].partition(b"-")[0].decode()
    await reader.leave()
    fresh = await house.reader(EVENTS, token + last)
    await fresh.until(b"retry")
    await fresh.leave()
    assert house.consumers == 0


async def test_what_was_settled_and_not_yet_written_is_sent_to_who_comes_back(house: House) -> None:
    """A batch is settled as a whole: a reader that leaves in its middle has missed the rest of it."""
    await house.produce(*messages(10, bytes(push.PIECE)))
    reader = await house.reader(EVENTS, ack="false", reads=2)
    await reader.until(b"data")
    for _ in range(20):
        await asyncio.sleep(0)
    await reader.leave()
    seen = reader.text.count(b"data: {")
    last = reader.text.rpartition(b"id: ")[2].partition(b"\n")[0].decode()
    assert 0 < seen < 10
    heir = await house.reader(EVENTS, last, ack="false", waitmills=0)
    await asyncio.wait((heir.task,), timeout=20)
    assert seen + heir.text.count(b'data: {"version') == 10


async def test_a_stream_that_ended_is_not_cancelled_by_its_heir(house: House) -> None:
    """Its task goes on: the server still writes the end."""
    await house.produce(*messages(1))
    reply = await house.open(EVENTS, ack="false", waitmills=0)
    pieces: list[bytes] = []
    ended, goes_on = asyncio.Event(), asyncio.Event()

    async def write(piece: bytes) -> None:
        pieces.append(piece)

    async def server() -> str:
        assert reply.flow is not None
        await reply.flow(write)
        ended.set()
        await goes_on.wait()
        return "its end was written"

    serving = asyncio.ensure_future(server())
    await ended.wait()
    event = b"".join(pieces).partition(b"id: ")[2].partition(b"\n")[0].decode()
    heir = await house.reader(EVENTS, event, ack="false")
    goes_on.set()
    assert await serving == "its end was written"
    await heir.leave()


async def test_an_error_of_the_backend_ends_the_stream_and_says_so(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.produce(*messages(1))
    reader = await house.reader(ack="false")
    await reader.until(b'"data"')
    ((_, group),) = house.engine.groups

    async def fail(_entries: object) -> None:
        raise BackendUnavailable("gone")

    monkeypatch.setattr(group, "settle", fail)
    await house.produce(*messages(1))
    await asyncio.wait((reader.task,), timeout=20)
    assert reader.items[-1] == {"end": "backend-unavailable", "detail": "gone"}
    assert house.consumers == 0
    monkeypatch.undo()
    pulled = await house.engine.pull(APP, Want(1000), ack=True)
    assert pulled is not None
    assert pulled.message.delivery_count == 1


async def test_the_receipts_that_a_stream_brings_along_are_settled_first(house: House) -> None:
    await house.produce(*messages(2))
    pulled = [await house.engine.pull(APP, Want(30_000), ack=True) for _ in range(2)]
    receipts = [each.receipt or "" for each in pulled if each is not None]
    reader = await house.reader(receipt=receipts[0], waitmills=0)
    await asyncio.wait((reader.task,), timeout=20)
    assert reader.items == [{"end": "waitmills"}]
    house.engine.nack(receipts[1:], 0, APP)
    with pytest.raises(LeaseEnded):
        await house.open(receipt=receipts[1])
    assert house.consumers == 0
