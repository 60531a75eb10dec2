"""The ASGI side of an endpoint: reads one request within the limits, calls the endpoint, sends the reply.

Only this module and the modules of the two ports use ASGI.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, Final, TypeVar

from starlette.types import Receive, Scope, Send

from bridge.engine.client_limits import peer_of
from bridge.errors import (
    BackendUnavailable,
    BodyInvalid,
    BodyTooLarge,
    BridgeError,
    HeadersTooLarge,
    Internal,
    RequestMalformed,
    RequestTimeout,
)
from bridge.http.deadline import Deadline
from bridge.http.origin_policy import PULL, TAKING, OriginPolicy
from bridge.http.params import SIGNABLE, header_names, path_values
from bridge.http.request_and_reply import (
    NO_STORE,
    OMS_VERSION,
    READS_BODY,
    Limits,
    Pair,
    Reply,
    Request,
    Respond,
    Write,
    problem_reply,
)
from bridge.http.until_lost import UntilLost, uncancel
from bridge.identity.access import Access
from bridge.identity.caller import Caller
from bridge.metrics import BridgeMetrics
from bridge.wire.header_text import printable
from bridge.wire.headers import Headers, parse

T = TypeVar("T")

PART: Final = 128 << 10
"""Bytes of one write. The client must read each within `timeouts.stall`."""
WHOLE: Final = 16 << 10
"""Bytes of the largest body that is passed to the server at once: Granian does not say when the client has read it."""

_READS_REPLY: Final = "openmessaging_bridge.reads_reply"
"""An extension of the scope, of `bridge.server`: a function that returns False if the client will not get the reply."""
_CLIENT_CLOSED: Final = 499
"""Status in the metrics for a request whose client disconnected before the reply."""
_NO_CONTENT: Final = 204

_log = logging.getLogger("bridge.http")


class RequestHandler:
    """One endpoint as an ASGI application."""

    def __init__(  # noqa: PLR0913, PLR0917 - what all endpoints share
        self,
        route: str,
        respond: Respond,
        origins: OriginPolicy,
        limits: Limits,
        metrics: BridgeMetrics,
        access: Access | None = None,
    ) -> None:
        self.route = route
        self.access = access
        self.suggested = partial(header_names, route)
        self.respond = respond
        self.origins = origins
        self.takes = route in TAKING
        self.reads_body = route in READS_BODY
        self.is_signable = route in SIGNABLE
        self.limits = limits
        self.deadline = Deadline(limits.body_timeout / 1000)
        self.stall = Deadline(limits.stall / 1000)
        self.memory = metrics.memory
        self._observer = metrics.observer(route)
        self.refusals = metrics.refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Every exception becomes a problem document."""
        started, status = self._observer.begin(), _CLIENT_CLOSED
        exchange = _Exchange(self, scope, receive)
        try:
            reply = await exchange.answer()
            if reply.body:
                reply = exchange.hold_reply(reply)
            status = reply.status
            if exchange.disconnected and reply.cleanup is not None:
                reply.cleanup()
                reply = self.not_waited()
            if reply.stream is None:
                await self._send(send, reply)
            elif self.reads_body:  # it receives the disconnect
                await self._stream(exchange, send, reply, reply.stream)
            else:
                await exchange.watch_disconnect(self._stream(exchange, send, reply, reply.stream))
        except TimeoutError:  # the server ends the response without its last part
            _log.warning(
                "a response ends: its client has stopped reading",
                extra={"route": self.route, "ms": self.limits.stall},
            )
        except asyncio.CancelledError:
            if not exchange.disconnected:
                raise
            uncancel()
            if status == _CLIENT_CLOSED:  # the client may have closed only its sending side, and still read
                await self._send(send, self.not_waited())
        finally:
            if exchange.watcher is not None:  # the reply is sent: no disconnect is noted any more
                exchange.watcher.cancel()
            exchange.release()
            self._observer.end(started, status)

    def not_waited(self) -> Reply:
        """Return the reply to a request that ended its waiting because its client sends nothing more."""
        if self.route == PULL:
            return Reply(204, [OMS_VERSION, NO_STORE])
        return problem_reply(
            BackendUnavailable("The client has closed its side of the connection: nothing is waited for.")
        )

    async def _send(self, send: Send, reply: Reply) -> None:
        """Send a reply with a whole body. Raises `TimeoutError` if the client stops reading."""
        headers = reply.headers
        if reply.status != _NO_CONTENT:  # RFC 9110 8.6: no content-length in a 204
            headers = [*headers, (b"content-length", b"%d" % len(reply.body))]
        with self.stall.start():
            await send({"type": "http.response.start", "status": reply.status, "headers": headers})
            if len(reply.body) <= WHOLE:
                await send({"type": "http.response.body", "body": reply.body})
                return
        await self._send_parts(send, reply.body)
        await send({"type": "http.response.body", "body": b""})

    async def _send_parts(self, send: Send, body: bytes) -> None:
        for at in range(0, len(body) or 1, PART):
            with self.stall.start():
                await send({"type": "http.response.body", "body": body[at : at + PART], "more_body": True})

    async def _stream(
        self, exchange: "_Exchange", send: Send, reply: Reply, stream: Callable[[Write], Awaitable[None]]
    ) -> None:
        async def write(piece: bytes) -> None:
            try:
                exchange.hold(len(piece))
            except BridgeError as error:
                self.refusals[error.code] += 1
                raise
            try:
                await self._send_parts(send, piece)
            finally:
                exchange.release(len(piece))

        try:
            await send({"type": "http.response.start", "status": reply.status, "headers": reply.headers})
            await stream(write)
            await send({"type": "http.response.body", "body": b""})
        except BridgeError:
            pass  # not even the end of the stream fits into the budget: the server ends the response as it is
        finally:
            if reply.cleanup is not None:
                reply.cleanup()


class _Exchange:
    """One request: reads its headers and its body, calls the endpoint, and notices when its client disconnects."""

    __slots__ = (
        *("_caller", "_cors", "_handler", "_header_size", "_held", "_more", "_peer", "_receive", "_scope", "_watched"),
        *("disconnected", "watcher"),
    )

    def __init__(self, handler: RequestHandler, scope: Scope, receive: Receive) -> None:
        self.disconnected = False
        self._handler = handler
        self._scope = scope
        self._receive = receive
        self._more = True
        self._cors: list[Pair] = []
        self._header_size = 0
        self._held = 0
        self.watcher: asyncio.Task[None] | None = None
        """Receives the disconnect, once there is work that waits; until the reply is sent."""
        self._watched: asyncio.Task[Any] | None = None
        """The task that a disconnect cancels."""
        self._caller: Caller | None = None
        client = scope.get("client")
        self._peer = peer_of(*client) if client else "unknown"

    async def answer(self) -> Reply:
        """Read the request, and return the reply of the endpoint or the problem document of what it raises."""
        try:
            headers = self._headers()
            reads_reply = self._scope.get("extensions", {}).get(_READS_REPLY) if self._handler.takes else None
            if reads_reply is not None and not reads_reply():
                return self._with_cors(self._handler.not_waited())  # a message would be settled for nobody
            if self._handler.access is not None:
                try:
                    self._caller = await self._identify(self._handler.access, headers)
                except BridgeError:
                    await self._discard_body()
                    raise
            has_body = self._scope["method"] != "GET" and not self._handler.reads_body
            if not has_body:
                self.hold(self._header_size)
            # no local variable holds the body or the request: the endpoint can free them
            reply = await self._handler.respond(
                Request(
                    headers,
                    self._header_size,
                    self._scope["query_string"],
                    self._scope["path"],
                    await self._read_body(headers) if has_body else b"",
                    self._peer,
                    self.watch_disconnect if self._caller is None else self.cancel_on_disconnect,
                    self,
                    self._handler.route,
                    self._caller,
                )
            )
        except Exception as error:  # noqa: BLE001 - the client gets a reply even for a defect
            return self._problem(error)
        return self._with_cors(reply) if self._cors else reply

    def hold(self, size: int) -> None:
        """Count bytes that are held for the client. Raises `LimitReached` or `TooManyInFlight`."""
        if size:
            self._handler.memory.take(self._peer, size)
            self._held += size

    def hold_reply(self, reply: Reply) -> Reply:
        """Count a whole reply instead of the body of its request. Returns a refusal if it does not fit into the budget.

        A stream counts its pieces, and perhaps has begun to read the body.
        """
        self.release(max(0, self._held - self._header_size))
        try:
            self.hold(len(reply.body) + sum(map(len, chain.from_iterable(reply.headers))))
        except BridgeError as error:
            if reply.cleanup is not None:
                reply.cleanup()
            return self._problem(error)
        return reply

    def release(self, size: int | None = None) -> None:
        """Count bytes as not held any more; None: all of this request."""
        if released := self._held if size is None else size:
            self._held -= released
            self._handler.memory.release(self._peer, released)

    async def cancel_on_disconnect(self, work: Coroutine[object, object, T]) -> T:
        """See `CancelOnDisconnect`. Raises `Unauthenticated` or `NotPermitted` when the caller loses what it needs."""
        return await UntilLost(self._caller).run(self.watch_disconnect(work))

    async def watch_disconnect(self, work: Coroutine[object, object, T]) -> T:
        """Cancel work when the client disconnects. Watching costs a task, so only work that waits is watched."""
        self._watched = asyncio.current_task()
        if self.watcher is None:
            self.watcher = asyncio.ensure_future(self._watch())
        try:
            return await work
        finally:
            self._watched = None

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.disconnected = True
        if self._watched is not None:
            self._watched.cancel()

    def _headers(self) -> Headers:
        pairs = self._scope["headers"]
        self._header_size = size = sum(map(len, chain.from_iterable(pairs)))
        try:
            if size > (limit := self._handler.limits.headers):
                raise HeadersTooLarge(f"The headers have {size} bytes; at most {limit} are allowed.")
            headers = parse(pairs, self._handler.suggested)
            # Granian's hyper accepts other codings before `chunked`, and `chunked` twice. A proxy may not.
            coding = headers.plain.get(b"transfer-encoding")
            if coding is not None and coding.lower() != b"chunked":
                raise RequestMalformed("transfer-encoding: only `chunked` is supported, and only once.")
        except BridgeError:
            self._cors = self._handler.origins.check(dict(pairs))  # so that a web page can read the refusal
            raise
        self._cors = self._handler.origins.check(headers.plain)
        if self._handler.takes:
            self._handler.origins.check_taking(headers)
        return headers

    async def _identify(self, access: Access, headers: Headers) -> Caller:
        if self._handler.is_signable and (destination := path_values(self._scope["path"]).destination) in access.signed:
            return access.of_webhook(destination, self._peer)
        return await access.identify(headers.plain, self._peer)

    def _problem(self, error: Exception) -> Reply:
        if not isinstance(error, BridgeError):
            _log.error("internal error", exc_info=error, extra={"route": self._handler.route})
            error = Internal("Internal error in the bridge; its log has the details.")
        else:
            self._handler.refusals[error.code] += 1
        reply = problem_reply(error)
        if isinstance(error, RequestMalformed):  # where the request ends is uncertain
            reply.headers.append((b"connection", b"close"))
        return self._with_cors(reply)

    def _with_cors(self, reply: Reply) -> Reply:
        return reply._replace(headers=reply.headers + self._cors)

    async def read(self) -> bytes:
        """See `BodyStream`."""
        while self._more:
            event = await self._receive()
            if event["type"] == "http.disconnect":
                # Granian reports a broken chunk like this, and its client can read the reply.
                raise BodyInvalid("The body is incomplete: a chunk is broken, or the client disconnected.")
            self._more = event.get("more_body", False)
            if piece := event.get("body"):
                return bytes(piece)
        return b""

    async def _discard_body(self) -> None:
        """Read the body and drop it, so that the client gets the refusal: see `_read_body`."""
        size, handler = 0, self._handler
        if self._scope["method"] == "GET" or handler.reads_body:
            return
        with suppress(TimeoutError, BridgeError), handler.deadline.start():
            while size <= handler.limits.body and (piece := await self.read()):
                size += len(piece)

    async def _read_body(self, headers: Headers) -> bytes:
        handler, limit = self._handler, self._handler.limits.body
        declared = headers.plain.get(b"content-length", b"")
        length = int(declared[:19]) if declared.isdigit() else 0
        if length > limit:
            raise BodyTooLarge(f"The body has {printable(declared)} bytes; at most {limit} are allowed.")
        self.hold(self._header_size + length)
        chunks: list[bytes] = []
        size = 0
        try:
            with handler.deadline.start():
                # To the end, also where all bytes that were declared are here: a response before it makes Granian reset
                # a stream of HTTP/2, with which some clients lose it, and Hypercorn close a connection of HTTP/1.1.
                while self._more and (chunk := await self.read()):
                    size += len(chunk)
                    if size > limit:
                        raise BodyTooLarge(f"The body has more than {limit} bytes.")
                    if self._header_size + size > self._held:  # the length was not declared
                        self.hold(self._header_size + size - self._held)
                    chunks.append(chunk)
        except TimeoutError:
            raise RequestTimeout(f"The body did not arrive within {handler.limits.body_timeout} ms.") from None
        if declared != b"%d" % size and b"content-length" in headers.plain:
            raise BodyInvalid(f"content-length says {printable(declared)}, the body has {size} bytes.")
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)
