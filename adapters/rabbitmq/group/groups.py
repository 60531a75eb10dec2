"""The queues of groups: declared by the first bridge that uses a group, with a copy of the log.

The catalogue says which groups are ready. A group that is not is set up by one bridge, which holds an exclusive
queue as a lock; the others wait for the catalogue. The lock, all declarations and all copies are on the declaring
connection: a bridge that loses the lock cannot write any more. An unfinished set-up begins again with empty queues,
because no bridge has consumed them yet.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from adapters.amqp.channel import Channel
from adapters.amqp.link import Link
from adapters.amqp.lock import lock
from adapters.rabbitmq.group.backfill import Backfill, NewGroup
from adapters.rabbitmq.publish.publisher import Publisher
from adapters.rabbitmq.topology import declarations, names
from adapters.rabbitmq.topology.catalogue import Catalogue
from adapters.rabbitmq.topology.declarations import Request, delete_queues, perform, perform_on
from adapters.rabbitmq.topology.destinations import Destinations, SharedCalls
from adapters.rabbitmq.topology.names import Source
from bridge.errors import BackendFull, BackendUnavailable, DestinationUnknown, OutcomeUnknown

_RETRY: Final = 0.5
"""Seconds between attempts to get the lock of a set-up that another bridge holds: that bridge may have ended."""

_Pair = tuple[str, str]


class Groups:
    """Declares the queues of groups."""

    def __init__(self, declaring: Link, copying: Publisher, catalogue: Catalogue, destinations: Destinations) -> None:
        """`copying` publishes on the connection `declaring`."""
        self._link = declaring
        self._copying = copying
        self._catalogue = catalogue
        self._destinations = destinations
        self._calls: SharedCalls[_Pair, list[Source]] = SharedCalls()

    async def sources(self, destination: str, group: str, *, latest: bool) -> Sequence[Source]:
        """Return the queues that the group reads, one for each partition. Declares everything that is missing.

        With `latest` a new group gets no history. Raises `DestinationUnknown`, `DestinationInvalid`, `Refused` or
        `BackendUnavailable`.
        """
        pair = destination, group
        return await self._calls.run(pair, partial(self._sources, pair, latest=latest))

    async def close(self) -> None:
        """Cancel what is under way."""
        await self._calls.close()

    async def _sources(self, pair: _Pair, *, latest: bool) -> list[Source]:
        partitions = await self._destinations.partitions(pair[0])
        existing = self._destinations.existing(pair[0])
        if existing is not None and existing.queue is not None:
            return [Source(0, existing.queue, shared=True)]
        queues = [*self._destinations.declarations(pair[0]), *declarations.group_queues(*pair, partitions)]
        bindings = declarations.group_bindings(*pair, partitions, existing)
        try:
            if self._catalogue.contents.group(*pair).ready:  # what was deleted meanwhile is declared again, and empty
                await perform_on(self._link, names.group(*pair), [*queues, *bindings])
            else:
                await self._have_set_up(NewGroup(*pair, partitions), queues, bindings, latest=latest)
        except DestinationUnknown:
            self._destinations.forget(pair[0])
            raise
        except (BackendFull, OutcomeUnknown) as error:  # about entries and copies that the bridge writes for itself
            raise BackendUnavailable(error.detail) from error
        histories = await self._histories(pair)
        return [
            Source(number, names.queue(*pair, number), names.history(*pair, number) if number in histories else None)
            for number in range(partitions)
        ]

    async def _have_set_up(
        self, new: NewGroup, queues: list[Request], bindings: list[Request], *, latest: bool
    ) -> None:
        """Set the group up, or wait until another bridge has."""
        pair = new.destination, new.group
        while not self._catalogue.contents.group(*pair).ready:
            locked = await lock(self._link, names.setup(*pair))
            if locked is None:
                await self._catalogue.wait_ready(*pair, _RETRY)
                continue
            try:
                await self._catalogue.catch_up()
                if not self._catalogue.contents.group(*pair).ready:
                    history = await self._set_up(locked, new, queues, bindings, latest=latest)
                    await self._catalogue.enter("ready", *pair, history)
            finally:
                await locked.close()

    async def _set_up(
        self, locked: Channel, new: NewGroup, queues: list[Request], bindings: list[Request], *, latest: bool
    ) -> list[int]:
        """Declare the queues of a new group, and fill them; return the partitions that have a history."""
        pair, subject = (new.destination, new.group), names.group(new.destination, new.group)
        own = [names.queue(*pair, partition) for partition in range(new.partitions)]
        histories = [names.history(*pair, partition) for partition in range(new.partitions)]
        if self._catalogue.contents.group(*pair).begun:
            await perform(locked, subject, delete_queues([*own, *histories]))
        elif await self._existing(own[:1]):  # bridges of another prefix have made it, or the catalogue was lost
            await perform(locked, subject, [*queues, *bindings])
            return await self._existing(histories)
        await self._catalogue.enter("begun", *pair)
        await perform(locked, subject, queues)
        if latest or not self._destinations.log_bytes(new.destination):
            await perform(locked, subject, bindings)
            history = []
        else:
            history = await Backfill(locked, self._link, self._copying, new).run(bindings)
        if not locked.open:  # another bridge may have the lock now
            raise BackendUnavailable(f"{subject}: the connection was lost while the group was set up.")
        return history

    async def _histories(self, pair: _Pair) -> Sequence[int]:
        """Return the partitions that still have a history; enter it in the catalogue if there are fewer."""
        entered = self._catalogue.contents.group(*pair).history
        if not entered:
            return entered
        left = [entered[at] for at in await self._existing([names.history(*pair, number) for number in entered])]
        if len(left) < len(entered):
            await self._catalogue.enter("ready", *pair, left)
        return left

    async def _existing(self, queues: Sequence[str]) -> list[int]:
        """Return the indexes of the queues that exist."""
        existing = []
        for at, queue in enumerate(queues):
            async with self._link.temporary_channel() as channel:
                if await channel.has(queue):
                    existing.append(at)
        return existing
