"""Runs a server of each kind, or Hypercorn as released (`stock`), with one small application."""

import asyncio
import gc
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, cast

import pytest
from hypercorn.asyncio.run import worker_serve
from hypercorn.config import Config, Sockets
from hypercorn.typing import ASGIFramework
from hypercorn.utils import wrap_app
from starlette.types import ASGIApp, Receive, Scope, Send

from bridge.server import Listener, ServerKind, Tls, serve
from bridge.server.connection_limits import Admission

Kind = Literal["hypercorn", "granian", "stock"]

BOTH = pytest.mark.parametrize("kind", ["hypercorn", "granian"])


def fails_on_stock(
    defect: str, *, since: tuple[int, int] = (3, 11), ours: tuple[Kind, ...] = ("hypercorn", "granian")
) -> pytest.MarkDecorator:
    """Run a test on the bridge's servers, and on stock Hypercorn, where it must fail because of `defect`.

    If it passes there, the bridge no longer needs its own code. `make test-all` runs that part.
    """
    marks = [
        pytest.mark.extended,
        pytest.mark.xfail(strict=True, reason=defect),
        pytest.mark.skipif(sys.version_info < since, reason=f"a defect since Python {since}"),
    ]
    stock = pytest.param("stock", marks=marks)
    return pytest.mark.parametrize("kind", [*ours, stock])


def timeout_for(kind: Kind) -> float:
    """Seconds to wait for an event. It is short for stock Hypercorn, where the event must not occur."""
    return 3.0 if kind == "stock" else 15.0


class App:
    """Responds as the path says, and counts."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.started = 0
        self.active = 0
        self.sent = 0
        self.disconnects = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        self.started += 1
        self.active += 1
        try:
            name, _, number = scope["path"].strip("/").partition("/")
            await getattr(self, f"_{name}")(int(number or 0), scope, receive, send)
        finally:
            self.active -= 1

    async def _size(self, _number: int, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive)
        await reply(send, f"{scope['http_version']} {len(body)}".encode())

    async def _echo(self, _number: int, _scope: Scope, receive: Receive, send: Send) -> None:
        await reply(send, await read_body(receive))

    async def _bytes(self, number: int, _scope: Scope, _receive: Receive, send: Send) -> None:
        await reply(send, b"x" * number)

    async def _chunks(self, number: int, _scope: Scope, _receive: Receive, send: Send) -> None:
        await start(send)
        for at in range(0, number, 10_000):
            await send({"type": "http.response.body", "body": b"x" * min(10_000, number - at), "more_body": True})
        await send({"type": "http.response.body"})

    async def _early(self, status: int, _scope: Scope, _receive: Receive, send: Send) -> None:
        await reply(send, b"too early", status)

    async def _hold(self, _number: int, _scope: Scope, _receive: Receive, send: Send) -> None:
        await self.release.wait()
        await reply(send, b"held")

    async def _endless(self, _number: int, _scope: Scope, receive: Receive, send: Send) -> None:
        await start(send)
        await send({"type": "http.response.body", "body": b"tick\n", "more_body": True})
        await wait_for_disconnect(receive)

    async def _flood(self, number: int, _scope: Scope, _receive: Receive, send: Send) -> None:
        await start(send)
        while self.sent < number:
            await send({"type": "http.response.body", "body": b"x" * 16384, "more_body": True})
            self.sent += 16384
        await send({"type": "http.response.body"})

    async def _push(self, size: int, _scope: Scope, receive: Receive, send: Send) -> None:
        """Behave like a push stream: one task receives, another sends `size` bytes at a time (0: nothing)."""
        await start(send, kind=b"application/x-ndjson")
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        sending = asyncio.create_task(self._send_endlessly(size, send)) if size else None
        try:
            await wait_for_disconnect(receive)
            self.disconnects += 1
        finally:
            if sending is not None:
                sending.cancel()

    async def _send_endlessly(self, size: int, send: Send) -> None:
        while True:
            await send({"type": "http.response.body", "body": b"x" * size, "more_body": True})
            self.sent += size

    async def _interrupt(self, _number: int, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send until `release`, cancel in the middle of a send, then end the response normally."""
        await start(send)
        sending = asyncio.create_task(self._send_endlessly(16384, send))
        await self.release.wait()
        sending.cancel()
        await asyncio.wait({sending})
        await send({"type": "http.response.body", "body": b"the end"})

    async def _crash(self, _number: int, _scope: Scope, _receive: Receive, send: Send) -> None:
        await start(send)
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError("a bug in the application")


async def until_tasks(tasks: int, seconds: float) -> None:
    """Wait until at most `tasks` tasks are left. Raises AssertionError after `seconds`."""
    for _ in range(int(seconds / 0.05)):
        if len(asyncio.all_tasks()) <= tasks:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"still running: {asyncio.all_tasks()}")


async def until_blocked(app: App) -> None:
    """Wait until the application can send no more."""
    before = None
    while before != app.sent:
        before = app.sent
        await asyncio.sleep(0.3)


async def read_body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body)


async def wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def start(send: Send, status: int = 200, kind: bytes = b"text/event-stream") -> None:
    # Granian sends the head of a response with the first part of its body, except for this type.
    headers = [(b"content-type", kind)]
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def reply(send: Send, body: bytes, status: int = 200) -> None:
    headers = [(b"content-type", b"application/octet-stream"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@dataclass
class Running:
    port: int
    stop: asyncio.Event
    task: "asyncio.Task[None]"


@asynccontextmanager
async def running(  # noqa: PLR0913 - most are passed by name
    kind: Kind,
    app: ASGIApp,
    *,
    tls: Tls | None = None,
    grace: float = 1.0,
    header_limit: int = 32768,
    admission: Admission | None = None,
) -> AsyncIterator[Running]:
    stop = asyncio.Event()
    before = asyncio.all_tasks()
    if kind == "stock":
        listening = socket.create_server(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        task = asyncio.create_task(_serve_stock(app, listening, stop))
    else:
        port, task = await _start_ours(kind, app, Listener("127.0.0.1", 0, tls, header_limit, admission), stop, grace)
    try:
        yield Running(port, stop, task)
    finally:
        stop.set()
        if kind == "stock":
            await asyncio.wait({task}, timeout=0.5)
            await _cancel_all(asyncio.all_tasks() - before)
        else:
            await task


async def _cancel_all(tasks: "set[asyncio.Task[Any]]") -> None:
    """Cancel the tasks that stock Hypercorn leaves behind, and collect its garbage: pytest would fail on it later."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=2)  # some do not end: they wait for their clients in a finally
    gc.collect()


async def _start_ours(
    kind: ServerKind, app: ASGIApp, listener: Listener, stop: asyncio.Event, grace: float
) -> tuple[int, "asyncio.Task[None]"]:
    ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(kind, app, listener, stop=stop, grace=grace, ready=ready.set_result))
    waiting: set[asyncio.Future[Any]] = {ready, task}
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        await task
    return int(ready.result()), task


async def _serve_stock(app: ASGIApp, listening: socket.socket, stop: asyncio.Event) -> None:
    config = Config()
    config.accesslog = config.errorlog = None
    config.graceful_timeout = 0.2
    listening.setblocking(False)
    sockets = Sockets([], [listening], [])
    await worker_serve(
        wrap_app(cast("ASGIFramework", app), 0, "asgi"), config, sockets=sockets, shutdown_trigger=stop.wait
    )
