"""Runs a server of each kind, and the stock Hypercorn beside them, with one small application."""

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

from bridge.server import Listener, Server, Tls, serve

Kind = Literal["hypercorn", "granian", "stock"]

BOTH = pytest.mark.parametrize("kind", ["hypercorn", "granian"])


def cured(defect: str, *, since: tuple[int, int] = (3, 11)) -> pytest.MarkDecorator:
    """Run on both servers, and on Hypercorn as it is released: it must fail there, or our cure is no longer needed."""
    marks = [
        pytest.mark.xfail(strict=True, reason=defect),
        pytest.mark.skipif(sys.version_info < since, reason=f"a defect since Python {since}"),
    ]
    stock = pytest.param("stock", marks=marks)
    return pytest.mark.parametrize("kind", ["hypercorn", "granian", stock])


def patience(kind: Kind) -> float:
    """Seconds to wait for what should happen: not long where it must not."""
    return 3.0 if kind == "stock" else 15.0


class App:
    """Answers by path; counts what it does."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.started = 0
        self.active = 0
        self.sent = 0
        self.heard = 0

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
        body = await whole(receive)
        await reply(send, f"{scope['http_version']} {len(body)}".encode())

    async def _echo(self, _number: int, _scope: Scope, receive: Receive, send: Send) -> None:
        await reply(send, await whole(receive))

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
        await left(receive)

    async def _flood(self, number: int, _scope: Scope, _receive: Receive, send: Send) -> None:
        await start(send)
        while self.sent < number:
            await send({"type": "http.response.body", "body": b"x" * 16384, "more_body": True})
            self.sent += 16384
        await send({"type": "http.response.body"})

    async def _push(self, size: int, _scope: Scope, receive: Receive, send: Send) -> None:
        """Do what a push stream does: one task listens, another sends, `size` bytes at a time (0: nothing)."""
        await start(send, kind=b"application/x-ndjson")
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        pouring = asyncio.create_task(self._pour(size, send)) if size else None
        try:
            await left(receive)
            self.heard += 1
        finally:
            if pouring is not None:
                pouring.cancel()

    async def _pour(self, size: int, send: Send) -> None:
        while True:
            await send({"type": "http.response.body", "body": b"x" * size, "more_body": True})
            self.sent += size

    async def _patience(self, _number: int, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send until it is told to stop, in the middle of a send; then end as if nothing had been."""
        await start(send)
        pouring = asyncio.create_task(self._pour(16384, send))
        await self.release.wait()
        pouring.cancel()
        await asyncio.wait({pouring})
        await send({"type": "http.response.body", "body": b"the end"})

    async def _crash(self, _number: int, _scope: Scope, _receive: Receive, send: Send) -> None:
        await start(send)
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError("a bug in the application")


async def back_to(tasks: int, seconds: float) -> None:
    """Wait until no more than `tasks` tasks are left; AssertionError if that does not come."""
    for _ in range(int(seconds / 0.05)):
        if len(asyncio.all_tasks()) <= tasks:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"left behind: {asyncio.all_tasks()}")


async def blocked(app: App) -> None:
    """Wait until what the application sends goes nowhere any more."""
    before = None
    while before != app.sent:
        before = app.sent
        await asyncio.sleep(0.3)


async def whole(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body)


async def left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def start(send: Send, status: int = 200, kind: bytes = b"text/event-stream") -> None:
    # Granian holds the head of an answer back until its first body, except of this type.
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
async def running(
    kind: Kind, app: ASGIApp, *, tls: Tls | None = None, grace: float = 1.0, header_limit: int = 32768
) -> AsyncIterator[Running]:
    stop = asyncio.Event()
    before = asyncio.all_tasks()
    if kind == "stock":
        listening = socket.create_server(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        task = asyncio.create_task(_stock(app, listening, stop))
    else:
        port, task = await _ours(kind, app, Listener("127.0.0.1", 0, tls, header_limit), stop, grace)
    try:
        yield Running(port, stop, task)
    finally:
        stop.set()
        if kind == "stock":
            await asyncio.wait({task}, timeout=0.5)
            await _clear(asyncio.all_tasks() - before)
        else:
            await task


async def _clear(tasks: "set[asyncio.Task[Any]]") -> None:
    """End what the stock server leaves behind, and its garbage: pytest fails on what the collector finds later."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=2)  # not all do end: some wait for their clients in a finally
    gc.collect()


async def _ours(
    kind: Server, app: ASGIApp, listener: Listener, stop: asyncio.Event, grace: float
) -> tuple[int, "asyncio.Task[None]"]:
    ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(kind, app, listener, stop=stop, grace=grace, ready=ready.set_result))
    waiting: set[asyncio.Future[Any]] = {ready, task}
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        await task
    return int(ready.result()), task


async def _stock(app: ASGIApp, listening: socket.socket, stop: asyncio.Event) -> None:
    config = Config()
    config.accesslog = config.errorlog = None
    config.graceful_timeout = 0.2
    listening.setblocking(False)
    sockets = Sockets([], [listening], [])
    await worker_serve(
        wrap_app(cast("ASGIFramework", app), 0, "asgi"), config, sockets=sockets, shutdown_trigger=stop.wait
    )
