"""The connections of one port: each reads its socket for an HTTP protocol, writes for it, and closes.

`http1`, `http2` and `stream` use the public methods of `Connection`, and are not imported here.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from starlette.types import ASGIApp

from bridge.server import connection_limits
from bridge.server.connection_limits import Admission
from bridge.server.unfinished_requests import UnfinishedRequests, cancel, finish

logger = logging.getLogger(__name__)

READ_SIZE = 65536

PREFACE = b"PRI * HTTP/2.0\r\n\r\n"
"""With this a client of HTTP/2 begins (RFC 9113, section 3.4); python-h2 checks the rest of its preface."""

LINGER = 2.0
"""Seconds between the last byte sent and the abort. Closing at once, with unread input, would reset the connection, and
the client would not see its 413."""

STALL = 30.0
"""Seconds a client may stop reading its last response before the connection is aborted."""


class HttpProtocol(Protocol):
    """The protocol of a connection: HTTP/1.1 or HTTP/2."""

    async def receive(self, data: bytes) -> None:
        """Handle bytes from the client."""

    def half_closed(self) -> bool:
        """The client has closed its sending side, and may read on. Returns whether its requests are answered.

        Each request learns that no more arrives, and ends its waiting: the client may also have disconnected.
        """

    async def input_ended(self) -> None:
        """Return when everything that has arrived is answered; refuse a request that is cut short."""

    async def disconnected(self) -> None:
        """End all requests: the connection is closed."""

    def drain(self) -> None:
        """Close the connection if no request is in flight; else it closes after the last response."""


class Server:
    """The connections of one port, and what they share."""

    def __init__(
        self,
        app: ASGIApp,
        header_limit: int,
        http1: Callable[["Connection"], HttpProtocol],
        http2: Callable[["Connection"], HttpProtocol],
        admission: Admission | None = None,
    ) -> None:
        """`http1` and `http2` make the protocol of a connection."""
        self.requests = UnfinishedRequests(app)
        self.header_limit = header_limit
        self.admission = admission or Admission(sys.maxsize, 100, str)
        self.http1, self.http2 = http1, http2
        self.config = Config()
        self.config.include_server_header = False
        self.config.accesslog = None
        self.config.errorlog = logging.getLogger("hypercorn.error")
        self.config.h11_max_incomplete_size = header_limit
        self._context = WorkerContext(None)
        # The first arguments of Hypercorn's constructors: application, configuration, context, task group. The bridge
        # starts the application itself, so Hypercorn uses neither the first nor the last.
        self.hypercorn_arguments: tuple[Any, Any, Any, Any] = (None, self.config, self._context, None)
        self._connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def draining(self) -> bool:
        """Whether the server is stopping: new requests are refused."""
        return self._context.terminated.is_set()

    def streams(self, host: str | None = None) -> asyncio.StreamReaderProtocol:
        """Return the asyncio protocol of a new connection. `host`: of one that was admitted; None: it is now."""
        reader = NotifyingReader(loop=asyncio.get_running_loop())
        return asyncio.StreamReaderProtocol(reader, partial(self._serve, host))

    def _serve(self, host: str | None, reader: "NotifyingReader", writer: asyncio.StreamWriter) -> None:
        if host is None:
            address = writer.get_extra_info("peername")
            host = address[0] if address else ""
            if self.draining or not self.admission.accept(host):
                writer.transport.abort()
                return
        connection = Connection(self, reader, writer)
        self._connections.add(connection)
        self.spawn(connection.run()).add_done_callback(partial(self._on_closed, connection, host))

    def _on_closed(self, connection: "Connection", host: str, _: asyncio.Task[None]) -> None:
        self._connections.discard(connection)
        self.admission.release(host)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` in a task, which must log its own failures.

        The tasks of a connection are not an asyncio.TaskGroup: there a failing stream would cancel the others.
        """
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self, grace: float) -> None:
        """Wait `grace` seconds at most for the requests in flight, then cancel them and close all connections."""
        await self._context.terminated.set()
        for connection in list(self._connections):
            connection.drain()
        await finish(self._tasks, grace)
        await cancel(self.requests.tasks)  # before the connections, so that HTTP/2 streams are reset first
        await cancel(self._tasks)


class NotifyingReader(asyncio.StreamReader):
    """Reports the end of the input at once, even while no task reads."""

    on_end: Callable[[], None] | None = None

    def feed_eof(self) -> None:
        """Record and report the end of the input."""
        super().feed_eof()
        if self.on_end is not None:
            self.on_end()

    def set_exception(self, exc: Exception) -> None:
        """Record and report the loss of the connection."""
        super().set_exception(exc)
        if self.on_end is not None:
            self.on_end()


class Connection:
    """One client connection: replaces Hypercorn's TCPServer and ProtocolWrapper, whose protocol classes are fixed."""

    def __init__(self, server: Server, reader: NotifyingReader, writer: asyncio.StreamWriter) -> None:
        self.server = server
        self.closing = False
        self._reader, self._writer = reader, writer
        reader.on_end = self._on_input_end
        self._idle_timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._handling = self._input_lost = False
        self.half_closed = False
        """Whether the client has closed its sending side, and its requests are answered all the same."""
        tls = writer.get_extra_info("ssl_object")
        self._tls = tls is not None
        client, served = writer.get_extra_info("peername"), writer.get_extra_info("sockname")
        self.tls_and_addresses = (self._tls, client and client[:2], served and served[:2])
        """Whether the connection has TLS, the client's address, the server's: arguments of Hypercorn's constructors."""
        self._protocol: HttpProtocol | None = None
        """None: the client has sent nothing yet, or a part of the preface of HTTP/2."""
        if tls is not None and tls.selected_alpn_protocol() == "h2":
            self._protocol = server.http2(self)

    async def run(self) -> None:
        """Serve the connection until either side closes it."""
        self._task = asyncio.current_task()
        try:
            self.set_idle(True)
            while data := await self._reader.read(READ_SIZE):
                if self.closing:
                    continue
                self._handling = True
                if self._protocol is None:
                    while PREFACE.startswith(data) and data != PREFACE and (more := await self._reader.read(READ_SIZE)):
                        data += more
                    self._protocol = self.server.http2(self) if data.startswith(PREFACE) else self.server.http1(self)
                await self._protocol.receive(data)
                self._handling = False
            if not self.closing and self._protocol is not None:
                self._handling = True
                await self._protocol.input_ended()
        except OSError:
            pass  # the client has disconnected
        except asyncio.CancelledError:
            if not self._input_lost:
                self.abort()
        except Exception:
            logger.exception("a connection failed")
        finally:
            await self._finish()

    def _on_input_end(self) -> None:
        lost = self._tls or self._reader.exception() is not None or self._writer.transport.is_closing()
        if not lost:  # over TLS, asyncio closes both directions
            self.half_closed = self._protocol is None or self._protocol.half_closed()
        # While a request is answered, the reading task waits with a pipelined request or the rest of a body.
        if (lost or not self.half_closed) and self._handling and self._task is not None:
            self._input_lost = True
            self._task.cancel()

    async def _finish(self) -> None:
        self._reader.on_end = None
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if not self.closing:
            self.closing = True
            self._abort_later()
        if self._protocol is not None:
            await self._protocol.disconnected()
        self._writer.close()
        try:
            with suppress(OSError):
                await self._writer.wait_closed()
        finally:
            self.abort()

    def write(self, data: bytes) -> None:
        """Write without waiting. Callers that can wait call `drained` next."""
        if not self.closing and not self._writer.transport.is_closing():
            self._writer.write(data)

    async def drained(self) -> None:
        """Wait while the client does not read."""
        try:
            await self._writer.drain()
        except OSError:
            # The client has disconnected. An application that only sends must not block the event loop.
            await asyncio.sleep(0)

    @property
    def unsent(self) -> int:
        """Bytes written that the kernel has not taken yet."""
        return self._writer.transport.get_write_buffer_size()

    def set_idle(self, idle: bool) -> None:
        """Start or stop the timer that closes an idle connection."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = None
        if idle and not self.closing:
            self._idle_timer = asyncio.get_running_loop().call_later(connection_limits.KEEP_ALIVE, self.drain)

    def drain(self) -> None:
        """Close as soon as no request is in flight."""
        if self.closing:
            return
        if self._protocol is None:
            self.close(linger=False)
        else:
            self._protocol.drain()

    def abort(self) -> None:
        """Close at once, and drop what has not been sent."""
        self._writer.transport.abort()

    def close(self, *, linger: bool = True) -> None:
        """Send what was written, then close. If `linger`, drop what still arrives until the client has read it."""
        if self.closing:
            return
        self.closing = True
        transport = self._writer.transport
        if linger and transport.can_write_eof() and not transport.is_closing():
            with suppress(OSError):  # the client has just disconnected
                transport.write_eof()
        else:
            transport.close()  # TLS sends its own end, and drops what arrives meanwhile
        self._abort_later()

    def _abort_later(self, unsent_before: int = -1, stalled: float = 0.0) -> None:
        """Abort `LINGER` seconds after the last byte was sent, or `STALL` seconds after the client stopped reading."""
        if self._tls:
            return  # asyncio aborts 30 s after its end of the TLS stream
        unsent = self.unsent
        stalled = stalled + LINGER if unsent == unsent_before else 0.0
        if unsent_before == 0 or stalled > STALL:
            self.abort()
        else:
            asyncio.get_running_loop().call_later(LINGER, self._abort_later, unsent, stalled)
