"""Deletes and purges destinations and groups for an operator. See `Deletable` for the errors.

The catalogue gets its entry last: until then everything is there to be deleted once more. Other bridges forget the
destination when they read the entry; a group that one of them has open is made anew by it.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from time import monotonic
from typing import Final

from adapters.amqp.link import Link
from adapters.rabbitmq.delay import levels
from adapters.rabbitmq.delay.declarer import step
from adapters.rabbitmq.delay.levels import Binding
from adapters.rabbitmq.topology import names
from adapters.rabbitmq.topology.catalogue import Catalogue
from adapters.rabbitmq.topology.declarations import Layout, Step, deleted, play
from adapters.rabbitmq.topology.destinations import Destinations
from adapters.rabbitmq.topology.names import Own
from bridge.errors import BackendFull, BackendUnavailable, DestinationUnknown, OutcomeUnknown, Refused

_READ: Final = 1.0
"""Seconds until the other bridges have read that the destination is purged: they read it within some milliseconds."""


class DelayPurge:
    """Drops delayed and deferred messages when they are due, of what an operator purges or deletes. Can be repeated.

    They are spread over queues that all destinations share. Their routing key has the number of purges that their
    bridge had read of in the catalogue. After the next purge the bindings of `deliver` lead messages with an earlier
    number to a queue that keeps nothing. A bridge reads the catalogue all the time; the purge waits until all have.
    """

    def __init__(self, own: Own, declaring: Link, catalogue: Catalogue, destinations: Destinations) -> None:
        self._own = own
        self._link = declaring
        self._catalogue = catalogue
        self._destinations = destinations

    async def purge(self, destination: str, group: str | None, partitions: int) -> None:
        """Drop, when they are due, the messages that wait for a destination and its groups, or for one group.

        Raises `BackendUnavailable`, `BackendFull` or `Refused`.
        """
        channel = await self._link.channel()
        try:
            if not await channel.has(self._own.lost):  # nothing was ever delayed
                return
            await self._catalogue.purge(destination, group)
            count = self._catalogue.purges(destination, group)
            await asyncio.sleep(_READ)
            groups = self._catalogue.groups(destination) if group is None else [group]
            ways = [] if group is not None else self._destination_ways(destination)
            ways += [way for each in groups for way in self._group_ways(destination, each, partitions)]
            queue = levels.dropped(self._own)
            moved = [move for way in ways for move in _moved(way, queue.name)]
            await play(channel, self._own.deliver, [step(queue), *moved])
            await self._catalogue.finish_purge(destination, group, count)
        finally:
            await channel.close()

    def _destination_ways(self, destination: str) -> list[Binding]:
        ways = []
        for number in self._earlier(destination, None):
            if (existing := self._destinations.existing(destination)) is None:
                ways.append(levels.from_deliver_to_exchange(self._own, destination, number))
                relay = levels.relay(self._own, destination)
            else:
                relay = levels.relay(self._own, existing.exchange or "", existing.routing_key or "", destination)
            ways.append(levels.from_deliver_to_queue(self._own, relay.name, number, partitioned=True))
        return ways

    def _group_ways(self, destination: str, group: str, partitions: int) -> Iterator[Binding]:
        for number in self._earlier(destination, group):
            for partition in range(partitions):
                queue = names.queue(destination, group, partition)
                yield levels.from_deliver_to_queue(self._own, queue, number)

    def _earlier(self, destination: str, group: str | None) -> Sequence[int]:
        """Return the numbers whose bindings may lead to the destination or the group still, also after broken purges.

        The number of a group is the sum of its purges and the destination's.
        """
        moved = self._catalogue.moved(destination, None)
        if group is not None:
            moved += self._catalogue.moved(destination, group)
        return range(moved, self._destinations.purges(destination, group))


def _moved(way: Binding, queue: str) -> list[Step]:
    """Return what leads the messages of a binding to another queue."""
    unbound = step(way)
    return [
        Step(unbound.method.replace("bind", "unbind"), unbound.arguments),
        step(Binding(way.source, way.key, queue, to_exchange=False)),
    ]


_RELEASED: Final = 2.0
"""Seconds in which the broker notices that this bridge has closed its consumers, and has their messages again: a purge
leaves what is unacknowledged. Other bridges keep theirs."""
_LOOK: Final = 0.02


class Deletion:
    """Changes the exchanges, queues and streams of destinations. Each change can be repeated."""

    def __init__(self, own: Own, declaring: Link, catalogue: Catalogue, destinations: Destinations) -> None:
        self._own = own
        self._delayed = DelayPurge(own, declaring, catalogue, destinations)
        self._link = declaring
        self._catalogue = catalogue
        self._destinations = destinations

    async def purge(self, destination: str, group: str | None) -> None:
        """Empty the queues of one group, or those of all groups and the log: a stream is deleted and made anew."""
        partitions = await self._partitions(destination, group)
        if group is not None and not self._catalogue.group(destination, group).ready:
            raise BackendUnavailable(f"{group}: the group is being set up. Pull from it, then repeat.")
        try:
            await self._delayed.purge(destination, group, partitions)
            for each in self._catalogue.groups(destination) if group is None else (group,):
                await self._purge_group(destination, each, partitions)
            if group is None and (log := self._destinations.log(destination)):
                await self._play(destination, [*deleted([names.log(destination)]), *log])
        except (BackendUnavailable, BackendFull) as error:
            raise _unknown(error) from error

    async def delete(self, destination: str, group: str | None) -> None:
        """Delete the queues of one group, or everything of a destination that is the bridge's own."""
        partitions = await self._partitions(destination, group)
        groups = self._catalogue.groups(destination) if group is None else (group,)
        queues = [queue for each in groups for queue in _queues(destination, each, partitions)]
        steps = [] if group is not None else self._shared(destination)
        try:
            await self._play(destination, [*steps, *deleted(queues)])
            await self._delayed.purge(destination, group, partitions)
            await self._catalogue.delete(destination, group)
        except (BackendUnavailable, BackendFull) as error:
            raise _unknown(error) from error

    async def _partitions(self, destination: str, group: str | None) -> int:
        """Return the number of partitions. Raises `DestinationUnknown`, `Refused`, `BackendUnavailable`."""
        existing = self._destinations.existing(destination)
        if existing is not None and existing.queue is not None:
            raise Refused(f"{existing.queue}: the queue is not the bridge's own. Use RabbitMQ's tools.")
        try:
            await self._catalogue.catch_up()
        except BackendFull as error:
            raise BackendUnavailable(error.detail) from error
        layout = self._catalogue.layout(destination) if existing is None else Layout(1, 0)
        if layout is None:
            raise DestinationUnknown(f"There is no destination {destination}.")
        if group is not None and group not in self._catalogue.groups(destination):
            raise DestinationUnknown(f"There is no group {group} of {destination}.")
        return layout.partitions

    def _shared(self, destination: str) -> list[Step]:
        """Return what removes everything that its groups share: exchanges first, so that nothing more comes in."""
        queues = deleted([names.log(destination)])
        if self._destinations.existing(destination) is not None:
            return queues
        exchanges = (destination, names.parts(destination), names.rest(destination))
        return [
            *(Step("exchange_delete", {"exchange": exchange}) for exchange in exchanges),
            *queues,
            *deleted([self._own.relay(destination, None)]),
        ]

    async def _purge_group(self, destination: str, group: str, partitions: int) -> None:
        if self._catalogue.group(destination, group).history:
            await self._catalogue.set_group(destination, group, ())  # first: see `Partition._drained`
        if self._catalogue.group(destination, group).ready:
            # all: a purge that was broken off may have left some that the catalogue no longer names
            await self._play(group, deleted([names.history(destination, group, each) for each in range(partitions)]))
        until = monotonic() + _RELEASED
        for partition in range(partitions):
            await self._purge_queue(names.queue(destination, group, partition), until)

    async def _purge_queue(self, queue: str, until: float) -> None:
        channel = await self._link.channel()
        try:
            while (await channel.ask(queue, "queue_declare", queue=queue, passive=True)).consumer_count:
                if monotonic() > until:
                    break
                await asyncio.sleep(_LOOK)
            await channel.ask(queue, "queue_purge", queue=queue)
        except DestinationUnknown:
            return  # already deleted: empty when it is made anew
        finally:
            await channel.close()

    async def _play(self, what: str, steps: list[Step]) -> None:
        channel = await self._link.channel()
        try:
            await play(channel, what, steps)
        finally:
            await channel.close()


def _queues(destination: str, group: str, partitions: int) -> Iterable[str]:
    for partition in range(partitions):
        for name in (names.queue, names.history, names.attempts):
            yield name(destination, group, partition)


def _unknown(error: BackendUnavailable | BackendFull) -> OutcomeUnknown:
    return OutcomeUnknown(f"{error.detail} Some of it may have been done: repeat it.")
