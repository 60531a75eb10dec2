"""Priority over a backlog: what the broker's version does, and what the bridge's window adds. The docs say the same."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from uuid import uuid4

import pytest_asyncio

from adapters.base import Delivery
from adapters.rabbitmq.adapter import RabbitMQAdapter
from adapters.rabbitmq.options import parse
from adapters.rabbitmq.topology.names import queue
from bridge.engine.clock import SystemClock
from bridge.engine.counters import Counters, Counts
from bridge.engine.group import Group
from bridge.engine.options import EngineOptions
from bridge.engine.pull_and_prefetch import PullRequest
from tests.calls import lease
from tests.rabbitmq import natives
from tests.rabbitmq.waiting import completed, until

BACKLOG = [(number % 10) + 1 for number in range(60)]
"""Priorities in the order in which they are published: 1, 2, … 10, 1, 2, …"""


class Here:
    """An adapter whose bridge holds few messages at a time, and a group that comes and goes."""

    def __init__(self, url: str, prefetch: int) -> None:
        self.url = url
        options = parse(f"{url}?prefix=t{uuid4().hex[:8]}.&partitions=1")
        self.adapter = RabbitMQAdapter(options._replace(prefetch=prefetch))
        self.options = EngineOptions("bridge", prefetch=prefetch)
        self.orders = f"orders-{uuid4().hex[:8]}"
        self.queue = queue(self.orders, "app", 0)

    async def backlog(self, key: str | None = None) -> None:
        """Let the queue of the group hold one message of each priority after the other."""
        group = await self.join()
        await group.close()
        for number, priority in enumerate(BACKLOG):
            body = f"{priority} {number}".encode()
            message = completed(self.orders, body, 0, partition=0, priority=priority)
            await self.adapter.publish(message._replace(message_key=key))

    async def join(self) -> Group:
        def revoked(partitions: Collection[int]) -> Sequence[Delivery]:
            return joined.revoke(partitions)

        subscription = await self.adapter.subscribe(self.orders, "app", revoked)
        joined = Group(
            subscription,
            SystemClock(),
            self.options,
            Counters(),
            _never,
            counts=Counts(),
            max_deliveries=None,
            durable=True,
        )
        return joined

    @property
    def version(self) -> tuple[int, int]:
        return self.adapter._consuming.version[:2]

    def expected(self) -> list[int]:
        """In which order a quorum queue hands out the backlog, by the version."""
        if self.version >= (4, 3):  # strictly by priority
            return sorted(BACKLOG, reverse=True)
        if self.version >= (4, 0):  # two of those above the default for each other one
            high, normal = [p for p in BACKLOG if p > 5], [p for p in BACKLOG if p <= 5]
            found: list[int] = []
            while high or normal:
                found += [*high[:2], *normal[:1]]
                high, normal = high[2:], normal[1:]
            return found
        return BACKLOG


async def _never(_entry: object) -> None:
    raise AssertionError


@pytest_asyncio.fixture
async def small(rabbitmq_url: str) -> AsyncIterator[Here]:
    here = Here(rabbitmq_url, 10)
    await here.adapter.start()
    yield here
    await here.adapter.close()


@pytest_asyncio.fixture
async def large(rabbitmq_url: str) -> AsyncIterator[Here]:
    here = Here(rabbitmq_url, 256)
    await here.adapter.start()
    yield here
    await here.adapter.close()


def priorities(bodies: Sequence[bytes]) -> list[int]:
    return [int(body.split()[0]) for body in bodies]


async def test_a_native_consumer_gets_them_as_the_version_of_the_broker_has_it(large: Here) -> None:
    await large.adapter.partitions(large.orders)
    await large.backlog()
    got = await asyncio.to_thread(natives.take, large.url, large.queue, len(BACKLOG))
    assert priorities([each.body for each in got]) == large.expected()
    assert [each.properties.priority for each in got] == [priority - 1 for priority in large.expected()]


async def test_what_fits_into_the_window_comes_by_priority_with_every_version(large: Here) -> None:
    """
    > Best effort, as the specification says: within the look-ahead window always,
    """
    await large.adapter.partitions(large.orders)
    await large.backlog()
    group = await large.join()
    await until(lambda: group.buffer.ready == len(BACKLOG))
    bodies = [entry.message.body for entry in group.lease_many(PullRequest(30_000, 0, None), len(BACKLOG), 1 << 20)]
    assert priorities(bodies) == sorted(BACKLOG, reverse=True)
    for priority in range(1, 11):
        numbers = [int(body.split()[1]) for body in bodies if body.startswith(b"%d " % priority)]
        assert numbers == sorted(numbers), "equal ones as they were stored"
    await group.close()


async def test_messages_of_one_key_keep_their_order_with_every_version(small: Here) -> None:
    """
    > Key order beats priority.
    """
    await small.adapter.partitions(small.orders)
    await small.backlog("customer-7")
    group = await small.join()
    found = []
    for _ in BACKLOG:
        entry = await lease(group, PullRequest(30_000, 60_000, None))
        assert entry is not None
        found.append((int(entry.message.body.split()[0]), entry.message.priority))
        await group.settle([entry])
    assert found == [(priority, priority) for priority in BACKLOG]
    await group.close()


async def test_a_backlog_larger_than_the_window_comes_by_priority_as_far_as_the_broker_has_it(small: Here) -> None:
    """
    > across a whole backlog where the backend can
    """
    await small.adapter.partitions(small.orders)
    await small.backlog()
    group = await small.join()
    bodies = []
    for _ in BACKLOG:
        entry = await lease(group, PullRequest(30_000, 60_000, None))
        assert entry is not None
        bodies.append(entry.message.body)
        await group.settle([entry])
    found = priorities(bodies)
    if small.version >= (4, 3):
        assert found == sorted(BACKLOG, reverse=True)
    else:
        # nothing is held back for longer than the window: each is among the next ones of the queue
        assert sorted(found) == sorted(BACKLOG)
        assert found[0] == max(small.expected()[:10])
        assert found.index(1) > found.index(10)
    await group.close()
