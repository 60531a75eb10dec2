"""Accepts connections, in cleartext or after a TLS handshake, and chooses the HTTP protocol of each.

A TLS connection counts from its first byte, and a client that is refused gets the alert that says why. A server of
asyncio or uvloop shows a connection only after its handshake, sends no alert and logs nothing.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from time import monotonic
from typing import ClassVar, Final, Self

from starlette.types import ASGIApp

from bridge.server.connection_limits import BACKLOG
from bridge.server.hypercorn.connection import Server
from bridge.server.hypercorn.http1 import Http1
from bridge.server.hypercorn.http2 import Http2
from bridge.server.listener import Listener, bind, tls_context

logger = logging.getLogger(__name__)

TIMEOUT: Final = 10.0
"""Seconds for a handshake."""
LINGER: Final = 1.0
"""Seconds in which a client that is refused may read the alert."""
LOG_INTERVAL: Final = 60.0
"""Seconds between two warnings about refused handshakes."""

_READS: Final = 8
"""Reads that are dropped meanwhile: a client of TLS 1.3 sends its request before it gets the alert."""
_RETRY: Final = 1.0
"""Seconds before another attempt to accept, if there are no file descriptors."""
_NO_CERTIFICATE: Final = "PEER_DID_NOT_RETURN_A_CERTIFICATE"


class _Attempt:
    """One handshake."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.begun: asyncio.Future[None] = loop.create_future()
        self.failure: asyncio.Future[ssl.SSLError] = loop.create_future()


class _AlertingObject(ssl.SSLObject):
    """Reports a failure and asks for more input: the loop then sends what is ready, which is the alert."""

    beginning: ClassVar[_Attempt | None] = None
    """The handshake of the next object. No loop can pass anything to it, so one begins after the other."""
    _attempt: _Attempt | None = None
    _reads = 0

    def __new__(cls) -> Self:
        self = super().__new__(cls)
        if cls.beginning is not None and not cls.beginning.begun.done():
            self._attempt = cls.beginning
            self._attempt.begun.set_result(None)
        return self

    def do_handshake(self) -> None:
        """See ssl.SSLObject."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            self._reads += 1
            if self._attempt is None or self._reads > _READS:
                raise
            if not self._attempt.failure.done():
                self._attempt.failure.set_result(error)
            raise ssl.SSLWantReadError from error


class Handshakes:
    """The TLS connections of one port, until they are complete."""

    def __init__(self, context: ssl.SSLContext, server: Server) -> None:
        context.sslobject_class = _AlertingObject
        self._context = context
        self._server = server
        self._tasks: set[asyncio.Task[None]] = set()
        self._beginning = asyncio.Lock()
        self._log_at = 0.0
        self._suppressed = 0

    async def accept(self, listening: socket.socket) -> None:
        """Accept connections until this is cancelled, which also ends handshakes."""
        listening.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    accepted, address = await loop.sock_accept(listening)
                except ConnectionAbortedError:
                    continue
                except OSError as error:
                    logger.warning("cannot accept connections", extra={"reason": error.strerror})
                    await asyncio.sleep(_RETRY)
                    continue
                if not self._server.draining and self._server.admission.accept(address[0]):
                    task = loop.create_task(self._run(accepted, address[0]))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                else:
                    accepted.close()
                await asyncio.sleep(0)  # accepting does not yield while clients are queued
        finally:
            for task in self._tasks:
                task.cancel()

    async def _run(self, accepted: socket.socket, host: str) -> None:
        complete = False
        shaking: asyncio.Task[object] | None = None
        try:
            attempt, shaking = await self._begin(accepted, host)
            await asyncio.wait((shaking, attempt.failure), return_when=asyncio.FIRST_COMPLETED)
            if attempt.failure.done():
                self._log(host, attempt.failure.result())
                await asyncio.wait((shaking,), timeout=LINGER)
            else:
                complete = shaking.exception() is None
        finally:
            if not complete:
                if shaking is not None:
                    shaking.cancel()
                    await asyncio.wait((shaking,))
                    if not shaking.cancelled():
                        shaking.exception()  # it has been logged, or the client has disconnected
                accepted.close()
                self._server.admission.release(host)

    async def _begin(self, accepted: socket.socket, host: str) -> tuple[_Attempt, "asyncio.Task[object]"]:
        loop = asyncio.get_running_loop()
        async with self._beginning:
            attempt = _AlertingObject.beginning = _Attempt()
            shaking: asyncio.Task[object] = loop.create_task(
                loop.connect_accepted_socket(
                    lambda: self._server.streams(host),
                    accepted,
                    ssl=self._context,
                    ssl_handshake_timeout=TIMEOUT,
                )
            )
            try:
                await asyncio.wait((shaking, attempt.begun), return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                shaking.cancel()
                raise
            finally:
                _AlertingObject.beginning = None
        return attempt, shaking

    def _log(self, host: str, error: ssl.SSLError) -> None:
        if monotonic() < self._log_at:
            self._suppressed += 1
            return
        extra: dict[str, object] = {"client": host, "reason": _reason(error)}
        if self._suppressed:
            extra["suppressed"] = self._suppressed
        logger.warning("a TLS handshake is refused", extra=extra)
        self._log_at, self._suppressed = monotonic() + LOG_INTERVAL, 0


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate: {error.verify_message}"
    if error.reason == _NO_CERTIFICATE:
        return "it has no certificate, and tls.client_ca demands one"
    return (error.reason or "unknown").lower().replace("_", " ")


VERSION = "0.18.0"


async def serve(
    app: ASGIApp, listener: Listener, *, stop: asyncio.Event, grace: float, ready: Callable[[int], None]
) -> None:
    """Serve with Hypercorn; see `bridge.server.serve`."""
    if (installed := version("hypercorn")) != VERSION:
        raise RuntimeError(f"the bridge subclasses Hypercorn {VERSION}; {installed} is installed")
    tls = tls_context(listener.tls) if listener.tls else None
    server = Server(app, listener.header_limit, Http1, Http2, listener.admission)
    listening = bind(listener)
    try:
        async with _accepting(server, listening, tls):
            ready(listening.getsockname()[1])
            await stop.wait()
    finally:
        await server.close(grace)


@asynccontextmanager
async def _accepting(server: Server, listening: socket.socket, tls: ssl.SSLContext | None) -> AsyncIterator[None]:
    """Accept connections during the context."""
    if tls is None:
        accepting = await asyncio.get_running_loop().create_server(server.streams, sock=listening, backlog=BACKLOG)
        try:
            yield
        finally:
            accepting.close()  # without wait_closed(): since Python 3.12 it waits for the clients
        return
    task = asyncio.ensure_future(Handshakes(tls, server).accept(listening))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))
        listening.close()
