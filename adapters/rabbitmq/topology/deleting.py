"""Deletes and purges destinations and groups for an operator. See `Deletable` for the errors.

The catalogue gets its entry last: until then everything is there to be deleted once more. Other bridges forget the
destination when they read the entry; a group that one of them has open is made anew by it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from time import monotonic
from typing import Final

from adapters.amqp.link import Link
from adapters.rabbitmq.topology import names
from adapters.rabbitmq.topology.catalogue import Catalogue
from adapters.rabbitmq.topology.declarations import Layout, Step, deleted, play
from adapters.rabbitmq.topology.destinations import Destinations
from adapters.rabbitmq.topology.names import Own
from bridge.errors import BackendFull, BackendUnavailable, DestinationUnknown, OutcomeUnknown, Refused

_RELEASED: Final = 2.0
"""Seconds in which the broker notices that this bridge has closed its consumers, and has their messages again: a purge
leaves what is unacknowledged. Other bridges keep theirs."""
_LOOK: Final = 0.02


class Deletion:
    """Changes the exchanges, queues and streams of destinations. Each change can be repeated."""

    def __init__(
        self,
        own: Own,
        declaring: Link,
        catalogue: Catalogue,
        destinations: Destinations,
        purge_delayed: Callable[[str, str | None, int], Awaitable[None]],
    ) -> None:
        """`purge_delayed` drops what waits for a destination or a group of so many partitions."""
        self._own = own
        self._purge_delayed = purge_delayed
        self._link = declaring
        self._catalogue = catalogue
        self._destinations = destinations

    async def purge(self, destination: str, group: str | None) -> None:
        """Empty the queues of one group, or those of all groups and the log: a stream is deleted and made anew."""
        partitions = await self._partitions(destination, group)
        if group is not None and not self._catalogue.group(destination, group).ready:
            raise BackendUnavailable(f"{group}: the group is being set up. Pull from it, then repeat.")
        try:
            await self._purge_delayed(destination, group, partitions)
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
            await self._purge_delayed(destination, group, partitions)
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
        for name in (names.queue, names.history, names.note):
            yield name(destination, group, partition)


def _unknown(error: BackendUnavailable | BackendFull) -> OutcomeUnknown:
    return OutcomeUnknown(f"{error.detail} Some of it may have been done: repeat it.")
