"""Drops delayed and deferred messages of a destination or a group that an operator purges or deletes.

They are spread over queues that all destinations share, so they go on until they are due. Their routing key has the
number of purges that their bridge had read of in the catalogue. After the next purge, messages with an earlier number
are led to a queue that keeps nothing. A bridge reads the catalogue all the time; the purge waits until all have.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from adapters.amqp.link import Link
from adapters.rabbitmq.delay import levels
from adapters.rabbitmq.delay.declarer import step
from adapters.rabbitmq.delay.levels import Binding
from adapters.rabbitmq.topology import names
from adapters.rabbitmq.topology.catalogue import Catalogue
from adapters.rabbitmq.topology.declarations import Step, play
from adapters.rabbitmq.topology.destinations import Destinations
from adapters.rabbitmq.topology.names import Own

_READ: Final = 1.0
"""Seconds until the other bridges have read that the destination is purged: they read it within some milliseconds."""


class DelayPurge:
    """Changes the bindings of the exchange at which delayed messages arrive when they are due. Can be repeated."""

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
