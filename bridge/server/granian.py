"""Granian's embedded worker on our event loop.

What is Granian's own, and cannot be cured from here: it names itself in `server`; it holds the head of an answer back
until its first body (an empty part will do), except for text/event-stream; a stop waits its whole grace for an idle
HTTP/2 client that does not answer a ping; and over HTTP/1.1 a client that sent its next request already and then closes
is noticed at the next send, one that then half-closes not at all.
"""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from math import ceil
from pathlib import Path
from types import ModuleType
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bridge.server import listener as limits
from bridge.server.listener import BACKLOG, KEEP_ALIVE, MAX_STREAMS, Listener, Tls, bind, tls_context
from bridge.server.requests import LAST_WORDS, Requests, cancel, finish

logger = logging.getLogger(__name__)

VERSION = "2.8.7"
CONNECTIONS = 16384
"""Granian accepts no more than this many, without a word to the client: as good as no limit."""

PART = 65536
"""Bytes of a stream handed over at a time. Granian holds six of what it is given, whatever their size."""

GOODBYE = 1.0
"""Seconds a client with nothing in flight has to leave after the GOAWAY."""

FLUSH = 0.1
"""Seconds for the last answers to leave before the GOAWAY."""


async def serve(
    app: ASGIApp, listener: Listener, *, stop: asyncio.Event, grace: float, ready: Callable[[int], None]
) -> None:
    """Serve with Granian; see `bridge.server.serve`."""
    embed = _load()
    if listener.tls:
        tls_context(listener.tls)  # Granian panics on a file it cannot read
    requests = Requests(_tamed(app))
    listening = bind(listener)
    address = listening.getsockname()
    before = threads = _threads()
    signal, worker = _start(embed, requests, listener, listening)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.sleep(0)  # the worker's first step starts its threads
        threads = _threads()
        ready(address[1])
        await asyncio.wait({stopped, worker}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        await _end(signal, worker, requests, address, grace)
        await _gone(threads - before)
    if worker.done():
        worker.result()


def _load() -> ModuleType:
    try:
        granian = import_module("granian")
        embed = import_module("granian.server.embed")
    except ImportError as error:
        raise RuntimeError("--server granian needs the extra: pip install 'openmessaging-bridge[fast]'") from error
    if granian.__version__ != VERSION:
        raise RuntimeError(f"the bridge drives Granian {VERSION} from inside; {granian.__version__} is installed")
    return embed


def _start(
    embed: ModuleType, app: Requests, listener: Listener, listening: socket.socket
) -> tuple[Any, asyncio.Task[None]]:
    """Start the worker on `listening`, which is its from now on.

    Not through `embed.Server`: it binds by itself with SO_REUSEPORT (a port in use would not be an error, and port 0
    unknown), and its logging.config.dictConfig closes the handlers of the whole process.
    """
    http, net, constants = (import_module(f"granian.{name}") for name in ("http", "net", "constants"))
    spec = (listening.detach(), False)
    holder = net.SocketHolder(*spec, BACKLOG) if sys.platform == "linux" else net.SocketHolder(*spec)
    signal = embed.WorkerSignal()
    http1 = http.HTTP1Settings(
        header_read_timeout=int(KEEP_ALIVE * 1000),  # also the time a connection may be idle
        max_buffer_size=max(8192, listener.header_limit),
    )
    http2 = http.HTTP2Settings(
        max_concurrent_streams=MAX_STREAMS,
        max_headers_size=listener.header_limit,
        keep_alive_interval=int(limits.PING * 1000),
        keep_alive_timeout=ceil(limits.PONG),  # in seconds
        max_send_buffer_size=65536,
    )
    work = embed.Server._spawn_asgi_worker(  # noqa: SLF001 - see above
        1,  # worker number
        signal,
        app,
        (None, holder),
        1,  # runtime threads
        512,  # runtime blocking threads, started on demand: Granian's default
        1,  # blocking threads
        30,  # seconds until an unused one ends
        CONNECTIONS,
        constants.TaskImpl.asyncio,
        constants.HTTPModes.auto,
        http1,
        http2,
        False,  # WebSocket
        None,  # static files
        None,  # access log
        _tls(listener.tls),
        {"url_path_prefix": None},
    )
    return signal, asyncio.get_running_loop().create_task(work)


def _tamed(app: ASGIApp) -> ASGIApp:
    """Cure two defects of Granian's `send`. Whole answers, the many, pass through without a coroutine of ours."""

    def tamed(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        head = scope["method"] == "HEAD"

        def tamed_send(message: Message) -> Awaitable[None]:
            if message.get("more_body"):
                return _send_a_part(None if head else send, message)
            if head and message["type"] == "http.response.body":
                return send({"type": "http.response.body", "body": b""})  # over HTTP/2 it sends the body of a HEAD
            return send(message)

        return app(scope, receive, tamed_send)

    return tamed


async def _send_a_part(send: Send | None, message: Message) -> None:
    if send is not None:
        body = message.get("body", b"")
        for at in range(0, len(body) or 1, PART):
            await send({"type": "http.response.body", "body": body[at : at + PART], "more_body": True})
    # To a client that has left it returns at once: 67 million sends in 50 s, and nothing else ran.
    await asyncio.sleep(0)


def _tls(tls: Tls | None) -> tuple[object, ...]:
    if tls is None:
        return (False, None, None, None, "tls1.2", None, [], False)
    ca = str(tls.client_ca) if tls.client_ca else None
    return (True, str(tls.certificate), str(tls.key), None, "tls1.2", ca, [], ca is not None)


async def _end(
    signal: Any,  # noqa: ANN401 - Granian's
    worker: asyncio.Task[None],
    requests: Requests,
    address: tuple[Any, ...],
    grace: float,
) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + grace
    # Granian's first sign of a stop is a GOAWAY, on which python-h2, and so httpx, drops every answer it waits for.
    requests.refusing = True
    await finish(requests.tasks, grace)
    await cancel(requests.tasks)  # first, so that their streams are reset and not just cut
    if not requests.tasks:
        await asyncio.sleep(FLUSH)
    signal.set()
    # It waits for its clients: one that is idle and does not answer the ping that follows the GOAWAY would hold us for
    # the whole grace (20 s measured), with nothing left to answer.
    await asyncio.wait({worker}, timeout=max(0.0, min(GOODBYE, deadline - loop.time())))
    if not worker.done():
        _cut(address)
    await asyncio.wait({worker}, timeout=LAST_WORDS)
    if not worker.done():
        logger.warning("Granian did not end its connections")


def _threads() -> frozenset[str]:
    """The native threads of this process; none where the system does not tell."""
    tasks = Path("/proc/self/task")
    return frozenset(entry.name for entry in tasks.iterdir()) if tasks.exists() else frozenset()


async def _gone(threads: frozenset[str]) -> None:
    """Wait for threads to end, for `LAST_WORDS` seconds at most.

    Granian's go on for some milliseconds. One that meets an interpreter which is shutting down panics: seen once in
    some fifty stops, as a Rust backtrace after a clean exit.
    """
    deadline = asyncio.get_running_loop().time() + LAST_WORDS
    while threads & _threads() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - no call tells
        await asyncio.sleep(0.005)


def _cut(address: tuple[Any, ...]) -> None:
    """Shut down every connection accepted on `address`: Granian has no call for it."""
    for entry in Path("/dev/fd").iterdir():
        try:
            with socket.socket(fileno=os.dup(int(entry.name))) as accepted:
                if accepted.getsockname()[1:2] == address[1:2] and accepted.getpeername():
                    accepted.shutdown(socket.SHUT_RDWR)
        except (OSError, IndexError):
            continue  # not a socket, or gone meanwhile
