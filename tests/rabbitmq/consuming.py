"""The consuming side of a bridge without its engine: over real links, on queues of the test's own."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import uuid4

from adapters.amqp.channel import Channel
from adapters.amqp.link import Link
from adapters.amqp.messages import Outgoing
from adapters.amqp.properties import Properties
from adapters.base import Delivery, Outcome
from adapters.rabbitmq.consume.assigned import GroupDependencies
from adapters.rabbitmq.consume.attempts import read_attempts
from adapters.rabbitmq.consume.consumer import Consumer
from adapters.rabbitmq.consume.subscription import RabbitMQSubscription
from adapters.rabbitmq.mapping import to_properties
from adapters.rabbitmq.options import parse
from adapters.rabbitmq.publish.publisher import Publisher
from adapters.rabbitmq.topology import declarations, names
from adapters.rabbitmq.topology.names import Source
from bridge.errors import BackendUnavailable
from bridge.message import Message

GUARD = 60.0
GROUP = "app"


class Shares:
    """A membership whose shares the test sets."""

    def __init__(self, share: Collection[int] | None = None) -> None:
        self.share = share
        self.changed: Callable[[frozenset[int]], None] = lambda _share: None
        self.left = False

    def make(self, partitions: int, changed: Callable[[frozenset[int]], None]) -> Any:  # noqa: ANN401 - a membership
        self.changed = changed
        if self.share is None:
            self.share = range(partitions)
        return self

    async def join(self) -> frozenset[int]:
        return self.now

    async def leave(self) -> None:
        self.left = True

    @property
    def now(self) -> frozenset[int]:
        return frozenset(self.share or ())

    def move(self, share: Collection[int]) -> None:
        self.share = share
        self.changed(self.now)


class Bridge:
    """One subscription, and an engine's record of it."""

    def __init__(self, pool: "Pool", link: Link, publishing: Link, shares: Shares, **options: Any) -> None:  # noqa: ANN401
        self.link, self.publishing = link, publishing
        self.shares = shares
        self.open: dict[tuple[int, int], Delivery] = {}
        """Fetched and not settled, with what they count."""
        self.leased: set[tuple[int, int]] = set()
        self.revoked: list[list[int]] = []
        self.publisher = Publisher(pool.options, publishing)
        link.on_connected.append(lambda: shares.changed(shares.now))  # as the real one does
        self.subscription = RabbitMQSubscription(
            pool.destination,
            self._revoked,
            GroupDependencies(
                make_sources=pool.make_sources,
                make_membership=shares.make,
                record_drained=_nothing,
                consuming=link,
                publisher=self.publisher,
                **{"prefetch": 256, "store_deferred": None, **options},
            ),
        )

    async def fetch(self, limit: int = 100, max_bytes: int = 1 << 20) -> list[Delivery]:
        """Fetch once, and wait for it."""
        async with asyncio.timeout(GUARD):
            found = await self.subscription.fetch(limit, max_bytes)
        self.open.update({(each.partition, each.position): each for each in found})
        return found

    async def take(self, wanted: int, limit: int = 100) -> list[Delivery]:
        """Fetch until there are so many."""
        found: list[Delivery] = []
        while len(found) < wanted:
            found += await self.fetch(min(limit, wanted - len(found)))
        return found

    async def take_again(self, wanted: int) -> list[Delivery]:
        """Fetch as the engine does: after an error once more, a little later. What is revoked meanwhile comes again."""
        found: list[Delivery] = []
        async with asyncio.timeout(GUARD):
            while len(found) < wanted:
                try:
                    found += await self.fetch(wanted - len(found))
                except BackendUnavailable:
                    await asyncio.sleep(0.05)
                found = [each for each in found if (each.partition, each.position) in self.open]
        return found

    async def settle(self, deliveries: Iterable[Delivery]) -> None:
        deliveries = list(deliveries)
        async with asyncio.timeout(GUARD):
            await self.subscription.settle(deliveries, Outcome.SETTLED)
        for each in deliveries:
            self.open.pop((each.partition, each.position), None)

    async def lease(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Hand out: each counts one more."""
        leased = [each._replace(attempts=each.attempts + 1) for each in deliveries]
        await self.subscription.settle(leased, Outcome.LEASED)
        self.open.update({(each.partition, each.position): each for each in leased})
        self.leased.update((each.partition, each.position) for each in leased)
        return leased

    async def noted(self, identities: Collection[str], partition: int = 0) -> None:
        """Wait until the note of a partition is of these at least."""
        keeper = self.subscription._assigned.partitions[partition].attempts_writer
        await until(lambda: set(identities) <= set(keeper._written or ()), lambda: str(keeper._written))

    async def stop(self) -> None:
        """End as the engine does: what is leased is given back and does not count."""
        await self.subscription.settle(self._cut_short(self.open.values()), Outcome.RELEASED)
        await self.subscription.close()

    def nothing_comes(self) -> bool:
        """Whether nothing can be fetched now."""
        future = self.subscription.fetch(1, 1)
        return not future.done() and future.cancel()

    def cut(self) -> None:
        """End the connections as a network does that fails, or as one's own death does."""
        for link in (self.link, self.publishing):
            if link._connection is not None:
                link._connection.abort()

    async def die(self) -> None:
        """End without a farewell."""
        self.link._closing = self.publishing._closing = True
        self.cut()
        await until(lambda: not self.link.up and not self.publishing.up)

    def _revoked(self, partitions: Collection[int]) -> list[Delivery]:
        self.revoked.append(sorted(partitions))
        gone = [each for each in self.open.values() if each.partition in partitions]
        for each in gone:
            del self.open[each.partition, each.position]
        return self._cut_short(gone)

    def _cut_short(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        return [
            each._replace(attempts=each.attempts - ((each.partition, each.position) in self.leased))
            for each in deliveries
        ]


class Pool:
    """The queues of one group."""

    def __init__(self, url: str, partitions: int, stack: AsyncExitStack, **arguments: object) -> None:
        self.options = parse(url)
        self.destination = f"t{uuid4().hex[:12]}"
        self.partitions = partitions
        self.link = Link(self.options, "test")
        self.publisher = Publisher(self.options, self.link)
        self.shared = False
        self.shared_arguments: Mapping[str, object] = {"x-queue-type": "classic"}
        self.has_history = False
        self.made = 0
        self._stack = stack
        self._arguments = arguments
        self._channel: Channel | None = None

    @property
    def sources(self) -> list[Source]:
        history = self.history if self.has_history else None
        return [Source(i, self.queue(i), None if i else history, self.shared) for i in range(self.partitions)]

    def queue(self, partition: int = 0) -> str:
        return names.queue(self.destination, GROUP, partition)

    def note(self, partition: int = 0) -> str:
        return names.attempts(self.destination, GROUP, partition)

    @property
    def returned(self) -> str:
        return names.returned(self.destination, GROUP)

    @property
    def history(self) -> str:
        return names.history(self.destination, GROUP, 0)

    async def make_history(self) -> None:
        """Let partition 0 have a history."""
        self.has_history = True
        await self.ask("queue_declare", **declarations.partition_queue(self.history, self.returned).arguments)

    async def noted(self, partition: int = 0) -> dict[str, int] | None:
        """What the note of a partition says; None: there is none."""
        note = await read_attempts(self.link, self.note(partition))
        return None if note is None else dict(note.attempts)

    async def make_sources(self) -> list[Source]:
        """Declare what is missing."""
        self.made += 1
        await self.ask("queue_declare", **declarations.group_queues(self.destination, GROUP, 0)[0].arguments)
        for source in self.sources:
            arguments = dict(declarations.partition_queue(source.queue, self.returned).arguments)
            if self.shared:
                arguments["arguments"] = self.shared_arguments
            await self.ask("queue_declare", **arguments)
        return self.sources

    async def bridge(self, share: Collection[int] | None = None, **options: Any) -> Bridge:  # noqa: ANN401
        """Start one more bridge; by default it holds everything."""
        link, publishing = Link(self.options, "consuming"), Link(self.options, "publishing")
        bridge = Bridge(self, link, publishing, Shares(share), **options)
        self._stack.push_async_callback(link.close)
        self._stack.push_async_callback(publishing.close)
        self._stack.push_async_callback(bridge.publisher.close)
        self._stack.push_async_callback(bridge.subscription.close)
        await link.start()
        await publishing.start()
        async with asyncio.timeout(GUARD):
            await bridge.subscription.join()
        return bridge

    async def write(
        self, bodies: Iterable[str], partition: int = 0, queue: str | None = None, padding: int = 0
    ) -> None:
        """Publish messages, each with its body (and zeros behind it) for its id, straight into a queue."""
        sent = []
        queue = queue or self.queue(partition)
        for body in bodies:
            now = time.time_ns() // 1_000_000
            whole = body.encode() + bytes(padding)
            message = Message(self.destination, whole, message_id=body, born_timestamp=now, store_timestamp=now)
            sent.append(self.publisher.send(Outgoing("", queue, *to_properties(message))))
        await asyncio.gather(*sent)

    async def write_native(self, body: bytes, properties: Properties, partition: int = 0) -> None:
        await self.publisher.send(Outgoing("", self.queue(partition), properties, body))

    async def ask(self, method: str, **arguments: object) -> Any:  # noqa: ANN401
        """Do what an operator, or another program, may do."""
        if self._channel is None or not self._channel.open:
            self._channel = await self.link.channel()
        return await self._channel.ask("test", method, **arguments)

    async def left(self, partition: int = 0) -> int:
        """How many messages lie in a queue, delivered to no consumer."""
        answer = await self.ask("queue_declare", queue=self.queue(partition), passive=True)
        return int(answer.message_count)

    async def counted(self, count: int, partition: int = 0) -> None:
        """Wait until so many lie there."""

        async def counted() -> bool:
            return await self.left(partition) == count

        await eventually(counted)

    async def tidy(self) -> None:
        for partition in range(self.partitions):
            await self.ask("queue_delete", queue=self.queue(partition))
            await self.ask("queue_delete", queue=self.note(partition))
        await self.ask("queue_delete", queue=self.history)
        await self.ask("queue_delete", queue=self.returned)
        await self.publisher.close()
        await self.link.close()


@asynccontextmanager
async def pool(url: str, partitions: int = 1) -> AsyncIterator[Pool]:
    async with AsyncExitStack() as stack:
        found = Pool(url, partitions, stack)
        await found.link.start()
        stack.push_async_callback(found.tidy)
        await found.make_sources()
        found.made = 0
        yield found


async def until(condition: Callable[[], object], state: Callable[[], object] = str) -> None:
    """Wait for something. A guard, no measure."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + GUARD, state()
        await asyncio.sleep(0.01)


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that has to be asked for."""
    begun = time.monotonic()
    while not await condition():
        assert time.monotonic() < begun + GUARD
        await asyncio.sleep(0.02)


def bodies(deliveries: Iterable[Delivery], partition: int | None = None) -> list[str]:
    """Return what was delivered, of one partition or of all."""
    return [each.message.body.decode() for each in deliveries if partition in {None, each.partition}]


def consumer_of(bridge: Bridge) -> Consumer | None:
    partition = bridge.subscription._assigned.partitions.get(0)
    return None if partition is None else partition._consumer


async def renewed(bridge: Bridge, before: Consumer | None) -> Consumer:
    """Wait until it consumes on another channel."""
    await until(lambda: consumer_of(bridge) not in {None, before})
    consumer = consumer_of(bridge)
    assert consumer is not None
    return consumer


async def _nothing(_partition: int) -> None:
    """Record nothing: no catalogue has the queues of these tests."""
