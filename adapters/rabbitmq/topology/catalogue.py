"""The catalogue: one shared log, which says what destinations and groups there are, and holds the bridges' notes.

All bridges read the same entries in the same order, so they have the same state: the partitions of a destination, and
whether a group is set up.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from adapters.amqp.link import Link
from adapters.amqp.messages import Arrival
from adapters.rabbitmq.options import Options
from adapters.rabbitmq.publish.publisher import Publisher
from adapters.rabbitmq.topology import records
from adapters.rabbitmq.topology.declarations import Layout, stream
from adapters.rabbitmq.topology.names import Own
from adapters.rabbitmq.topology.records import Contents, Group
from adapters.rabbitmq.topology.shared_log import READ, Listener, SharedLog
from bridge.errors import BackendFull, BackendUnavailable

_log = logging.getLogger("bridge.rabbitmq")

_NOT_READ: Final = "The bridge's catalogue stream has not been read yet."
_BYTES: Final = 8 << 20
"""Of the stream, which then drops its oldest entries."""
_WHOLE_AFTER: Final = 1 << 20
"""Bytes of entries between two `whole` ones. With the largest, two of them are always among what the stream keeps."""
_WHOLE_MAX: Final = 2 << 20
"""Bytes of a `whole` entry, above which no destination and no group is added: about 25,000 groups."""


class Catalogue:
    """What is written there, as far as it has been read, and who writes into it.

    A bridge with an `instance` has its own notes; those without share those of the prefix. When the stream is deleted
    it is made anew, and each bridge writes what it has. The stream keeps about 8 MiB: after each MiB of entries the
    bridge that has written the last one adds a `whole` one.
    """

    def __init__(self, options: Options, consuming: Link, publisher: Publisher) -> None:
        self._instance = options.instance
        self._contents = Contents(options.instance)
        self._started = False
        self._news = asyncio.Event()
        declaration = stream(Own(options.prefix).catalogue, _BYTES)
        self._log = SharedLog(declaration, consuming, publisher, Listener(self._read, self._replaced, self._dropped))
        self.on_deleted: Callable[[str], None] = lambda _destination: None
        """Called with the name of a destination that a bridge has deleted."""

    async def start(self) -> None:
        """Read all of it. Raises `Refused` or `BackendUnavailable`; may be called again then."""
        if not self._started:
            await self._log.start()
            self._started = True

    async def close(self) -> None:
        """Read no more. Idempotent."""
        await self._log.close()

    def layout(self, destination: str) -> Layout | None:
        """Return what the catalogue says of a destination."""
        return self._contents.destinations.get(destination)

    async def claim(self, destination: str, layout: Layout) -> Layout:
        """Enter a destination, unless it is there; return what counts for all.

        Raises `BackendUnavailable`, `BackendFull` or `Refused`.
        """
        if destination not in self._contents.destinations:
            self._check_space()
            await self._log.enter(records.destination(destination, layout))
        claimed = self._contents.destinations.get(destination)
        if claimed is None:
            raise BackendUnavailable(f"{destination}: the bridge's catalogue stream has just been deleted.")
        return claimed

    def group(self, destination: str, group: str) -> Group:
        """Return how far the set-up of a group is."""
        return self._contents.groups.get((destination, group), Group())

    def groups(self, destination: str) -> list[str]:
        """Return the groups of a destination, also those that are not ready."""
        return [group for name, group in self._contents.groups if name == destination]

    async def delete(self, destination: str, group: str | None) -> None:
        """Enter that a destination with its groups, or one group, is deleted. Raises as `claim`."""
        await self._log.enter(records.deleted(destination, group))

    def purges(self, destination: str, group: str | None) -> int:
        """Return how often a destination or a group was purged or deleted while messages could be delayed."""
        return self._contents.purges.get((destination, group), 0)

    async def purge(self, destination: str, group: str | None) -> None:
        """Enter that a destination, or one group, is purged once more. Raises as `claim`."""
        await self._log.enter(records.purged(destination, group, self.purges(destination, group) + 1))

    def moved(self, destination: str, group: str | None) -> int:
        """Return which of these purges was the last that was not broken off."""
        return self._contents.moved.get((destination, group), 0)

    async def finish_purge(self, destination: str, group: str | None, count: int) -> None:
        """Enter that the `count`-th purge was not broken off. Raises as `claim`."""
        await self._log.enter(records.moved(destination, group, count))

    async def begin(self, destination: str, group: str) -> None:
        """Enter that the set-up of a group begins. Raises as `claim`."""
        self._check_space()
        await self._log.enter(records.begun(destination, group))

    async def set_group(self, destination: str, group: str, history: Sequence[int]) -> None:
        """Enter that a group is ready, and which partitions have a queue with history. Raises as `claim`."""
        await self._log.enter(records.ready(destination, group, history))

    async def drained(self, destination: str, group: str, partition: int) -> None:
        """Enter that the history of a partition is read. Raises as `claim`."""
        await self._log.enter(records.drained(destination, group, partition))

    async def put(self, key: str, value: str | None) -> None:
        """See `MetadataStore`. Raises also `Refused`, where the bridge's user may not write."""
        if not self._started:
            raise BackendUnavailable(_NOT_READ)
        await self._log.write(records.note(self._instance, key, value))

    def all(self) -> Mapping[str, str]:
        """See `MetadataStore`."""
        if not self._started:
            raise BackendUnavailable(_NOT_READ)
        return self._contents.notes

    async def catch_up(self) -> None:
        """Return when everything has been read that was written before. Raises as `claim`."""
        await self._log.enter(READ)

    async def wait_ready(self, destination: str, group: str, patience: float) -> None:
        """Wait until a group is ready, at most so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while not self.group(destination, group).ready:
                    self._news.clear()
                    await self._news.wait()

    @property
    def transactions(self) -> bool:
        """Whether any bridge has used transactions: then there is a stream of them."""
        return self._contents.transactions

    async def add_transactions(self) -> None:
        """Enter that the stream of transactions has been declared. Raises as `claim`."""
        await self._log.enter(records.TRANSACTIONS)

    def _check_space(self) -> None:
        if self._contents.size > _WHOLE_MAX:
            raise BackendFull(
                f"{self._log.name}: the bridges' catalogue is full. Delete destinations and groups that nobody uses."
            )

    def _read(self, name: str, offset: int, arrival: Arrival) -> bool:
        contents = self._contents
        if not contents.read(offset, arrival.body):
            raise ValueError("it is none of the catalogue's")
        deleted, contents.deleted = contents.deleted, []
        for destination in deleted:
            self.on_deleted(destination)
        self._news.set()
        if self._log.waits_for(name):
            if not contents.complete:  # behind it was all that could have been read
                _log.warning("the beginning of the bridges' catalogue is missing", extra={"queue": self._log.name})
                contents.give_up()
            if contents.grown > _WHOLE_AFTER:
                self._log.append(contents.snapshot(offset))
        return True

    def _dropped(self) -> None:
        self._contents = Contents(self._instance)

    def _replaced(self) -> None:
        """Write the contents into the new catalogue."""
        known = self._contents
        self._contents = known.anew()
        for record in known.whole():
            self._log.append(record)
