"""`GET /v1/log`: blocks of a bounded size, built in slices; a backend that cannot read its logs has none."""

import asyncio
import json
from itertools import count
from typing import cast

import pytest

from adapters.base import Replayed
from adapters.memory.adapter import MemoryAdapter
from adapters.memory.options import Options
from adapters.testing.replay import logs_of
from bridge.engine.pull_and_prefetch import CancelOnDisconnect
from bridge.errors import LimitReached, NotFound
from bridge.http.log_reader import LogReader
from bridge.http.request_and_reply import Request
from bridge.long_work import Slicer
from bridge.message import Message
from bridge.wire.headers import Headers
from bridge.wire.log_block import decode


@pytest.mark.parametrize("what", ["logs", "read"])
async def test_a_backend_without_the_power_has_no_log(what: str) -> None:
    replay = LogReader(None, Slicer())
    with pytest.raises(NotFound, match="the broker's own client"):
        await getattr(replay, what)(request(log="x"))


class Held:
    """Counts what is held for the client."""

    def __init__(self, limit: int = 1 << 40) -> None:
        self.limit = limit
        self.size = 0

    async def read(self) -> bytes:
        raise NotImplementedError

    def hold(self, size: int) -> None:
        if self.size + size > self.limit:
            raise LimitReached("no more")
        self.size += size

    def release(self, size: int) -> None:
        raise NotImplementedError


def request(held: Held | None = None, **params: str) -> Request:
    headers = Headers({}, {}, {"version": "1.0.0", **params}, {})
    return Request(headers, 0, b"", "/v1/log", b"", "", cast("CancelOnDisconnect", None), held or Held())


@pytest.mark.parametrize(
    ("properties", "size"),
    [
        ({"p": "x" * 55_000}, 55_000),
        ({"p": "ü" * 20_000}, 120_000),
        ({"\U0001f680" * 50: "\x01" * 10_000}, 60_600),
        ({f"{number:05}": "" for number in range(2000)}, 22_000),
        ({}, 600),
    ],
    ids=["ascii", "escaped", "names", "many", "bodies"],
)
async def test_all_messages_are_read_in_bounded_blocks_while_others_run(properties: dict[str, str], size: int) -> None:
    adapter = MemoryAdapter(Options(partitions=1, max_bytes=1 << 30))
    await adapter.start()
    body = b"" if properties else b"y" * size
    sent = max(2 * (4 << 20) // size, 300)
    for number in range(sent):
        published = adapter.publish(Message("orders", body, properties, f"{number}", partition=0, priority=number % 3))
        await published
    [log] = logs_of(adapter)
    reader = LogReader(adapter, Slicer(count().__next__))
    turns, offsets, blocks = 0, list[int](), 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    following = 0
    while True:
        held = Held()
        reply = await reader.read(request(held, log=log, offset=f"{following}"))
        assert len(reply.body) <= held.size, "what it takes is counted while it is built"
        block = decode(reply.body)
        if not block.offsets:
            break
        assert len(reply.body) <= 4 << 20
        assert len(block.offsets) == 2000 or len(reply.body) > 3 << 20 or block.next == sent
        assert [each.properties for each in block.messages("orders")] == [properties] * len(block.offsets)
        offsets += block.offsets
        following, blocks = block.next, blocks + 1
    running.cancel()
    assert offsets == list(range(sent))
    assert blocks >= 2
    assert turns > 8 * 4 * blocks, "others run between the slices of each block"
    await adapter.close()


async def test_messages_that_are_dropped_between_two_slices_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = MemoryAdapter(Options(partitions=1))
    await adapter.start()
    for number in range(500):
        await adapter.publish(Message("orders", b"x", message_id=f"{number}", partition=0))
    [log] = logs_of(adapter)
    replay, calls = adapter.replay, 0

    def purged_meanwhile(log: str, start: int, limit: int, max_bytes: int) -> Replayed:
        nonlocal calls
        calls += 1
        part = replay(log, start, limit, max_bytes)
        return part if calls == 1 else Replayed([], [], 500, [(start, 350), (350, 500)])

    monkeypatch.setattr(adapter, "replay", purged_meanwhile)
    reader = LogReader(adapter, Slicer())
    block = decode((await reader.read(request(log=log))).body)
    assert (list(block.offsets), block.next) == (list(range(200)), 500)
    assert [tuple(each) for each in block.dropped] == [(200, 500)]
    await adapter.close()


async def test_a_block_ends_when_no_more_may_be_held_for_its_client() -> None:
    adapter = MemoryAdapter(Options(partitions=1))
    await adapter.start()
    for number in range(40):
        await adapter.publish(Message("orders", b"", {"p": "x" * 55_000}, f"{number}", partition=0))
    [log] = logs_of(adapter)
    reader = LogReader(adapter, Slicer())
    held, offsets = Held(limit=200_000), list[int]()
    while len(offsets) < 40:
        block = decode((await reader.read(request(held, log=log, offset=f"{len(offsets)}"))).body)
        assert 1 <= len(block.offsets) <= 3
        offsets += block.offsets
        held.size = 0
    assert offsets == list(range(40))
    for size in (150_000, 199_500):
        held.size = size
        with pytest.raises(LimitReached):
            await reader.read(request(held, log=log))
    await adapter.close()


async def test_all_logs_are_listed_while_others_run() -> None:
    adapter = MemoryAdapter(Options(partitions=1000))
    await adapter.start()
    for number in range(20):
        for partition in range(1000):
            await adapter.publish(Message(f"d{number}", partition=partition))
    reader = LogReader(adapter, Slicer(count().__next__))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    held = Held()
    reply = await reader.logs(request(held))
    running.cancel()
    assert json.loads(reply.body) == {"logs": {log: [0, 1] for log in logs_of(adapter)}}
    assert len(logs_of(adapter)) == 20_000
    assert turns > 8 * 20, "others run between two destinations"
    assert len(reply.body) < held.size + 100, "what it takes is counted while it is built"
    with pytest.raises(LimitReached):
        await reader.logs(request(Held(limit=200_000)))
    await adapter.close()
