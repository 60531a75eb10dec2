"""A stream that all bridges of a prefix read: they get the same records in the same order, and so have the same state.

A writer waits until it reads its own record; then it has read everything before it. RabbitMQ does not tell where a
stream ends (3.10.8: its number of messages is always 0), so a bridge that starts also writes a record and reads up to
it.

A stream can lose records: it is deleted, or a broker that is killed forgets the last ones. A bridge that notices this
reads it again from the start, into another state, and writes again what is missing in it. Until then, the state from
before counts.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Final, Generic, Protocol, Self, TypeVar
from uuid import uuid4

from adapters.amqp.link import Link
from adapters.amqp.messages import Arrival, Outgoing
from adapters.amqp.properties import Properties
from adapters.amqp.retry import retry, within_timeout
from adapters.amqp.settings import REQUEST_TIMEOUT
from adapters.amqp.stream_consumer import Reader
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
delivers none before the offset at which the reader began. Or the stream has dropped records that were not delivered:
then RabbitMQ (3.10.8) delivers nothing more to this reader, and to another one the records that are left."""
_PERSISTENT: Final = 2

_log = logging.getLogger("bridge.rabbitmq")


Record = tuple[bytes, Properties | None]
"""The body of a record, and its properties; None: those of JSON."""


class State(Protocol):
    """The state that the records of a stream add up to."""

    def missing_in(self, other: Self) -> Sequence[Record]:
        """Return the records that are missing in the state of a stream that has lost its last records, or all."""

    def take_over(self, earlier: Self) -> None:
        """Take over what only this bridge knows from the state before the stream has lost records."""


S = TypeVar("S", bound=State)


class SharedLog(Generic[S]):
    """Reads and writes one stream. After a lost connection it continues behind the last record it has read."""

    def __init__(
        self,
        declaration: Request,
        link: Link,
        publisher: Publisher,
        make: Callable[[], S],
        read: Callable[[S, str, int, Arrival], bool],
    ) -> None:
        """`make` returns the state before the first record.

        `read` is called once for each record, with the state, the name of the record, its offset and its message. It
        returns the result of `write`; it raises `ValueError` or `RecursionError` if the record is not valid.
        """
        self.name = str(declaration.arguments["queue"])
        self.state = self._next = make()
        """The state, and that of the records read. They differ while a stream that has lost records is read again."""
        self.started = False
        """Whether the stream has been read to its end once."""
        self._declaration = declaration
        self._link = link
        self._publisher = publisher
        self._make = make
        self._read = read
        self._last: tuple[int, str] | None = None
        """Offset and name of the last record read."""
        self._resumed = False
        """Whether the next record must be the last one read before."""
        self._reader: Reader | None = None
        self._reading: asyncio.Task[None] | None = None
        self._restoring: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._is_lost = False
        """Whether the stream has lost records that count; otherwise it has dropped its oldest ones."""
        self._writer = uuid4().hex
        self._numbers = count()
        self._unread: dict[str, asyncio.Future[bool]] = {}
        """Records of this bridge that have not been read back, by name."""

    async def start(self) -> None:
        """Declare the stream, and read it to its end. Idempotent.

        Raises `Refused` or `BackendUnavailable`; may be called again then.
        """
        if self._reading is None:
            self._reader = await self._open()
            self._reading = asyncio.create_task(self._keep_reading(self._reader))
        elif self.started:
            return
        await self._enter((READ, None))
        self.started = True

    async def close(self) -> None:
        """Stop reading. Idempotent."""
        tasks = [task for task in (self._reading, self._restoring) if task is not None]
        self._reading = self._restoring = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def enter(self, record: bytes) -> None:
        """Append a record, and wait until `state` has it. If the outcome is unknown, the caller may append it again.

        Raises `BackendUnavailable`, `BackendFull` or `Refused`.
        """
        await self.restored()
        await self._enter((record, None))
        await self.restored()

    async def restored(self) -> None:
        """Wait until the stream has what it has lost. Raises `BackendUnavailable`."""
        lost = f"{self.name}: the stream has lost records, which are written again."
        await within_timeout(self.until(lambda: self.state is self._next), lost)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until records have been read after which it is so."""
        while not is_so():
            self._changed.clear()
            await self._changed.wait()

    async def write(
        self, record: bytes, properties: Properties | None = None, seconds: float = _TIMEOUT
    ) -> bool | None:
        """Append a record, and wait until it is read back; return the result of `read`, or None after `seconds`.

        Raises as `Publisher.send` does.
        """
        name = f"{self._writer}-{next(self._numbers)}"
        read = self._unread[name] = asyncio.get_running_loop().create_future()
        try:
            # a caller that no longer waits does not withdraw the record
            await asyncio.shield(self._append(name, record, properties))
            last = self._last
            await asyncio.wait((read,), timeout=_READ_BACK)
            if not read.done() and self._last == last and not self._resumed:
                self._open_again()
            await asyncio.wait((read,), timeout=seconds - _READ_BACK)
            return read.result() if read.done() else None
        finally:
            del self._unread[name]

    def waits_for(self, name: str) -> bool:
        """Whether this bridge has written the record of this name, and has not read it back yet."""
        return name in self._unread

    def append(self, record: bytes) -> None:
        """Append a record; the caller does not wait."""
        self._append(f"{self._writer}-{next(self._numbers)}", record)

    def _append(self, name: str, record: bytes, properties: Properties | None = None) -> asyncio.Future[Stored]:
        properties = properties or Properties(content_type="application/json")
        properties.message_id, properties.delivery_mode = name, _PERSISTENT
        append = self._publisher.send(Outgoing("", self.name, properties, record))
        append.add_done_callback(lambda done: done.cancelled() or done.exception())  # the caller may not wait for it
        return append

    async def _enter(self, record: Record) -> None:
        try:
            read = await self.write(*record)
        except OutcomeUnknown as error:
            raise BackendUnavailable(error.detail) from error
        if read is None:
            raise BackendUnavailable(f"{self.name}: the stream cannot be read at the moment.")

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
                self._read_again(reader, is_lost=self._last is None or offset <= self._last[0])
            return
        self._last = place
        result = False
        try:
            result = self._read(self._next, place[1], offset, arrival)
        except (ValueError, RecursionError) as error:
            _log.warning("a record is not valid: %s", error, extra={"queue": self.name, "offset": offset})
        self._changed.set()
        read = self._unread.get(place[1])
        if read is not None and not read.done():
            read.set_result(result)

    async def _keep_reading(self, reader: Reader) -> None:
        """Open another reader whenever one has failed."""
        checking: asyncio.Task[None] | None = None
        try:
            while True:
                await reader.failed
                if checking is not None:
                    checking.cancel()
                await reader.close()
                self._reader = reader = await retry(self._open, partial(self._warn, "cannot be read"))
                checking = asyncio.create_task(self._check(reader))
        finally:
            if checking is not None:
                checking.cancel()
            await reader.close()

    async def _check(self, reader: Reader) -> None:
        """Write a record and read it back, which shows whether it is the same stream."""
        read = await retry(partial(self.write, READ, seconds=_READ_BACK), partial(self._warn, "cannot be written to"))
        if read is None and self._resumed and not reader.failed.done():
            self._read_again(reader, is_lost=True)

    def _open_again(self) -> None:
        """Continue with another reader: this one gets nothing more."""
        if self._reader is not None and not self._reader.failed.done():
            self._reader.failed.set_result(BackendUnavailable(f"{self.name}: RabbitMQ delivers no records."))

    def _read_again(self, reader: Reader, *, is_lost: bool) -> None:
        """Read the stream from its first record."""
        _log.warning(
            "a stream of the bridge was deleted, or has lost records; it is read again", extra={"queue": self.name}
        )
        self._last, self._next, self._is_lost = None, self._make(), is_lost
        if self._restoring is None:
            self._restoring = asyncio.create_task(self._restore())
        reader.failed.set_result(BackendUnavailable(f"{self.name}: the stream was replaced."))

    async def _restore(self) -> None:
        """Write the records that the stream has lost: other programs were told that they are stored."""
        while self.state is not self._next:
            state = await retry(self._write_missing, partial(self._warn, "cannot be completed"))
            if state is self._next:  # otherwise it has lost records once more
                state.take_over(self.state)
                self.state = state
                self._changed.set()
        self._restoring = None

    async def _write_missing(self) -> S:
        """Read the stream to its end, and write what is missing; return its state."""
        state = self._next
        await self._enter((READ, None))
        # what was dropped while this bridge was away counts in copies and snapshots, or has ended
        missing = self.state.missing_in(state) if self._is_lost else ()
        await asyncio.gather(*map(self._enter, missing))
        if missing:
            _log.warning("%d records were written again", len(missing), extra={"queue": self.name})
        return state

    def _warn(self, failure: str, error: BridgeError) -> None:
        if self._link.up:
            _log.warning("a stream of the bridge %s: %s", failure, error, extra={"queue": self.name})
