"""Deletes and purges destinations and groups for an operator. See `Deletable` for the errors.

A deletion is entered in the catalogue last: until then it can be repeated. Other bridges forget the destination when
they read the entry. A bridge that has one of its groups open declares that group again.
"""

import asyncio
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Final

from adapters.amqp.link import Link
from adapters.rabbitmq.delay import levels
from adapters.rabbitmq.topology import names
from adapters.rabbitmq.topology.catalogue import Catalogue
from adapters.rabbitmq.topology.declarations import (
    Layout,
    Request,
    bind_queue,
    delete_queues,
    perform,
    perform_on,
)
from adapters.rabbitmq.topology.destinations import Destinations
from adapters.rabbitmq.topology.names import Own
from bridge.errors import BackendFull, BackendUnavailable, DestinationUnknown, OutcomeUnknown, Refused

_READ: Final = 1.0
"""Seconds in which the other bridges read that the destination is purged; they take some milliseconds."""
_RELEASED: Final = 2.0
"""Seconds in which the broker notices that this bridge has closed its consumers, and has their messages again: a purge
leaves unacknowledged messages. Other bridges keep theirs."""
_POLL: Final = 0.02


class Deletion:
    """Changes the exchanges, queues and streams of destinations. Each change can be repeated."""

    def __init__(self, own: Own, declaring: Link, catalogue: Catalogue, destinations: Destinations) -> None:
        self._own = own
        self._link = declaring
        self._catalogue = catalogue
        self._destinations = destinations

    async def purge(self, destination: str, group: str | None) -> None:
        """Empty the queues of one group, or those of all groups and the log: its stream is deleted and declared."""
        partitions = await self._partitions(destination, group)
        if group is not None and not self._catalogue.contents.group(destination, group).ready:
            raise BackendUnavailable(f"{group}: the group is being set up. Pull from it, then repeat.")
        try:
            await self._purge_delayed(destination, group, partitions)
            for each in self._groups(destination, group):
                await self._purge_group(destination, each, partitions)
            if group is None and (log := self._destinations.log(destination)):
                await perform_on(self._link, destination, [*delete_queues([names.log(destination)]), *log])
        except (BackendUnavailable, BackendFull) as error:
            raise _unknown(error) from error

    async def delete(self, destination: str, group: str | None) -> None:
        """Delete the queues of one group, or everything of a destination that the bridge owns."""
        partitions = await self._partitions(destination, group)
        queues = [
            name(destination, each, partition)
            for each in self._groups(destination, group)
            for partition in range(partitions)
            for name in (names.queue, names.history, names.attempts)
        ]
        queues += [names.returned(destination, each) for each in self._groups(destination, group)]
        requests = [] if group is not None else self._delete_shared(destination)
        try:
            await perform_on(self._link, destination, [*requests, *delete_queues(queues)])
            await self._purge_delayed(destination, group, partitions)
            await self._catalogue.enter("deleted", destination, *([] if group is None else [group]))
        except (BackendUnavailable, BackendFull) as error:
            raise _unknown(error) from error

    def _groups(self, destination: str, group: str | None) -> list[str]:
        return self._catalogue.contents.groups_of(destination) if group is None else [group]

    async def _partitions(self, destination: str, group: str | None) -> int:
        """Return the number of partitions. Raises `DestinationUnknown`, `Refused`, `BackendUnavailable`."""
        existing = self._destinations.existing.get(destination)
        if existing is not None and existing.queue is not None:
            raise Refused(f"{existing.queue}: the queue is not the bridge's own. Use RabbitMQ's tools.")
        try:
            await self._catalogue.catch_up()
        except BackendFull as error:
            raise BackendUnavailable(error.detail) from error
        contents = self._catalogue.contents
        layout = contents.destinations.get(destination) if existing is None else Layout(1, 0)
        if layout is None:
            raise DestinationUnknown(f"There is no destination {destination}.")
        if group is not None and group not in contents.groups_of(destination):
            raise DestinationUnknown(f"There is no group {group} of {destination}.")
        return layout.partitions

    def _delete_shared(self, destination: str) -> list[Request]:
        """Return the deletions of what all groups share: exchanges first, so that no message arrives any more."""
        log = delete_queues([names.log(destination)])
        if destination in self._destinations.existing:
            return log
        exchanges = (destination, names.parts(destination), names.rest(destination))
        return [
            *(Request("exchange_delete", {"exchange": exchange}) for exchange in exchanges),
            *log,
            *delete_queues([self._own.relay(destination, None)]),
        ]

    async def _purge_group(self, destination: str, group: str, partitions: int) -> None:
        if self._catalogue.contents.group(destination, group).history:
            await self._catalogue.enter("ready", destination, group, [])  # first: see `Partition._enter_drained`
        if self._catalogue.contents.group(destination, group).ready:
            # of all partitions: an unfinished purge may have left some that the catalogue no longer names
            histories = [names.history(destination, group, each) for each in range(partitions)]
            await perform_on(self._link, group, delete_queues(histories))
        until = monotonic() + _RELEASED
        await self._purge_queue(names.returned(destination, group), until)
        for partition in range(partitions):
            await self._purge_queue(names.queue(destination, group, partition), until)

    async def _purge_queue(self, queue: str, until: float) -> None:
        async with self._link.temporary_channel() as channel:
            try:
                while (await channel.ask(queue, "queue_declare", queue=queue, passive=True)).consumer_count:
                    if monotonic() > until:
                        break
                    await asyncio.sleep(_POLL)
                await channel.ask(queue, "queue_purge", queue=queue)
            except DestinationUnknown:
                return  # it was deleted: it will be declared empty

    # Delayed and deferred messages wait in queues that all destinations share. Their routing key has the number of
    # purges that their bridge had read in the catalogue. After a purge, the bindings of `deliver` route messages with
    # an earlier number to a queue that drops them. The purge waits until all bridges have read it.

    async def _purge_delayed(self, destination: str, group: str | None, partitions: int) -> None:
        """Have messages dropped when they are due that wait for a destination and its groups, or for one group."""
        async with self._link.temporary_channel() as channel:
            if not await channel.has(self._own.lost):  # no message was ever delayed
                return
            count = self._catalogue.contents.purges.get((destination, group), 0) + 1
            await self._catalogue.enter("purged", destination, group, count)
            await asyncio.sleep(_READ)
            bindings = [] if group is not None else self._destination_bindings(destination)
            for each in self._groups(destination, group):
                bindings += self._group_bindings(destination, each, partitions)
            dropping = levels.dropping(self._own)
            moved = [request for each in bindings for request in _move(each, self._own.dropped)]
            await perform(channel, self._own.deliver, [dropping, *moved])
            await self._catalogue.enter("moved", destination, group, count)

    def _destination_bindings(self, destination: str) -> list[Request]:
        bindings = []
        for number in self._earlier(destination, None):
            if (existing := self._destinations.existing.get(destination)) is None:
                bindings.append(levels.deliver_to_exchange(self._own, destination, number))
                relay = self._own.relay(destination, None)
            else:
                relay = self._own.relay(existing.exchange or "", existing.routing_key or "", destination)
            bindings.append(levels.deliver_to_queue(self._own, relay, number, partitioned=True))
        return bindings

    def _group_bindings(self, destination: str, group: str, partitions: int) -> Iterator[Request]:
        for number in self._earlier(destination, group):
            for partition in range(partitions):
                yield levels.deliver_to_queue(self._own, names.queue(destination, group, partition), number)

    def _earlier(self, destination: str, group: str | None) -> Sequence[int]:
        """Return the numbers whose bindings may still lead to the destination or the group, also after broken purges.

        The number of a group is the sum of its purges and the destination's.
        """
        moved = self._catalogue.contents.moved
        first = moved.get((destination, None), 0) + (0 if group is None else moved.get((destination, group), 0))
        return range(first, self._destinations.purges(destination, group))


def _move(binding: Request, queue: str) -> list[Request]:
    """Return the requests that replace a binding by one to another queue."""
    source = binding.arguments.get("source") or binding.arguments["exchange"]
    return [
        Request(binding.method.replace("bind", "unbind"), binding.arguments),
        bind_queue(queue, source, binding.arguments["routing_key"]),
    ]


def _unknown(error: BackendUnavailable | BackendFull) -> OutcomeUnknown:
    return OutcomeUnknown(f"{error.detail} Some of it may have been done: repeat it.")
