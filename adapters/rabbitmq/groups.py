"""Where a group reads: its queues, made when any bridge first uses it, with what the log held before.

The book says which groups are ready. One that is not is set up by one bridge, which has an exclusive queue meanwhile;
the others wait for the book. That queue, all declarations and all copies are on the publishing connection: whoever
loses the lock can write no more. A set-up that was begun and not finished is begun anew, from nothing: nobody has
consumed from its queues.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from pika.exceptions import ChannelClosedByBroker

from adapters.rabbitmq import names, topology
from adapters.rabbitmq.backfill import Backfill, Late
from adapters.rabbitmq.book import Book
from adapters.rabbitmq.channel import Channel
from adapters.rabbitmq.destinations import Destinations
from adapters.rabbitmq.link import Link
from adapters.rabbitmq.outcomes import RESOURCE_LOCKED
from adapters.rabbitmq.publisher import Publisher
from adapters.rabbitmq.record import Source
from adapters.rabbitmq.topology import Step, deleted, play
from bridge.errors import BackendFull, BackendUnavailable, BridgeError, DestinationUnknown, OutcomeUnknown

_LOOK: Final = 0.5
"""Seconds between attempts to get the lock of a set-up that another bridge has: it may have died."""

_Pair = tuple[str, str]


class Groups:
    """Many who ask for the same group share one set-up."""

    def __init__(
        self, publishing: Link, consuming: Link, publisher: Publisher, book: Book, destinations: Destinations
    ) -> None:
        self._publishing = publishing
        self._consuming = consuming
        self._publisher = publisher
        self._book = book
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
            asking.add_done_callback(lambda task: self._asked(pair, task))
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
            if self._book.group(*pair).ready:
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
        channel = await self._consuming.channel()
        try:
            await play(
                channel, names.group(*pair), [*self._queues(pair, partitions), *self._bindings(pair, partitions)]
            )
        finally:
            await channel.close()

    async def _have_set_up(self, pair: _Pair, partitions: int, *, latest: bool) -> None:
        """Set the group up, or wait until another bridge has."""
        while True:
            lock = await self._lock(names.setup(*pair))
            if lock is None:
                await self._book.wait_ready(*pair, _LOOK)
            else:
                try:
                    await self._book.catch_up()
                    if not self._book.group(*pair).ready:
                        await self._set_up(lock, pair, partitions, latest=latest)
                finally:
                    await lock.close()
            if self._book.group(*pair).ready:
                return

    async def _lock(self, queue: str) -> Channel | None:
        """Return a channel that nobody else has; None: another bridge has it.

        The queue goes with its consumer, and that goes with the channel.
        """
        channel = await self._publishing.channel()
        try:
            await channel.ask(queue, "queue_declare", queue=queue, exclusive=True, auto_delete=True)
            await channel.ask(queue, "basic_consume", queue=queue, on_message_callback=_never, auto_ack=True)
        except BridgeError:
            reason = channel.ended.result() if channel.ended.done() else None
            if isinstance(reason, ChannelClosedByBroker) and reason.reply_code == RESOURCE_LOCKED:
                return None
            await channel.close()
            raise
        except asyncio.CancelledError:
            await channel.close()
            raise
        return channel

    async def _set_up(self, lock: Channel, pair: _Pair, partitions: int, *, latest: bool) -> None:
        """Set the group up: alone, and not for the second time."""
        queues, bindings = self._queues(pair, partitions), self._bindings(pair, partitions)
        own = [names.queue(*pair, partition) for partition in range(partitions)]
        histories = [names.history(*pair, partition) for partition in range(partitions)]
        there: list[int] = []
        if self._book.group(*pair).begun:
            await play(lock, names.group(*pair), deleted([*own, *histories]))
        elif await self._there(own[:1]):  # bridges of another prefix have it, or the book was lost
            await play(lock, names.group(*pair), [*queues, *bindings])
            await self._book.set_group(*pair, await self._there(histories))
            return
        await self._book.begin(*pair)
        await play(lock, names.group(*pair), queues)
        if latest or not self._destinations.log_bytes(pair[0]):
            await play(lock, names.group(*pair), bindings)
        else:
            backfill = Backfill(lock, self._consuming, self._publisher, Late(*pair, partitions))
            there = await backfill.run(bindings)
        if not lock.open:  # somebody else may be at it by now; what is sent from here on goes over the same connection
            raise BackendUnavailable(f"{names.group(*pair)}: the connection was lost while the group was set up.")
        await self._book.set_group(*pair, there)

    async def _history(self, pair: _Pair) -> Sequence[int]:
        """Return which partitions still have a history, and note it when there are fewer."""
        noted = self._book.group(*pair).history
        if not noted:
            return noted
        there = await self._there([names.history(*pair, partition) for partition in noted])
        left = [noted[at] for at in there]
        if len(left) < len(noted):
            await self._book.set_group(*pair, left)
        return left

    async def _there(self, queues: Sequence[str]) -> list[int]:
        """Return the places of those that are there."""
        there = []
        for at, queue in enumerate(queues):
            channel = await self._consuming.channel()
            try:
                if await channel.has(queue):
                    there.append(at)
            finally:
                await channel.close()
        return there

    def _queues(self, pair: _Pair, partitions: int) -> list[Step]:
        return [*self._destinations.declarations(pair[0]), *topology.queues(*pair, partitions)]

    def _bindings(self, pair: _Pair, partitions: int) -> list[Step]:
        existing = self._destinations.existing(pair[0])
        if existing is None:
            return topology.bindings(*pair, partitions)
        return topology.bound_to(*pair, topology.tap(existing))

    def _asked(self, pair: _Pair, task: asyncio.Task[list[Source]]) -> None:
        del self._asking[pair]
        if not task.cancelled():
            error = task.exception()
            if error is not None and not isinstance(error, BridgeError):
                raise error


def _never(_channel: object, _method: object, _properties: object, _body: bytes) -> None:
    """Nobody publishes to a lock."""
