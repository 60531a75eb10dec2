"""Passes Granian's requests to the application, with one wake-up of the event loop for each.

Granian's own scheduler makes a task for each request, which then asks for the body and waits again. Here the body is
requested before the event loop gets the request, so that most requests arrive whole. See
docs/decisions/0076-granian-waits-for-the-end-of-a-body.md.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from contextvars import copy_context
from typing import Any, Final

from starlette.types import Message, Receive, Scope, Send

from bridge.errors import BridgeError
from bridge.server.request_target import host_refusal, normal_path
from bridge.server.tcp_state import TcpStates
from bridge.server.unfinished_requests import READS_REPLY, UnfinishedRequests

PART: Final = 65536
"""Bytes of a stream that are passed to Granian at a time. It buffers six parts, whatever their size."""

BUFFERED: Final = 6
"""Parts that Granian buffers. A long body ends with so many parts of one byte: when Granian accepts the last of them,
it has passed on everything before, so those bytes are not held any more."""

UNSEEN: Final = 16 << 10
"""Bytes of a part that may stay in Granian's buffer."""

UNCOUNTED: Final = 4 << 10
"""Bytes of a body that is received before its request is passed on. They are not yet in `limits.memory`; the rest of a
longer body is read in a task, which counts it."""
_DIGITS: Final = len(str(UNCOUNTED))

ARRIVAL: Final = 0.25
"""Seconds between two searches for requests whose body has not begun to arrive, or not ended. Each then gets a task,
which waits for it with the application's limit."""


class Dispatcher:
    """Begins each request of one Granian worker, and keeps those that are not answered yet."""

    def __init__(self, requests: UnfinishedRequests, stop: asyncio.Event) -> None:
        """`stop`: from then on, each answer over HTTP/1.1 is the last one on its connection."""
        self._stop = stop
        self._requests = requests
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._arriving: dict[Any, tuple[Any, Any]] = {}
        """Requests whose body is received, with the future of their first event; by the future of the awaited one."""
        self._waited: frozenset[Any] = frozenset()
        """The futures that were in `_arriving` at the last search."""
        self._timer = self._loop.call_later(ARRIVAL, self._search)
        self._tcp = TcpStates()
        self.unanswered: dict[Any, int] = {}
        """Host and port of each client that waits for a response, and how many."""
        self._requested: set[Any] = set()
        """Those of each client with a request since the last `take_requested`."""

    def take_requested(self) -> set[Any]:
        """Return the host and port of each client that has sent a request since the last call."""
        requested, self._requested = self._requested, set()
        return requested

    def schedule(self, request: Any) -> None:  # noqa: ANN401 - Granian's
        """Receive a request from Granian. Called in Granian's thread, where it may only pass things on.

        That thread also completes the events, so none is done before this returns, and it completes them in order.
        """
        scope = request.scope
        if scope["method"] != "POST":
            self._loop.call_soon_threadsafe(self._dispatch, request, [], context=self._context)
            return
        receive = request.proto.receive
        first = last = receive()
        # Over HTTP/2 the end is always a separate event. To request it later would wake both threads once more.
        if scope["http_version"] == "2" and _declares_short_body(scope["headers"]):
            last = receive()
        self._arriving[last] = request, first
        last.add_done_callback(self._on_last, context=self._context)

    async def begin_all(self) -> None:
        """Give each request that has none a task, and begin the tasks, so that `requests` has all."""
        for event in tuple(self._arriving):
            self._begin_early(event)
        await asyncio.sleep(0)

    def close(self) -> None:
        """Search no more."""
        self._timer.cancel()
        self._tcp.close()

    def _on_last(self, last: Any) -> None:  # noqa: ANN401 - Granian's
        arriving = self._arriving.pop(last, None)
        if arriving is not None:
            request, first = arriving
            if request.scope["http_version"] != "2":
                _mark_end(request.scope["headers"], first.result())
            self._dispatch(request, [first] if last is first else [first, last])

    def _search(self) -> None:
        arriving = frozenset(tuple(self._arriving))  # a tuple first: Granian's thread adds to the dict meanwhile
        for event in arriving & self._waited:
            self._begin_early(event)
        self._waited = arriving
        self._timer = self._loop.call_later(ARRIVAL, self._search)

    def _begin_early(self, event: Any) -> None:  # noqa: ANN401 - Granian's
        arriving = self._arriving.pop(event, None)
        if arriving is not None:
            request, first = arriving
            self._dispatch(request, [first] if event is first else [first, event])

    def _dispatch(self, request: Any, events: list[Awaitable[Message]]) -> None:  # noqa: ANN401 - Granian's
        """Answer a request in a task. `events`: those that were received, or requested, before."""
        scope, protocol = request.scope, request.proto
        client, is_http1, method = scope["client"], scope["http_version"] != "2", scope["method"]
        self._requested.add(client)
        path = scope["raw_path"]
        scope["path"] = normal_path(path) if b"%" in path else path.decode("latin-1")
        send = _fixed_send(protocol.send, method == "HEAD", self._stop if is_http1 else None)
        refusal = None
        if is_http1:
            if method == "GET":  # what takes messages
                scope["extensions"] = {READS_REPLY: self._tcp.watch(scope["server"], client)}
            refusal = _check_host(scope)
        receive = _receive_first(events, protocol.receive) if events else protocol.receive
        if refusal is None:
            self._loop.create_task(self._answer(request, scope, receive, send))
        else:
            self._loop.create_task(self._refuse(request, refusal, scope, send))

    async def _answer(self, request: Any, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ANN401
        client = scope["client"]
        self.unanswered[client] = self.unanswered.get(client, 0) + 1
        try:
            await self._requests(scope, receive, send)
        finally:
            left = self.unanswered.pop(client) - 1
            if left:
                self.unanswered[client] = left
            self._requested.add(client)  # idle from now on
            request.done()  # aborts a response that has begun and was not ended

    async def _refuse(self, request: Any, error: BridgeError, scope: Scope, send: Send) -> None:  # noqa: ANN401
        await self._requests.respond(scope, send, error)
        request.done()


def _check_host(scope: Scope) -> BridgeError | None:
    """Return the error for a request of HTTP/1.1 without exactly one host.

    Granian adds a host to a request that has none: that of its target, which is empty unless it is in absolute form.
    One of HTTP/1.0 needs no host, so there the empty one is removed.
    """
    if scope["http_version"] == "1.1":
        return host_refusal(scope["headers"])
    scope["headers"] = [pair for pair in scope["headers"] if pair != (b"host", b"")]
    return None


def _declares_short_body(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether `content-length` says 1 to `UNCOUNTED` bytes. Granian resets an HTTP/2 stream that has more of them."""
    for name, value in headers:
        if name == b"content-length":
            return value.isdigit() and len(value) <= _DIGITS and 0 < int(value) <= UNCOUNTED
    return False


def _mark_end(headers: Iterable[tuple[bytes, bytes]], event: Message) -> None:
    """Say in the first event of a request of HTTP/1.1 that it is the last one, if it has all bytes that are declared.

    Granian says so in a separate event, which would have to be waited for.
    """
    for name, value in headers:
        if name == b"content-length":
            event["more_body"] = event.get("more_body", False) and value != b"%d" % len(event["body"])


def _receive_first(events: list[Awaitable[Message]], receive: Receive) -> Receive:
    """Return a `receive` that returns the results of `events` before it calls `receive`."""

    def received() -> Awaitable[Message]:
        return events.pop(0) if events else receive()

    return received


def _fixed_send(send: Send, head: bool, stop: asyncio.Event | None) -> Send:
    """Work around defects of Granian's `send`. Responses in one part, the most, cost no coroutine of the bridge.

    `stop`: a response over HTTP/1.1 that begins after it says that the connection closes, which makes hyper close it.
    Otherwise a client sends its next request into a connection that ends, and does not know its outcome.
    """

    def fixed(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            if stop is not None and stop.is_set():
                headers = [pair for pair in message.get("headers", ()) if pair[0] != b"connection"]
                message = {**message, "headers": [*headers, (b"connection", b"close")]}
        elif message.get("more_body"):
            return _send_part(None if head else send, message)
        elif head:
            message = {"type": "http.response.body", "body": b""}  # over HTTP/2 Granian would send a body
        return send(message)

    return fixed


async def _send_part(send: Send | None, message: Message) -> None:
    if send is not None:
        body = message.get("body", b"")
        end = len(body) - BUFFERED if len(body) > UNSEEN else len(body)
        for at in range(0, end or 1, PART):
            await send({"type": "http.response.body", "body": body[at : min(at + PART, end)], "more_body": True})
        for at in range(end, len(body)):
            await send({"type": "http.response.body", "body": body[at : at + 1], "more_body": True})
    # If the client has disconnected, Granian's send returns at once: 67 million sends in 50 s, and nothing else ran.
    await asyncio.sleep(0)
