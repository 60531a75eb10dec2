"""A stream that all bridges of a prefix read: all get the same records in the same order, so they agree.

A writer waits until it reads its own record; it has then read everything before it. A stream does not tell where it
ends (3.10.8: its number of messages is always 0), so at the start that is a record as well.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from itertools import count
from typing import Final, NamedTuple
from uuid import uuid4

from adapters.amqp.link import Link
from adapters.amqp.messages import Arrival, Outgoing
from adapters.amqp.properties import Properties
from adapters.amqp.settings import REQUEST_TIMEOUT
from adapters.amqp.stream_reader import Reader
from adapters.base import Stored
from adapters.rabbitmq.publish.publisher import Publisher
from adapters.rabbitmq.topology.declarations import Request, perform_on
from bridge.errors import BackendUnavailable, BridgeError, OutcomeUnknown

READ: Final = b'["read"]'
"""A record that says nothing: its writer reads up to it."""
_PREFETCH: Final = 1000
_ACKNOWLEDGED: Final = 250
"""Records that one acknowledgement is for. The last few stay without one, which a stream does not mind."""
_PATIENCE: Final = REQUEST_TIMEOUT / 1000
_SHOWN: Final = 3.0
"""Seconds in which a record is read after its confirm, or this is another stream that has fewer records: RabbitMQ
passes on nothing of it before the offset at which the reader began."""
_PAUSES: Final = (0.1, 5.0)
"""Seconds before another attempt to read on: the first pause and the longest."""
_PERSISTENT: Final = 2

_log = logging.getLogger("bridge.rabbitmq")


class Listener(NamedTuple):
    """Receives what is read."""

    record: Callable[[str, int, Arrival], bool]
    """Called with the name of each record, its offset and itself, once.

    Returns what `write` returns; raises `ValueError` for no record.
    """
    replaced: Callable[[], None]
    """Called when another stream is there, or the end was lost: all that is there is read from the first."""
    dropped: Callable[[], None]
    """Called when the stream has dropped records before they were read: the same."""


class SharedLog:
    """Reads and writes one stream. After a lost connection it continues behind the last record that it has read."""

    def __init__(self, declaration: Request, link: Link, publisher: Publisher, listener: Listener) -> None:
        self.name = str(declaration.arguments["queue"])
        self._declaration = declaration
        self._link = link
        self._publisher = publisher
        self._listener = listener
        self._last: tuple[int, str] | None = None
        """Offset and name of the last record that was read."""
        self._resumed = False
        """Whether the first record of the reader must be the last one that was read."""
        self._reading: asyncio.Task[None] | None = None
        self._writer = uuid4().hex
        self._numbers = count()
        self._unread: dict[str, asyncio.Future[bool]] = {}
        """Own records that have not been read back, by their names."""
        self._up = asyncio.Event()
        link.on_connected.append(self._up.set)

    async def start(self) -> None:
        """Declare it and read all of it. Raises `Refused` or `BackendUnavailable`; may be called again then."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_on(await self._open()))
        await self.enter(READ)

    async def close(self) -> None:
        """Read no more. Idempotent."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.wait((reading,))

    async def enter(self, record: bytes) -> None:
        """Write what all bridges have to agree on, and read it back. If the outcome is unknown, the caller tries again.

        Raises `BackendUnavailable`, `BackendFull` or `Refused`.
        """
        try:
            read = await self.write(record)
        except OutcomeUnknown as error:
            raise BackendUnavailable(error.detail) from error
        if read is None:
            raise BackendUnavailable(f"{self.name}: the stream cannot be read at the moment.")

    async def write(
        self, record: bytes, properties: Properties | None = None, patience: float = _PATIENCE
    ) -> bool | None:
        """Append a record, and wait until it is read, too; return what the listener said, None: not read in time.

        Raises as `Publisher.send` does.
        """
        name = f"{self._writer}-{next(self._numbers)}"
        read = self._unread[name] = asyncio.get_running_loop().create_future()
        try:
            # a caller that no longer waits does not withdraw it
            await asyncio.shield(self._append(name, record, properties or Properties(content_type="application/json")))
            await asyncio.wait((read,), timeout=patience)
            return read.result() if read.done() else None
        finally:
            del self._unread[name]

    def waits_for(self, name: str) -> bool:
        """Whether this bridge has written the record of this name, and not read it back before."""
        return name in self._unread

    def append(self, record: bytes) -> None:
        """Append a record without waiting for it."""
        self._append(f"{self._writer}-{next(self._numbers)}", record, Properties(content_type="application/json"))

    def _append(self, name: str, record: bytes, properties: Properties) -> asyncio.Future[Stored]:
        properties.message_id, properties.delivery_mode = name, _PERSISTENT
        append = self._publisher.send(Outgoing("", self.name, properties, record))
        append.add_done_callback(_looked_at)
        return append

    async def _open(self) -> Reader:
        """Read on. The stream is declared each time: it may be gone."""
        await perform_on(self._link, self.name, [self._declaration])
        self._resumed = self._last is not None
        start = "first" if self._last is None else self._last[0]
        return await Reader.open(self._link, self.name, _PREFETCH, self._arrived, start)

    def _arrived(self, reader: Reader, offset: int, arrival: Arrival) -> None:
        if reader.failed.done():
            return
        if arrival.tag % _ACKNOWLEDGED == 0:
            reader.done(arrival.tag, multiple=True)
        place = offset, str(arrival.properties.message_id)
        if self._resumed:
            self._resumed = False
            if place != self._last:
                is_later = self._last is not None and offset > self._last[0]
                self._begin_anew(reader, self._listener.dropped if is_later else self._listener.replaced)
            return
        self._last = place
        counts = False
        try:
            counts = self._listener.record(place[1], offset, arrival)
        except ValueError as error:
            _log.warning("a record is not valid: %s", error, extra={"queue": self.name, "offset": offset})
        read = self._unread.get(place[1])
        if read is not None and not read.done():
            read.set_result(counts)

    def _begin_anew(self, reader: Reader, report: Callable[[], None]) -> None:
        """Read the stream that is there from its first record."""
        _log.warning("a stream of the bridge was deleted or cut; it is read anew", extra={"queue": self.name})
        self._last = None
        report()
        reader.failed.set_result(BackendUnavailable(f"{self.name}: the stream was replaced."))

    async def _read_on(self, reader: Reader) -> None:
        """Open another reader whenever one has failed."""
        checking: asyncio.Task[None] | None = None
        try:
            while True:
                await reader.failed
                if checking is not None:
                    checking.cancel()
                await reader.close()
                reader = await self._reopened()
                checking = asyncio.create_task(self._check(reader))
        finally:
            if checking is not None:
                checking.cancel()
            await reader.close()

    async def _check(self, reader: Reader) -> None:
        """Have something written and read: it shows which stream it is."""
        while True:
            try:
                if await self.write(READ, patience=_SHOWN) is None and self._resumed and not reader.failed.done():
                    self._begin_anew(reader, self._listener.replaced)
            except BridgeError:
                await asyncio.sleep(_PAUSES[1])
            else:
                return

    async def _reopened(self) -> Reader:
        pause, longest = _PAUSES
        while True:
            self._up.clear()
            try:
                return await self._open()
            except BridgeError as error:
                if self._link.up:
                    _log.warning("a stream of the bridge cannot be read: %s", error, extra={"queue": self.name})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._up.wait()
            pause = min(pause * 2, longest)


def _looked_at(append: "asyncio.Future[Stored]") -> None:
    """Retrieve the exception: often nobody waits for it."""
    if not append.cancelled():
        append.exception()
