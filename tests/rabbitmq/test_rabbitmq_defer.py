"""What a consumer gives back for long: it waits in delay levels, and returns to that group alone."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest
import pytest_asyncio

from adapters.base import Delivery
from adapters.rabbitmq.adapter import RabbitMQAdapter
from adapters.rabbitmq.options import parse
from adapters.rabbitmq.topology.names import queue
from bridge.engine import dead_letters_and_deferrals
from bridge.engine.clock import SystemClock
from bridge.engine.counters import Counters, Counts
from bridge.engine.entries_and_receipts import Entry
from bridge.engine.group import Group
from bridge.engine.options import EngineOptions
from bridge.engine.pull_and_prefetch import PullRequest
from bridge.errors import BackendUnavailable
from tests.calls import lease
from tests.rabbitmq.natives import left
from tests.rabbitmq.waiting import completed, until

SECONDS = 60


class Consuming:
    """One adapter, and groups of the engine on one destination."""

    def __init__(self, url: str, prefix: str) -> None:
        self.url = url
        self.adapter = RabbitMQAdapter(parse(f"{url}?prefix={prefix}&partitions=1"))
        self.orders = f"orders-{uuid4().hex[:8]}"
        self.groups: list[Group] = []

    async def group(self, name: str) -> Group:
        def revoked(partitions: Collection[int]) -> Sequence[Delivery]:
            return joined.revoke(partitions)

        subscription = await self.adapter.subscribe(self.orders, name, revoked)
        joined = Group(
            subscription,
            SystemClock(),
            EngineOptions("bridge"),
            Counters(),
            _bury,
            counts=Counts(),
            max_deliveries=None,
            durable=True,
        )
        self.groups.append(joined)
        return joined

    async def send(self, body: bytes, **fields: object) -> None:
        await self.adapter.publish(completed(self.orders, body, 0, partition=0, **fields))

    def left(self, group: str) -> int:
        return left(self.url, queue(self.orders, group, 0))


async def _bury(_entry: Entry) -> None:
    raise AssertionError


@asynccontextmanager
async def consuming(url: str, prefix: str) -> AsyncIterator[Consuming]:
    found = Consuming(url, prefix)
    try:
        await found.adapter.start()
        await found.adapter.partitions(found.orders)
        yield found
    finally:
        for group in found.groups:
            await group.close()
        await found.adapter.close()


@pytest_asyncio.fixture
async def here(rabbitmq_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Consuming]:
    monkeypatch.setattr(dead_letters_and_deferrals, "_LONG", 500)
    async with consuming(rabbitmq_url, prefix) as found:
        yield found


async def take(group: Group, wait: int = SECONDS * 1000) -> Entry:
    entry = await lease(group, PullRequest(30_000, wait, None))
    assert entry is not None
    return entry


async def test_a_message_given_back_for_long_comes_again_to_that_group_with_its_count(here: Consuming) -> None:
    mine, others = await here.group("mine"), await here.group("others")
    await here.send(b"1", properties={"a": "b"}, priority=9)
    first = await take(mine)
    theirs = await take(others)
    await others.settle([theirs])
    clock = SystemClock()
    begun = clock.wall()
    mine.release(first, 1500)
    again = await take(mine)
    assert clock.wall() >= begun + 1500
    assert again.attempts == 2
    assert again.message._replace(delivery_count=1) == first.message._replace(delivery_count=1)
    await mine.settle([again])
    assert await lease(others, PullRequest(30_000, 300, None)) is None
    await asyncio.to_thread(_until_empty, here, "mine")


async def test_the_count_goes_on_over_a_second_trip_and_a_move_to_another_bridge(here: Consuming) -> None:
    mine = await here.group("mine")
    await here.send(b"1")
    for count in (1, 2):
        entry = await take(mine)
        assert entry.attempts == count
        mine.release(entry, 600)
    third = await take(mine)
    assert third.attempts == 3
    await mine.close()
    here.groups.clear()
    assert (await take(await here.group("mine"))).attempts == 3, "a lease cut short does not count"


async def test_others_are_served_while_many_wait(here: Consuming) -> None:
    """The prefetch of a partition is 256: held in the window, they would be all there is of it."""
    mine = await here.group("mine")
    for number in range(300):
        await here.send(b"%d" % number)
    for _ in range(300):
        mine.release(await take(mine), 3_600_000)
    await here.send(b"good")
    assert (await take(mine)).message.body == b"good"
    await until(lambda: mine.buffer.size == 1)


async def test_one_with_a_key_waits_in_the_window_and_the_next_of_its_key_behind_it(here: Consuming) -> None:
    mine = await here.group("mine")
    for body in (b"1", b"2"):
        await here.send(body, message_key="k")
    mine.release(await take(mine), 1000)
    entry = await take(mine)
    assert (entry.message.body, entry.attempts) == (b"1", 2)


async def test_where_it_cannot_be_stored_it_waits_in_the_window(
    here: Consuming, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = await here.group("mine")
    await here.send(b"1")

    def fail(*_: object, **__: object) -> asyncio.Future[None]:
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        failed.set_exception(BackendUnavailable("RabbitMQ accepts no messages at the moment."))
        return failed

    monkeypatch.setattr(here.adapter._publisher, "send", fail)
    mine.release(await take(mine), 1000)
    assert (await take(mine)).attempts == 2
    assert here.left("mine") == 0, "it was never given back to the broker"


def _until_empty(here: Consuming, group: str) -> None:
    assert here.left(group) == 0
