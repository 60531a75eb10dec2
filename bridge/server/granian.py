"""The server `granian`: Granian's embedded worker on the bridge's event loop, and a watch over its connections.

Granian differs from Hypercorn in points that the bridge cannot change:

- It adds a `server` field to responses.
- It sends the head of a response with the first part of the body (which may be empty), except for text/event-stream.
- When it stops, it waits the whole grace period for an idle HTTP/2 client that does not answer a ping.
- Over HTTP/1.1, if a client has sent its next request already, Granian notices a close at the next send, and does not
  notice a half-close.
- It has a limit for all connections only, and never closes a client that sends nothing: see `ConnectionWatch`.
"""

import asyncio
import logging
import os
import resource
import socket
import stat
import sys
from codecs import BOM_UTF8
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from math import ceil
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from starlette.types import ASGIApp

from bridge.server import connection_limits
from bridge.server.connection_limits import Admission, IdleConnections
from bridge.server.granian_dispatcher import Dispatcher
from bridge.server.listener import Listener, Tls, bind, tls_context
from bridge.server.unfinished_requests import CLEANUP_TIMEOUT, UnfinishedRequests, cancel, finish

logger = logging.getLogger(__name__)

VERSION = "2.8.7"
CONNECTIONS = 16384
"""Connections that Granian accepts at most without an `Admission`. Further clients wait."""

GOAWAY_TIMEOUT = 1.0
"""Seconds that a client without requests in flight may take to close its connection after the GOAWAY."""

FLUSH = 0.1
"""Seconds between the last response and the GOAWAY, in which Granian sends that response."""


async def serve(
    app: ASGIApp, listener: Listener, *, stop: asyncio.Event, grace: float, ready: Callable[[int], None]
) -> None:
    """Serve with Granian; see `bridge.server.serve`."""
    core = load()
    if listener.tls:
        tls_context(listener.tls)  # raises OSError; Granian panics if it cannot read a file
    listening = bind(listener)
    address = listening.getsockname()
    requests = UnfinishedRequests(app)
    dispatcher = Dispatcher(requests, stop)
    before = _threads()
    signal, stopped = _start(core, dispatcher, listener, listening)
    threads = _threads() - before
    stopping = asyncio.ensure_future(stop.wait())
    ended: set[asyncio.Future[Any]] = {stopping, stopped}
    watch = None
    if listener.admission:
        watch = asyncio.ensure_future(ConnectionWatch(address, dispatcher, listener.admission).run())
    try:
        ready(address[1])
        await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        if watch is not None:
            watch.cancel()
        await dispatcher.begin_all()
        await _stop(signal, stopped, requests, address, grace)
        dispatcher.close()
        await _wait_for_threads(threads)


def load() -> ModuleType:
    """Import Granian. Raises RuntimeError if it is not installed, or in another version."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        granian = import_module("granian")
        core = import_module("granian._granian")
    except ImportError as error:
        raise RuntimeError("Granian needs the extra fast: pip install 'openmessaging-bridge[fast]'") from error
    finally:
        # Granian raises it; `limits.connections` goes by what was set
        resource.setrlimit(resource.RLIMIT_NOFILE, files)
    if granian.__version__ != VERSION:
        raise RuntimeError(f"the bridge embeds Granian {VERSION}; {granian.__version__} is installed")
    return core


def _start(
    core: ModuleType, dispatcher: Dispatcher, listener: Listener, listening: socket.socket
) -> tuple[Any, asyncio.Future[None]]:
    """Start the worker, which takes over `listening`. Returns its stop signal, and a future of its end.

    Granian's `embed.Server` is not used: it binds with SO_REUSEPORT (a port in use would not be an error, and the
    number that port 0 gets would be unknown), its logging.config.dictConfig closes the log handlers of the whole
    process, and it wakes the event loop twice for each request.
    """
    loop = asyncio.get_running_loop()
    http, net, constants = (import_module(f"granian.{name}") for name in ("http", "net", "constants"))
    spec = (listening.detach(), False)
    holder = net.SocketHolder(*spec, connection_limits.BACKLOG) if sys.platform == "linux" else net.SocketHolder(*spec)
    http1 = http.HTTP1Settings(
        header_read_timeout=int(connection_limits.KEEP_ALIVE * 1000),  # also closes idle connections
        max_buffer_size=max(8192, listener.header_limit),
    )
    http2 = http.HTTP2Settings(
        max_concurrent_streams=connection_limits.MAX_STREAMS,
        max_headers_size=listener.header_limit,
        keep_alive_interval=int(connection_limits.PING_INTERVAL * 1000),
        keep_alive_timeout=ceil(connection_limits.PING_TIMEOUT),  # in seconds
        max_send_buffer_size=65536,
        max_frame_size=65536,
    )
    worker = core.ASGIWorker(
        1,  # worker number
        (None, holder),
        None,  # inherited socket
        1,  # runtime threads
        512,  # runtime blocking threads, started on demand: Granian's default
        1,  # blocking threads; `Dispatcher.schedule` relies on there being one
        30,  # seconds until an unused one ends
        listener.admission.limit + 1 if listener.admission else CONNECTIONS,  # `ConnectionWatch` closes the last one
        constants.HTTPModes.auto,
        http1,
        http2,
        False,  # WebSocket
        None,  # static files
        *_tls(listener.tls),
        (None, None),  # metrics
    )
    stopped: asyncio.Future[None] = loop.create_future()
    signal = core.WorkerSignal()
    signal.add_cb(lambda: loop.call_soon_threadsafe(stopped.set_result, None))
    scheduler = core.CallbackScheduler(loop, None, None, None, None)
    scheduler._schedule_fn = dispatcher.schedule  # noqa: SLF001 - what Granian's own schedulers set
    worker.serve_async(scheduler, loop, signal)
    return signal, stopped


def _tls(tls: Tls | None) -> tuple[object, ...]:
    if tls is None:
        return (False, None, None, None, "tls1.2", None, [], False)
    ca = _pem(tls.client_ca) if tls.client_ca else None
    return (True, _pem(tls.certificate), _pem(tls.key), None, "tls1.2", ca, [], ca is not None)


def _pem(path: Path) -> str:
    """Return the path of a PEM file for Granian, which does not know the byte order mark that OpenSSL skips."""
    pem = path.read_bytes()
    if not pem.startswith(BOM_UTF8):
        return str(path)
    copy = os.memfd_create(path.name)  # a private key must not lie in another file
    os.write(copy, pem.removeprefix(BOM_UTF8))
    return f"/proc/self/fd/{copy}"


async def _stop(
    signal: Any,  # noqa: ANN401 - Granian's
    stopped: asyncio.Future[None],
    requests: UnfinishedRequests,
    address: tuple[Any, ...],
    grace: float,
) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + grace
    # Granian begins its stop with a GOAWAY, on which python-h2, and so httpx, drops every open stream.
    requests.refusing = True
    await finish(requests.tasks, grace)
    await cancel(requests.tasks)  # before the connections, so that HTTP/2 streams are reset first
    if not requests.tasks:
        await asyncio.sleep(FLUSH)
    signal.set()
    # Granian waits for its clients: an idle one that does not answer the ping after the GOAWAY would delay the stop by
    # the whole grace period (20 s measured), with no request left to answer.
    await asyncio.wait({stopped}, timeout=max(0.0, min(GOAWAY_TIMEOUT, deadline - loop.time())))
    if not stopped.done():
        shut_down_all(address)
    await asyncio.wait({stopped}, timeout=CLEANUP_TIMEOUT)
    if not stopped.done():
        logger.warning("Granian did not close its connections")


def _threads() -> frozenset[str]:
    """The native threads of this process; empty on systems without /proc."""
    tasks = Path("/proc/self/task")
    return frozenset(entry.name for entry in tasks.iterdir()) if tasks.exists() else frozenset()


async def _wait_for_threads(threads: frozenset[str]) -> None:
    """Wait for threads to end, for `CLEANUP_TIMEOUT` seconds at most.

    Granian's threads run on for some milliseconds. If one uses Python while the interpreter shuts down, it panics: seen
    about once in fifty stops, as a Rust backtrace after a clean exit.
    """
    deadline = asyncio.get_running_loop().time() + CLEANUP_TIMEOUT
    while threads & _threads() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - no call waits for them
        await asyncio.sleep(0.005)


INTERVAL: Final = 1.0
"""Seconds between two looks at the connections."""
SLICE: Final = 256
"""Files that are looked at before requests have their turn: about a millisecond."""


class ConnectionWatch:
    """Closes the connections of one port that are too many or idle, until it is cancelled.

    Granian does not show its connections, so they are found among the open files of the process, once a second.
    """

    def __init__(self, address: tuple[Any, ...], dispatcher: Dispatcher, admission: Admission) -> None:
        self._address = address
        self._dispatcher = dispatcher
        self._admission = admission
        self._idle = IdleConnections(connection_limits.KEEP_ALIVE)
        self._clients: dict[int, tuple[str, str]] = {}
        """Host and port of each accepted client, as Granian writes them, by the number (inode) of its socket."""

    async def run(self) -> None:
        """Close what is too many or idle, once every `INTERVAL`."""
        while True:
            await asyncio.sleep(INTERVAL)
            with suppress(OSError):  # the process has no descriptor left to list its files: again at the next look
                await self._look()

    async def _look(self) -> None:
        requested, now = self._dispatcher.take_requested(), asyncio.get_running_loop().time()
        there: set[int] = set()
        for number, descriptor in enumerate(_descriptors(), 1):
            try:
                self._check(descriptor, there, requested, now)
            except (OSError, IndexError):
                continue  # no connection of this port, or closed meanwhile
            if number % SLICE == 0:
                await asyncio.sleep(0)
        for closed in self._clients.keys() - there:
            self._admission.release(self._clients.pop(closed)[0])
        self._idle.forget_others(there)

    def _check(self, descriptor: int, there: set[int], requested: set[Any], now: float) -> None:
        status = os.fstat(descriptor)
        inode = status.st_ino
        client = self._clients.get(inode)
        if client is None:
            if not stat.S_ISSOCK(status.st_mode):
                return
            with socket.socket(fileno=os.dup(descriptor)) as accepted:
                if not is_accepted_on(accepted, self._address):
                    return
                host, port = accepted.getpeername()[:2]
                client = host, str(port)
                if not self._admission.accept(host):
                    accepted.shutdown(socket.SHUT_RDWR)
                    return
            self._clients[inode] = client
        there.add(inode)
        if self._idle.is_too_long(inode, now, busy=client in requested or client in self._dispatcher.unanswered):
            with socket.socket(fileno=os.dup(descriptor)) as accepted:
                accepted.shutdown(socket.SHUT_RDWR)


def _descriptors() -> list[int]:
    return [int(entry.name) for entry in Path("/dev/fd").iterdir()]


def is_accepted_on(candidate: socket.socket, address: tuple[Any, ...]) -> bool:
    """Whether a socket is a connection that was accepted on `address`. Raises OSError if it is not connected."""
    return bool(candidate.getsockname()[1:2] == address[1:2] and candidate.getpeername())


def shut_down_all(address: tuple[Any, ...]) -> None:
    """Shut down every connection that was accepted on `address`, which Granian has no call for."""
    for descriptor in _descriptors():
        try:
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue  # `socket` would raise an exception and leave the copy open
            with socket.socket(fileno=os.dup(descriptor)) as accepted:
                if is_accepted_on(accepted, address):
                    accepted.shutdown(socket.SHUT_RDWR)
        except (OSError, IndexError):
            continue  # not a socket, or closed meanwhile
