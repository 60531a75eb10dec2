"""The server `hypercorn`: Hypercorn's HTTP/1.1 and request state machine, and HTTP/2 on python-h2."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version

from starlette.types import ASGIApp

from bridge.server.connection_limits import BACKLOG
from bridge.server.hypercorn.connection import Connection, HttpProtocol, Server
from bridge.server.hypercorn.handshake import Handshakes
from bridge.server.hypercorn.http1 import Http1
from bridge.server.hypercorn.http2 import Http2
from bridge.server.listener import Listener, bind, tls_context

VERSION = "0.18.0"


async def serve(
    app: ASGIApp, listener: Listener, *, stop: asyncio.Event, grace: float, ready: Callable[[int], None]
) -> None:
    """Serve with Hypercorn; see `bridge.server.serve`."""
    if (installed := version("hypercorn")) != VERSION:
        raise RuntimeError(f"the bridge subclasses Hypercorn {VERSION}; {installed} is installed")
    tls = tls_context(listener.tls) if listener.tls else None
    server = Server(app, listener.header_limit, _protocol, listener.admission)
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
        accepting = await asyncio.get_running_loop().create_server(server.accept, sock=listening, backlog=BACKLOG)
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


def _protocol(connection: Connection, http2: bool) -> HttpProtocol:
    return Http2(connection) if http2 else Http1(connection)
