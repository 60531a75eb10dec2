"""One accepted connection: its socket, its protocol, its end."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.h11 import H2ProtocolAssumedError
from hypercorn.typing import ConnectionState

from bridge.server import listener
from bridge.server.http1 import Http1
from bridge.server.http2 import Http2

if TYPE_CHECKING:
    from bridge.server.hypercorn import House

logger = logging.getLogger(__name__)

READ = 65536

LINGER = 2.0
"""Seconds from the last byte sent to the cut. Closing at once, with unread input, resets the connection: no 413."""

STALL = 30.0
"""Seconds a client may take none of its last answer before it is cut off."""


class Reader(asyncio.StreamReader):
    """Tells its link at once that the client has left, also while the link waits for something else than input."""

    left: Callable[[], None] | None = None

    def feed_eof(self) -> None:
        """Note the end of the input."""
        super().feed_eof()
        if self.left is not None:
            self.left()

    def set_exception(self, exc: Exception) -> None:
        """Note the end of the connection."""
        super().set_exception(exc)
        if self.left is not None:
            self.left()


class Link:
    """Takes the place of Hypercorn's TCPServer and ProtocolWrapper, which name the classes they make.

    Its tasks are not a TaskGroup: there one failing stream cancelled the others of its connection.
    """

    def __init__(self, house: "House", reader: Reader, writer: asyncio.StreamWriter) -> None:
        self.requests = house.requests
        self.header_limit = house.header_limit
        self.spawn = house.spawn
        self.state = ConnectionState({})
        # What Hypercorn's constructors begin with. Its protocols only ask the task group for what Stream does itself.
        self.shared: tuple[Any, Any, Any, Any] = (house.requests, house.config, house.context, self)
        self.closing = False
        self._reader, self._writer = reader, writer
        self._handling = self._gone = False
        reader.left = self._left
        self._idle: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        tls = writer.get_extra_info("ssl_object")
        self.tls = tls is not None
        self.client = _address(writer.get_extra_info("peername"))
        self.server = _address(writer.get_extra_info("sockname"))
        h2 = tls is not None and tls.selected_alpn_protocol() == "h2"
        self.protocol: Http1 | Http2 = Http2(self) if h2 else Http1(self)

    async def run(self) -> None:
        """Serve the connection until either side ends it."""
        self._task = asyncio.current_task()
        try:
            self._watch(idle=True)
            await self.protocol.initiate()
            while data := await self._reader.read(READ):
                if not self.closing:
                    self._handling = True
                    await self._handle(data)
                    self._handling = False
        except OSError:
            pass  # the client is gone
        except asyncio.CancelledError:
            if not self._gone:
                self._writer.transport.abort()
        except Exception:
            logger.exception("a connection failed")
        finally:
            await self._end()

    async def _handle(self, data: bytes) -> None:
        try:
            await self.protocol.handle(RawData(data=data))
        except H2ProtocolAssumedError as prior_knowledge:
            self.protocol = Http2(self)
            self._watch(idle=True)  # Hypercorn counts the preface as a request, and keeps a silent client for ever
            await self.protocol.initiate()
            await self.protocol.handle(RawData(data=prior_knowledge.data))

    def _left(self) -> None:
        # Behind a request that is being answered, a pipelined one or the rest of a body keeps the reading task waiting.
        if self._handling and self._task is not None:
            self._gone = True
            self._task.cancel()

    async def _end(self) -> None:
        self._reader.left = None
        if self._idle is not None:
            self._idle.cancel()
        if not self.closing:
            self.closing = True
            self._part()
        await self.protocol.handle(Closed())
        self._writer.close()
        try:
            with suppress(OSError):
                await self._writer.wait_closed()
        finally:
            self._writer.transport.abort()

    async def send(self, event: Event) -> None:
        """Carry out what a protocol asks for."""
        if isinstance(event, RawData):
            self.write(event.data)
            await self.drained()
        elif isinstance(event, Closed):
            self.close()
        elif isinstance(event, Updated):
            self._watch(idle=event.idle)

    def write(self, data: bytes) -> None:
        """Write without waiting: whoever can wait calls `drained` after it."""
        if not self.closing and not self._writer.transport.is_closing():
            self._writer.write(data)

    async def drained(self) -> None:
        """Wait while the client does not read."""
        try:
            await self._writer.drain()
        except OSError:
            await asyncio.sleep(0)  # the client has left; an application that only sends must not hold the event loop

    @property
    def unsent(self) -> int:
        """Bytes written that the kernel has not taken yet."""
        return self._writer.transport.get_write_buffer_size()

    def cut(self) -> None:
        """End the connection at once: nobody is there to read what is written."""
        self._writer.transport.abort()

    def close(self, *, linger: bool = True) -> None:
        """Send what is written, then the end; drop what still arrives until the client has had time to read it."""
        if self.closing:
            return
        self.closing = True
        transport = self._writer.transport
        if linger and transport.can_write_eof():
            with suppress(OSError):  # the client has just left
                transport.write_eof()
        else:
            transport.close()  # TLS says goodbye itself, and drops what arrives meanwhile
        self._part()

    def _part(self, before: int = -1, stalled: float = 0.0) -> None:
        """Cut the connection `LINGER` seconds after the last byte was sent, or `STALL` after it stopped being read."""
        if self.tls:
            return  # the event loop does it, 30 s after the goodbye
        transport = self._writer.transport
        unsent = transport.get_write_buffer_size()
        stalled = stalled + LINGER if unsent == before else 0.0
        if before == 0 or stalled > STALL:
            transport.abort()
        else:
            asyncio.get_running_loop().call_later(LINGER, self._part, unsent, stalled)

    def drain(self) -> None:
        """Close as soon as no request is in flight."""
        if not self.closing:
            self.protocol.drain()

    def _watch(self, *, idle: bool) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = None
        if idle and not self.closing:
            self._idle = asyncio.get_running_loop().call_later(listener.KEEP_ALIVE, self.drain)


def _address(name: Any) -> tuple[str, int] | None:  # noqa: ANN401 - whatever the socket says
    return (name[0], name[1]) if name else None
