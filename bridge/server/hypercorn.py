"""Hypercorn's protocols on our own accept loop."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from typing import Any

from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from starlette.types import ASGIApp

from bridge.server.link import Link, Reader
from bridge.server.listener import BACKLOG, Listener, bind, tls_context
from bridge.server.requests import Requests, cancel, finish

VERSION = "0.18.0"
HANDSHAKE = 10.0
"""Seconds for a TLS handshake."""


class House:
    """What all connections of one port share."""

    def __init__(self, app: ASGIApp, header_limit: int) -> None:
        self.requests = Requests(app)
        self.header_limit = header_limit
        self.context = WorkerContext(None)
        self.config = Config()
        self.config.include_server_header = False
        self.config.accesslog = None
        self.config.errorlog = logging.getLogger("hypercorn.error")
        self.config.h11_max_incomplete_size = header_limit
        self.tasks: set[asyncio.Task[None]] = set()
        self.links: set[Link] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` beside the others; it logs its own failures."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def accept(self, reader: Reader, writer: asyncio.StreamWriter) -> None:
        """Serve a new connection."""
        if self.context.terminated.is_set():
            writer.transport.abort()
            return
        link = Link(self, reader, writer)
        self.links.add(link)
        self.spawn(link.run()).add_done_callback(lambda _: self.links.discard(link))

    async def close(self, grace: float) -> None:
        """Let requests in flight finish, then end everything."""
        await self.context.terminated.set()
        for link in list(self.links):
            link.drain()
        await finish(self.tasks, grace)
        await cancel(self.requests.tasks)  # first, so that their streams are reset and not just cut
        await cancel(self.tasks)


async def serve(
    app: ASGIApp, listener: Listener, *, stop: asyncio.Event, grace: float, ready: Callable[[int], None]
) -> None:
    """Serve with Hypercorn; see `bridge.server.serve`."""
    if (installed := version("hypercorn")) != VERSION:
        raise RuntimeError(f"the bridge subclasses Hypercorn {VERSION}; {installed} is installed")
    tls: ssl.SSLContext | None = tls_context(listener.tls) if listener.tls else None
    house = House(app, listener.header_limit)
    listening = bind(listener)
    loop = asyncio.get_running_loop()

    def connection() -> asyncio.StreamReaderProtocol:
        reader = Reader(loop=loop)
        return asyncio.StreamReaderProtocol(reader, lambda _, writer: house.accept(reader, writer), loop)

    server = await loop.create_server(
        connection, sock=listening, backlog=BACKLOG, ssl=tls, ssl_handshake_timeout=HANDSHAKE if tls else None
    )
    try:
        ready(listening.getsockname()[1])
        await stop.wait()
    finally:
        server.close()  # and no wait_closed(): since Python 3.12 it waits for the clients
        await house.close(grace)
