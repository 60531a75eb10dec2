"""The book: one stream, which every bridge of a prefix reads whole when it starts, and then as it grows.

All bridges read the same entries in the same order, so they agree: on the partitions of a destination, on whether a
group is set up. Whoever writes waits until it reads its own entry; it has then read everything before it. A stream
does not tell where it ends (3.10.8: its number of messages is always 0), so at the start that is an entry as well.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Final
from uuid import uuid4

from adapters.base import Stored
from adapters.rabbitmq import entries
from adapters.rabbitmq.entries import Contents, Group
from adapters.rabbitmq.link import Link
from adapters.rabbitmq.names import Own
from adapters.rabbitmq.options import REQUEST_TIMEOUT, Options
from adapters.rabbitmq.properties import Properties
from adapters.rabbitmq.publisher import Publisher
from adapters.rabbitmq.record import Arrival, Outgoing
from adapters.rabbitmq.stream import Reader
from adapters.rabbitmq.topology import Layout, play, stream
from bridge.errors import BackendUnavailable, BridgeError, OutcomeUnknown

_PREFETCH: Final = 1000
_PATIENCE: Final = REQUEST_TIMEOUT / 1000
_PAUSES: Final = (0.1, 5.0)
"""Seconds before another attempt to read on: the first pause and the longest."""
_PERSISTENT: Final = 2
_FIRST: Final = "first"
_NOT_READ: Final = "The bridge's book has not been read yet."

_log = logging.getLogger("bridge.rabbitmq")


class Book:
    """What is written there, as far as it has been read, and who writes into it.

    A bridge with an `instance` has notes of its own; those without share those of the prefix. When a connection is
    lost it goes on where it was. When the stream is deleted it is made anew, and each bridge writes what it knows.
    """

    def __init__(self, options: Options, consuming: Link, publisher: Publisher) -> None:
        self._instance = options.instance
        self._stream = Own(options.prefix).book
        self._link = consuming
        self._publisher = publisher
        self._contents = Contents(options.instance)
        self._first: str | None = None
        """The message id of the oldest entry: another one is another book."""
        self._next = 0
        """The offset of the first entry that has not been read."""
        self._reading: asyncio.Task[None] | None = None
        self._started = False
        self._writer = uuid4().hex
        self._numbers = count()
        self._unread: dict[str, asyncio.Future[None]] = {}
        """Own entries that have not been read back, by their message ids."""
        self._news = asyncio.Event()
        self._up = asyncio.Event()
        consuming.came.append(self._up.set)

    async def start(self) -> None:
        """Read all of it. Raises `Refused` or `BackendUnavailable`; may be called again then."""
        if self._started:
            return
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_on(await self._open()))
        await self.catch_up()
        self._started = True

    async def close(self) -> None:
        """Read no more. Idempotent."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.wait((reading,))

    def layout(self, destination: str) -> Layout | None:
        """Return what the book says of a destination."""
        return self._contents.destinations.get(destination)

    async def claim(self, destination: str, layout: Layout) -> Layout:
        """Enter a destination, unless somebody has; return what counts for all.

        Raises `BackendUnavailable`, `BackendFull` or `Refused`.
        """
        if destination not in self._contents.destinations:
            await self._enter(entries.destination(destination, layout))
        claimed = self._contents.destinations.get(destination)
        if claimed is None:
            raise BackendUnavailable(f"{destination}: the bridge's book has just been deleted.")
        return claimed

    def group(self, destination: str, group: str) -> Group:
        """Return how far the set-up of a group is."""
        return self._contents.groups.get((destination, group), Group())

    async def begin(self, destination: str, group: str) -> None:
        """Enter that the set-up of a group begins. Raises as `claim`."""
        await self._enter(entries.begun(destination, group))

    async def set_group(self, destination: str, group: str, history: Sequence[int]) -> None:
        """Enter that a group is ready, and which partitions have a queue with history. Raises as `claim`."""
        await self._enter(entries.ready(destination, group, history))

    async def drained(self, destination: str, group: str, partition: int) -> None:
        """Enter that the history of a partition is read. Raises as `claim`."""
        await self._enter(entries.drained(destination, group, partition))

    async def keep(self, key: str, value: str | None) -> None:
        """See `Notebook`. Raises also `Refused`, where the bridge's user may not write."""
        if not self._started:
            raise BackendUnavailable(_NOT_READ)
        await self._write(entries.note(self._instance, key, value))

    def kept(self) -> Mapping[str, str]:
        """See `Notebook`."""
        if not self._started:
            raise BackendUnavailable(_NOT_READ)
        return self._contents.notes

    async def catch_up(self) -> None:
        """Return when everything has been read that was written before. Raises as `claim`."""
        await self._enter(entries.READ)

    async def wait_ready(self, destination: str, group: str, patience: float) -> None:
        """Wait until a group is ready, at most so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while not self.group(destination, group).ready:
                    self._news.clear()
                    await self._news.wait()

    async def _enter(self, entry: bytes) -> None:
        """Write what all bridges have to agree on; it must be read back. Where nobody knows, it is asked once more."""
        try:
            read = await self._write(entry)
        except OutcomeUnknown as error:
            raise BackendUnavailable(error.detail) from error
        if not read:
            raise BackendUnavailable(f"{self._stream}: the bridge's book cannot be read at the moment.")

    async def _write(self, entry: bytes) -> bool:
        """Append an entry, and wait until it is read, too; return whether that was in time."""
        name = f"{self._writer}-{next(self._numbers)}"
        read = self._unread[name] = asyncio.get_running_loop().create_future()
        try:
            await asyncio.shield(self._append(entry, name))  # whoever no longer waits does not withdraw it
            await asyncio.wait((read,), timeout=_PATIENCE)
            return read.done()
        finally:
            del self._unread[name]

    def _append(self, entry: bytes, name: str) -> asyncio.Future[Stored]:
        properties = Properties(delivery_mode=_PERSISTENT, message_id=name, content_type="application/json")
        append = self._publisher.send(Outgoing("", self._stream, properties, entry))
        append.add_done_callback(_looked_at)
        return append

    async def _open(self) -> Reader:
        """Read all of it once more. The stream is declared each time: it may be gone."""
        channel = await self._link.channel()
        try:
            await play(channel, self._stream, [stream(self._stream)])
        finally:
            await channel.close()
        return await Reader.open(self._link, self._stream, _PREFETCH, self._arrived)

    def _arrived(self, reader: Reader, offset: int, arrival: Arrival) -> None:
        name = str(arrival.properties.message_id)
        if offset == 0 and name != self._first:
            self._opened(name)
        if offset >= self._next:
            self._next = offset + 1
            if not self._contents.read(arrival.body):
                _log.warning("an entry of the bridge's book is none", extra={"queue": self._stream, "offset": offset})
            read = self._unread.get(name)
            if read is not None and not read.done():
                read.set_result(None)
            self._news.set()
        reader.done(arrival.tag)

    def _opened(self, first: str) -> None:
        """Look at the oldest entry: if it is not the one that it was, the book was deleted and has begun anew."""
        if self._first is not None:
            _log.warning("the bridge's book was deleted; it gets what this bridge knows", extra={"queue": self._stream})
            known = self._contents
            self._contents, self._next = known.anew(), 0
            for entry in known.whole():
                self._append_unasked(entry)
        self._first = first

    def _append_unasked(self, entry: bytes) -> None:
        """Append an entry that nobody waits for."""
        self._append(entry, f"{self._writer}-{next(self._numbers)}")

    async def _read_on(self, reader: Reader) -> None:
        """Open another reader whenever one has failed, and have something written: it shows which book it is."""
        try:
            while True:
                await reader.failed
                await reader.close()
                reader = await self._reopened()
                self._append_unasked(entries.READ)
        finally:
            await reader.close()

    async def _reopened(self) -> Reader:
        pause, longest = _PAUSES
        while True:
            self._up.clear()
            try:
                return await self._open()
            except BridgeError as error:
                if self._link.up:
                    _log.warning("the bridge's book cannot be read: %s", error, extra={"queue": self._stream})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._up.wait()
            pause = min(pause * 2, longest)


def _looked_at(append: "asyncio.Future[Stored]") -> None:
    """Whoever waits for it gets the exception as well; often nobody does."""
    if not append.cancelled():
        append.exception()
