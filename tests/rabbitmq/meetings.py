"""Bridges that only share partitions out: no messages, but real consumers of real queues."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import uuid4

from adapters.amqp.channel import Channel
from adapters.amqp.link import Link
from adapters.rabbitmq.group.membership import Bridges, Membership
from adapters.rabbitmq.options import Options, parse
from adapters.rabbitmq.publish.publisher import Publisher

GUARD = 30.0


class Seat:
    """A part in a group that is really consumed: it does what `changed` reports."""

    def __init__(self, bridges: Bridges, link: Link, group: str, queues: list[str]) -> None:
        self.told: list[frozenset[int]] = []
        self.held: dict[int, Channel] = {}
        self.membership = Membership(bridges, group, len(queues), self._changed)
        self._link = link
        self._queues = queues
        self._moving: asyncio.Task[None] | None = None
        self._link.on_lost.append(lambda _reason: self.held.clear())

    async def join(self) -> None:
        self._changed(await self.membership.join())
        await self.moved()

    async def leave(self) -> None:
        await self.membership.leave()
        await self._hold(frozenset())

    async def moved(self) -> None:
        """Wait until the last change is done."""
        while self._moving is not None and not self._moving.done():
            await asyncio.wait((self._moving,))

    def _changed(self, share: frozenset[int]) -> None:
        self.told.append(share)
        before = self._moving

        async def move() -> None:
            if before is not None:
                await asyncio.wait((before,))
            await self._hold(share)

        self._moving = asyncio.create_task(move())

    async def _hold(self, share: frozenset[int]) -> None:
        for partition in self.held.keys() - share:
            await self.held.pop(partition).close()
        for partition in share - self.held.keys():
            channel = self.held[partition] = await self._link.channel()
            queue = self._queues[partition]
            await channel.ask(queue, "basic_consume", queue=queue, on_message_callback=lambda *_: None)


class Bridge:
    """Two links and a control queue, as the adapter makes them."""

    def __init__(self, options: Options) -> None:
        self.consuming, self.publishing = Link(options, "consuming"), Link(options, "publishing")
        self.publisher = Publisher(options, self.publishing)
        self.bridges = Bridges(options, self.consuming, self.publishing, self.publisher)
        self.seats: list[Seat] = []

    @property
    def name(self) -> str | None:
        """Its name for the others."""
        return self.bridges._queue.name

    async def start(self) -> None:
        for each in (self.publishing, self.consuming, self.bridges):
            await each.start()

    async def close(self) -> None:
        for seat in self.seats:
            await seat.moved()
        for each in (self.bridges, self.publisher, self.consuming, self.publishing):
            await each.close()

    async def join(self, group: str, queues: list[str]) -> Seat:
        seat = Seat(self.bridges, self.consuming, group, queues)
        await seat.join()
        self.seats.append(seat)
        return seat


class Meeting:
    """Bridges in front of one broker, with names that no other test has."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self.prefix = f"t{uuid4().hex[:8]}."
        self._options = parse(f"{url}?prefix={self.prefix}")
        self._stack = stack
        self._queues: list[str] = []
        self.link = Link(self._options, "test")

    async def group(self, partitions: int) -> tuple[str, list[str]]:
        """Make the queues of a group, and return what it is called, and them."""
        group = f"{self.prefix}g{len(self._queues)}"
        queues = [f"{group}.p{partition}" for partition in range(partitions)]
        channel = await self.link.channel()
        for queue in queues:
            arguments = {"x-queue-type": "quorum", "x-single-active-consumer": True}
            await channel.ask(queue, "queue_declare", queue=queue, durable=True, arguments=arguments)
        self._queues += queues
        await channel.close()
        return group, queues

    async def bridge(self) -> Bridge:
        bridge = Bridge(self._options)
        self._stack.push_async_callback(bridge.close)
        await bridge.start()
        return bridge

    async def delete(self, method: str, **arguments: object) -> None:
        """Delete something, as an operator may."""
        channel = await self.link.channel()
        await channel.ask("it", method, **arguments)
        await channel.close()

    async def tidy(self) -> None:
        for queue in self._queues:
            await self.delete("queue_delete", queue=queue)
        await self.delete("exchange_delete", exchange=f"{self.prefix}bridges")
        await self.link.close()


@asynccontextmanager
async def meeting(url: str) -> AsyncIterator[Meeting]:
    async with AsyncExitStack() as stack:
        found = Meeting(url, stack)
        await found.link.start()
        stack.push_async_callback(found.tidy)
        yield found


def cut(link: Link) -> None:
    """End a connection as a network does that fails."""
    connection = link._connection
    assert connection is not None
    connection.abort()


async def until(condition: Callable[[], object], state: Callable[[], object] = str) -> None:
    """Wait for something. A guard: it takes about a second."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + GUARD, state()
        await asyncio.sleep(0.02)


async def shared(seats: Collection[Seat], partitions: int) -> None:
    """Wait until each partition is one bridge's, no bridge has more than one more than another, and all is consumed."""

    def fair() -> bool:
        found = [set(seat.held) for seat in seats]
        sizes = {len(each) for each in found}
        whole = sorted(partition for each in found for partition in each) == list(range(partitions))
        return (
            whole
            and max(sizes) - min(sizes) <= 1
            and all(set(seat.membership.share) == set(seat.held) for seat in seats)
        )

    await until(fair, lambda: [(sorted(seat.membership.share), sorted(seat.held)) for seat in seats])
    for seat in seats:
        await seat.moved()
