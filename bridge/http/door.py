"""The ASGI door: reads one request within the limits, lets an endpoint answer it, writes the reply.

Endpoints never see ASGI, so that another server interface needs another door and nothing else.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from itertools import chain
from typing import Any, TypeVar

from starlette.types import Receive, Scope, Send

from bridge.errors import BodyInvalid, BodyTooLarge, BridgeError, HeadersTooLarge, Internal, RequestTimeout
from bridge.http.deadline import Deadline
from bridge.http.exchange import Endpoint, Pair, Reply, Request, Write, refuse
from bridge.http.guard import Guard
from bridge.http.limits import Limits
from bridge.telemetry import Telemetry
from bridge.wire.headers import Headers, parse
from bridge.wire.text import printable

T = TypeVar("T")

_log = logging.getLogger("bridge.http")


class Door:
    """One endpoint as an ASGI application."""

    def __init__(self, route: str, endpoint: Endpoint, guard: Guard, limits: Limits, telemetry: Telemetry) -> None:
        self._endpoint = endpoint
        self._guard = guard
        self._limits = limits
        self._deadline = Deadline(limits.body_timeout / 1000)
        self._observe = telemetry.observer(route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Whatever happens inside, the client gets a reply from the error tree."""
        begun = self._observe.begin()
        exchange = _Exchange(scope, receive, self._limits, self._deadline)
        status = 499
        try:
            reply = await self._reply(exchange)
            status = reply.status
            if exchange.gone:
                if reply.undo is not None:
                    reply.undo()
            elif reply.flow is None:
                await _send(send, reply)
            else:
                await exchange.unless_gone(_stream(send, reply, reply.flow))
        except asyncio.CancelledError:
            if not exchange.gone:
                raise
            _uncancel()
        finally:
            self._observe.end(begun, status)

    async def _reply(self, exchange: "_Exchange") -> Reply:
        allowed: list[Pair] = []
        try:
            headers = exchange.headers()
            allowed = self._guard.check(headers.plain.get(b"host"), headers.plain.get(b"origin"))
            # no name for the body here: whoever has read it may let go of it
            reply = await self._endpoint(await exchange.request(headers))
        except BridgeError as error:
            reply = refuse(error)
        except Exception:  # noqa: BLE001 - the last wall: no input may cost a client its answer
            _log.exception("a defect of the bridge")
            reply = refuse(Internal("The bridge failed; its log says more."))
        return reply._replace(headers=reply.headers + allowed) if allowed else reply


class _Exchange:
    """What one request still has to say: its body, and whether its client is there."""

    __slots__ = ("_deadline", "_limits", "_receive", "_scope", "gone")

    def __init__(self, scope: Scope, receive: Receive, limits: Limits, deadline: Deadline) -> None:
        self.gone = False
        self._deadline = deadline
        self._scope = scope
        self._receive = receive
        self._limits = limits

    def headers(self) -> Headers:
        pairs = self._scope["headers"]
        size = sum(map(len, chain.from_iterable(pairs)))
        if size > self._limits.headers:
            raise HeadersTooLarge(f"The headers have {size} bytes; at most {self._limits.headers} are allowed.")
        return parse(pairs)

    @property
    def bodiless(self) -> bool:
        return bool(self._scope["method"] != "POST")

    async def request(self, headers: Headers) -> Request:
        body = b"" if self.bodiless else await self.body(headers.plain.get(b"content-length"))
        client = self._scope.get("client")
        peer = f"{client[0]}:{client[1]}" if client else "unknown"
        return Request(headers, self._scope["query_string"], body, peer, self.unless_gone)

    async def unless_gone(self, work: Coroutine[object, object, T]) -> T:
        """Cancel the work when the client leaves meanwhile. Costs a task, so only what waits is guarded."""
        watcher = asyncio.ensure_future(self._watch(asyncio.current_task()))
        try:
            return await work
        finally:
            watcher.cancel()

    async def _watch(self, task: "asyncio.Task[Any] | None") -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        if task is not None:
            task.cancel()

    async def body(self, declared: bytes | None) -> bytes:
        limit = self._limits.body
        if declared is not None and declared.isdigit() and int(declared[:19]) > limit:
            raise BodyTooLarge(f"The body has {printable(declared)} bytes; at most {limit} are allowed.")
        chunks: list[bytes] = []
        size = 0
        try:
            with self._deadline.watch():
                more = True
                while more:
                    event = await self._receive()
                    if event["type"] == "http.disconnect":
                        self.gone = True
                        raise BodyInvalid("The client left before its body had arrived.")
                    chunk = event.get("body", b"")
                    size += len(chunk)
                    if size > limit:
                        raise BodyTooLarge(f"The body has more than {limit} bytes.")
                    chunks.append(chunk)
                    more = event.get("more_body", False)
        except TimeoutError:
            raise RequestTimeout(f"The body did not arrive within {self._limits.body_timeout} ms.") from None
        if declared is not None and declared != b"%d" % size:
            raise BodyInvalid(f"content-length says {printable(declared)}, the body has {size} bytes.")
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def _send(send: Send, reply: Reply) -> None:
    headers = reply.headers
    if reply.status != 204:  # noqa: PLR2004 - RFC 9110 8.6: no content-length in a 204
        headers = [*headers, (b"content-length", b"%d" % len(reply.body))]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


async def _stream(send: Send, reply: Reply, flow: Callable[[Write], Awaitable[None]]) -> None:
    async def write(piece: bytes) -> None:
        await send({"type": "http.response.body", "body": piece, "more_body": True})

    try:
        await send({"type": "http.response.start", "status": reply.status, "headers": reply.headers})
        await flow(write)
        await send({"type": "http.response.body", "body": b""})
    finally:
        if reply.undo is not None:
            reply.undo()


def _uncancel() -> None:
    """The cancellation was ours, to stop the work of a client that left: the task itself goes on."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
