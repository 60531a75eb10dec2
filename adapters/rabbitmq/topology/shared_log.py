"""A stream that all bridges of a prefix read: they get the same records in the same order, and so have the same state.

A writer waits until it reads its own record; then it has read everything before it. RabbitMQ does not tell where a
stream ends (3.10.8: its number of messages is always 0), so a bridge that starts also writes a record and reads up to
it.
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
"""A record without a meaning: its writer reads up to it."""
_PREFETCH: Final = 1000
_ACKNOWLEDGED: Final = 250
"""Records for each acknowledgement. The last few are not acknowledged, which has no effect on a stream."""
_TIMEOUT: Final = REQUEST_TIMEOUT / 1000
_READ_BACK: Final = 3.0
"""Seconds in which a record is read after its confirm. Otherwise this is another stream with fewer records: RabbitMQ
delivers none before the offset at which the reader began."""
_PAUSES: Final = (0.1, 5.0)
"""Seconds before another attempt to continue reading: the first pause and the longest."""
_PERSISTENT: Final = 2

_log = logging.getLogger("bridge.rabbitmq")


class Listener(NamedTuple):
    """Receives the records."""

    record: Callable[[str, int, Arrival], bool]
    """Called once for each record, with its name, its offset and its message.

    Returns the result of `write`; raises `ValueError` if the record is not valid.
    """
    replaced: Callable[[], None]
    """Called when the stream was deleted and declared again, or has lost its end: it is read from the start."""
    dropped: Callable[[], None]
    """Called when the stream has dropped records before they were read: it is read from the start."""


class SharedLog:
    """Reads and writes one stream. After a lost connection it continues behind the last record it has read."""

    def __init__(self, declaration: Request, link: Link, publisher: Publisher, listener: Listener) -> None:
        self.name = str(declaration.arguments["queue"])
        self._declaration = declaration
        self._link = link
        self._publisher = publisher
        self._listener = listener
        self._last: tuple[int, str] | None = None
        """Offset and name of the last record read."""
        self._resumed = False
        """Whether the next record must be the last one read before."""
        self._reading: asyncio.Task[None] | None = None
        self._writer = uuid4().hex
        self._numbers = count()
        self._unread: dict[str, asyncio.Future[bool]] = {}
        """Records of this bridge that have not been read back, by name."""
        self._up = asyncio.Event()
        link.on_connected.append(self._up.set)

    async def start(self) -> None:
        """Declare the stream, and read it to its end. Raises `Refused` or `BackendUnavailable`; may be called again."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._keep_reading(await self._open()))
        await self.enter(READ)

    async def close(self) -> None:
        """Stop reading. Idempotent."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.wait((reading,))

    async def enter(self, record: bytes) -> None:
        """Append a record, and wait until it is read back. If the outcome is unknown, the caller may append it again.

        Raises `BackendUnavailable`, `BackendFull` or `Refused`.
        """
        try:
            read = await self.write(record)
        except OutcomeUnknown as error:
            raise BackendUnavailable(error.detail) from error
        if read is None:
            raise BackendUnavailable(f"{self.name}: the stream cannot be read at the moment.")

    async def write(
        self, record: bytes, properties: Properties | None = None, seconds: float = _TIMEOUT
    ) -> bool | None:
        """Append a record, and wait until it is read back; return the listener's result, or None after `seconds`.

        Raises as `Publisher.send` does.
        """
        name = f"{self._writer}-{next(self._numbers)}"
        read = self._unread[name] = asyncio.get_running_loop().create_future()
        try:
            # a caller that no longer waits does not withdraw the record
            await asyncio.shield(self._append(name, record, properties or Properties(content_type="application/json")))
            await asyncio.wait((read,), timeout=seconds)
            return read.result() if read.done() else None
        finally:
            del self._unread[name]

    def waits_for(self, name: str) -> bool:
        """Whether this bridge has written the record of this name, and has not read it back yet."""
        return name in self._unread

    def append(self, record: bytes) -> None:
        """Append a record; the caller does not wait."""
        self._append(f"{self._writer}-{next(self._numbers)}", record, Properties(content_type="application/json"))

    def _append(self, name: str, record: bytes, properties: Properties) -> asyncio.Future[Stored]:
        properties.message_id, properties.delivery_mode = name, _PERSISTENT
        append = self._publisher.send(Outgoing("", self.name, properties, record))
        append.add_done_callback(_ignore_error)
        return append

    async def _open(self) -> Reader:
        """Continue reading. The stream is declared each time: it may have been deleted."""
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
                self._read_again(reader, self._listener.dropped if is_later else self._listener.replaced)
            return
        self._last = place
        result = False
        try:
            result = self._listener.record(place[1], offset, arrival)
        except ValueError as error:
            _log.warning("a record is not valid: %s", error, extra={"queue": self.name, "offset": offset})
        read = self._unread.get(place[1])
        if read is not None and not read.done():
            read.set_result(result)

    def _read_again(self, reader: Reader, report: Callable[[], None]) -> None:
        """Read the stream from its first record."""
        _log.warning(
            "a stream of the bridge was deleted, or has lost records; it is read again", extra={"queue": self.name}
        )
        self._last = None
        report()
        reader.failed.set_result(BackendUnavailable(f"{self.name}: the stream was replaced."))

    async def _keep_reading(self, reader: Reader) -> None:
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
        """Write a record and read it back, which shows whether it is the same stream."""
        while True:
            try:
                if await self.write(READ, seconds=_READ_BACK) is None and self._resumed and not reader.failed.done():
                    self._read_again(reader, self._listener.replaced)
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


def _ignore_error(append: "asyncio.Future[Stored]") -> None:
    """Retrieve the exception: the caller may not wait for it."""
    if not append.cancelled():
        append.exception()
