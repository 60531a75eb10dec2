"""Where a group reads: its queues, made when any bridge first uses it, with what the log held before.

The catalogue says which groups are ready. One that is not is set up by one bridge, which has an exclusive queue
meanwhile; the others wait for the catalogue. That queue, all declarations and all copies are on the declaring
connection: a bridge that loses the lock can write no more. A set-up that was begun and not finished is begun anew, from
nothing: no bridge has consumed from its queues.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from adapters.amqp.channel import Channel
from adapters.amqp.link import Link
from adapters.amqp.lock import lock
from adapters.rabbitmq.group.backfill import Backfill, Late
from adapters.rabbitmq.publish.publisher import Publisher
from adapters.rabbitmq.topology import declarations, names
from adapters.rabbitmq.topology.catalogue import Catalogue
from adapters.rabbitmq.topology.declarations import Step, deleted, play
from adapters.rabbitmq.topology.destinations import Destinations
from adapters.rabbitmq.topology.names import Source
from bridge.errors import BackendFull, BackendUnavailable, BridgeError, DestinationUnknown, OutcomeUnknown

_LOOK: Final = 0.5
"""Seconds between attempts to get the lock of a set-up that another bridge has: it may have ended."""

_Pair = tuple[str, str]


class Groups:
    """Many who ask for the same group share one set-up."""

    def __init__(self, declaring: Link, copying: Publisher, catalogue: Catalogue, destinations: Destinations) -> None:
        """`copying` publishes on the same connection."""
        self._link = declaring
        self._copying = copying
        self._catalogue = catalogue
        self._destinations = destinations
        self._asking: dict[_Pair, asyncio.Task[list[Source]]] = {}

    async def sources(self, destination: str, group: str, *, latest: bool) -> Sequence[Source]:
        """Return where the group reads each partition. Whatever is missing of it is made, or made again.

        With `latest` a new group gets no history. Raises `DestinationUnknown`, `DestinationInvalid`, `Refused` or
        `BackendUnavailable`.
        """
        pair = destination, group
        asking = self._asking.get(pair)
        if asking is None:
            asking = self._asking[pair] = asyncio.create_task(self._ask(pair, latest=latest))
            asking.add_done_callback(lambda task: self._answered(pair, task))
        return await asyncio.shield(asking)

    async def close(self) -> None:
        """Stop asking."""
        for task in list(self._asking.values()):
            task.cancel()
        if self._asking:
            await asyncio.wait(self._asking.values())

    async def _ask(self, pair: _Pair, *, latest: bool) -> list[Source]:
        partitions = await self._destinations.partitions(pair[0])
        existing = self._destinations.existing(pair[0])
        if existing is not None and existing.queue is not None:
            return [Source(0, existing.queue, shared=True)]
        try:
            if self._catalogue.group(*pair).ready:
                await self._declare(pair, partitions)
            else:
                await self._have_set_up(pair, partitions, latest=latest)
        except DestinationUnknown:
            self._destinations.forget(pair[0])
            raise
        except (BackendFull, OutcomeUnknown) as error:  # of what the bridge has written for itself
            raise BackendUnavailable(error.detail) from error
        history = await self._history(pair)
        return [
            Source(
                partition,
                names.queue(*pair, partition),
                names.history(*pair, partition) if partition in history else None,
            )
            for partition in range(partitions)
        ]

    async def _declare(self, pair: _Pair, partitions: int) -> None:
        """Declare everything of a group that is ready: what was deleted meanwhile is empty then, but there."""
        channel = await self._link.channel()
        try:
            await play(
                channel, names.group(*pair), [*self._queues(pair, partitions), *self._bindings(pair, partitions)]
            )
        finally:
            await channel.close()

    async def _have_set_up(self, pair: _Pair, partitions: int, *, latest: bool) -> None:
        """Set the group up, or wait until another bridge has."""
        while True:
            held = await lock(self._link, names.setup(*pair))
            if held is None:
                await self._catalogue.wait_ready(*pair, _LOOK)
            else:
                try:
                    await self._catalogue.catch_up()
                    if not self._catalogue.group(*pair).ready:
                        await self._set_up(held, pair, partitions, latest=latest)
                finally:
                    await held.close()
            if self._catalogue.group(*pair).ready:
                return

    async def _set_up(self, lock: Channel, pair: _Pair, partitions: int, *, latest: bool) -> None:
        """Set the group up: alone, and not for the second time."""
        queues, bindings = self._queues(pair, partitions), self._bindings(pair, partitions)
        own = [names.queue(*pair, partition) for partition in range(partitions)]
        histories = [names.history(*pair, partition) for partition in range(partitions)]
        there: list[int] = []
        if self._catalogue.group(*pair).begun:
            await play(lock, names.group(*pair), deleted([*own, *histories]))
        elif await self._there(own[:1]):  # bridges of another prefix have it, or the catalogue was lost
            await play(lock, names.group(*pair), [*queues, *bindings])
            await self._catalogue.set_group(*pair, await self._there(histories))
            return
        await self._catalogue.begin(*pair)
        await play(lock, names.group(*pair), queues)
        if latest or not self._destinations.log_bytes(pair[0]):
            await play(lock, names.group(*pair), bindings)
        else:
            backfill = Backfill(lock, self._link, self._copying, Late(*pair, partitions))
            there = await backfill.run(bindings)
        if not lock.open:  # another bridge may be at it by now; what is sent from here on goes over the same connection
            raise BackendUnavailable(f"{names.group(*pair)}: the connection was lost while the group was set up.")
        await self._catalogue.set_group(*pair, there)

    async def _history(self, pair: _Pair) -> Sequence[int]:
        """Return which partitions still have a history, and note it when there are fewer."""
        noted = self._catalogue.group(*pair).history
        if not noted:
            return noted
        there = await self._there([names.history(*pair, partition) for partition in noted])
        left = [noted[at] for at in there]
        if len(left) < len(noted):
            await self._catalogue.set_group(*pair, left)
        return left

    async def _there(self, queues: Sequence[str]) -> list[int]:
        """Return the places of those that are there."""
        there = []
        for at, queue in enumerate(queues):
            channel = await self._link.channel()
            try:
                if await channel.has(queue):
                    there.append(at)
            finally:
                await channel.close()
        return there

    def _queues(self, pair: _Pair, partitions: int) -> list[Step]:
        return [*self._destinations.declarations(pair[0]), *declarations.queues(*pair, partitions)]

    def _bindings(self, pair: _Pair, partitions: int) -> list[Step]:
        existing = self._destinations.existing(pair[0])
        if existing is None:
            return declarations.bindings(*pair, partitions)
        return declarations.bound_to(*pair, declarations.tap(existing))

    def _answered(self, pair: _Pair, task: asyncio.Task[list[Source]]) -> None:
        del self._asking[pair]
        if not task.cancelled():
            error = task.exception()
            if error is not None and not isinstance(error, BridgeError):
                raise error
