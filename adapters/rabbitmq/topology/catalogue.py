"""The catalogue: a stream with the destinations, the groups and the bridges' metadata.

All bridges of a prefix read the same entries in the same order, so they have the same state.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from adapters.amqp.channel import Channel
from adapters.amqp.link import Link
from adapters.amqp.messages import Arrival
from adapters.rabbitmq.options import Options
from adapters.rabbitmq.publish.publisher import Publisher
from adapters.rabbitmq.topology.declarations import Layout, stream
from adapters.rabbitmq.topology.names import Own
from adapters.rabbitmq.topology.records import GROWING, Contents, Kind, encode
from adapters.rabbitmq.topology.shared_log import SharedLog
from bridge.errors import BackendFull, BackendUnavailable

_log = logging.getLogger("bridge.rabbitmq")

_NOT_READ: Final = "The bridge's catalogue stream has not been read yet."
_BYTES: Final = 8 << 20
"""Size of the stream, which drops its oldest entries."""
_SNAPSHOT_AFTER: Final = 1 << 20
"""Bytes of entries between two snapshots. The stream always has two of the largest snapshots."""
_LOCK_RETRY: Final = 0.5
"""Seconds between attempts to get a lock that another bridge holds: that bridge may have ended."""
_SNAPSHOT_MAX: Final = 2 << 20
"""Bytes of a snapshot above which no destination and no group is added: about 25,000 groups."""


class Catalogue:
    """Reads and writes the catalogue of one prefix.

    Bridges with an `instance` have separate metadata; those without share theirs. The stream keeps about 8 MiB: after
    each MiB of entries, the bridge that has written the last one adds a snapshot.
    """

    def __init__(self, options: Options, consuming: Link, publisher: Publisher) -> None:
        self._instance = options.instance
        declaration = stream(Own(options.prefix).catalogue, _BYTES)
        self._log = SharedLog(declaration, consuming, publisher, lambda: Contents(options.instance), self._read)
        self.start, self.close = self._log.start, self._log.close
        self.on_deleted: Callable[[str], None] = lambda _destination: None
        """Called with the name of a destination that a bridge has deleted."""

    @property
    def contents(self) -> Contents:
        """The state, as far as it has been read."""
        return self._log.state

    async def enter(self, kind: Kind, *fields: object) -> None:
        """Append an entry (see `records`), and wait until it is read back; so is everything written before it.

        Raises `BackendUnavailable`, `BackendFull` or `Refused`.
        """
        if kind in GROWING and self.contents.exceeds(_SNAPSHOT_MAX):
            raise BackendFull(
                f"{self._log.name}: the bridges' catalogue is full. Delete destinations and groups that nobody uses."
            )
        await self._log.enter(encode(kind, *fields))

    async def claim(self, destination: str, layout: Layout) -> Layout:
        """Enter a destination if it is missing; return the layout that counts for all bridges. Raises as `enter`."""
        if destination not in self.contents.destinations:
            await self.enter("destination", destination, *layout)
        claimed = self.contents.destinations.get(destination)
        if claimed is None:
            raise BackendUnavailable(f"{destination}: the bridge's catalogue stream has just been deleted.")
        return claimed

    async def catch_up(self) -> None:
        """Return when everything has been read that was written before the call. Raises as `enter`."""
        await self.enter("read")

    async def put(self, key: str, value: str | None) -> None:
        """See `MetadataStore`. Raises also `Refused`, if the bridge's user may not write."""
        if not self._log.started:
            raise BackendUnavailable(_NOT_READ)
        await self._log.restored()
        await self._log.write(encode("note", self._instance, key, value))

    def all(self) -> Mapping[str, str]:
        """See `MetadataStore`."""
        if not self._log.started:
            raise BackendUnavailable(_NOT_READ)
        return self.contents.metadata

    async def once(
        self, link: Link, name: str, is_done: Callable[[], bool], do: Callable[[Channel], Awaitable[None]]
    ) -> None:
        """Do something that one bridge does for all, unless it is done: `do` gets the channel of a lock of this name.

        The others wait for the entry that `do` makes. Raises as `enter`, `Link.lock` and `do`.
        """
        while not is_done():
            locked = await link.lock(name)
            if locked is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOCK_RETRY):
                        await self._log.until(is_done)
                continue
            try:
                await self.catch_up()
                if not is_done():
                    await do(locked)
            finally:
                await locked.close()

    def _read(self, contents: Contents, name: str, offset: int, arrival: Arrival) -> bool:
        if not contents.read(offset, arrival.body):
            raise ValueError("it is not an entry of the catalogue")
        deleted, contents.deleted = contents.deleted, []
        for destination in deleted:
            self.on_deleted(destination)
        if self._log.waits_for(name):
            if not contents.complete:  # the end of the stream, and no snapshot before it
                _log.warning("the beginning of the bridges' catalogue is missing", extra={"queue": self._log.name})
                contents.accept_incomplete()
            if contents.bytes_since_snapshot > _SNAPSHOT_AFTER:
                self._log.append(contents.snapshot(offset))
        return True
