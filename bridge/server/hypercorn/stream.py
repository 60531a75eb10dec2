"""One request: its body until the application reads it, and the ASGI side of its response."""

import asyncio
from collections.abc import Awaitable, Callable
from time import time
from typing import Any

from hypercorn.protocol.events import Body, EndBody, Event, StreamClosed
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream
from hypercorn.typing import ASGISendEvent

from bridge.errors import BridgeError, HeadersTooLarge, Internal, RequestMalformed
from bridge.server.hypercorn.connection import Connection
from bridge.server.request_target import host_refusal, normal_path

WINDOW = 65536
"""Bytes of one request's body that may wait for the application."""

PIECES = 64
"""Pieces of a chunked body that are handled before other connections have their turn."""

FIELD_OVERHEAD = 32
"""Bytes that a header field counts in addition to its own (RFC 9113, section 6.5.2)."""


class RequestBody:
    """The part of a body that has arrived and that the application has not read.

    Hypercorn has a queue of ten messages instead. An application that responded without reading left it full; the
    connection then waited to put the eleventh, and with it every other stream.
    """

    def __init__(self, on_read: Callable[[int], None]) -> None:
        """`on_read` is called with the number of bytes that the application has read, or never will."""
        self._data = bytearray()
        self._on_read = on_read
        self._end_reported = False
        self._changed = asyncio.Event()
        self._has_space = asyncio.Event()
        self._discarding = False
        self.ended = False
        self.closed = False

    def feed(self, data: bytes) -> None:
        """Add bytes that have arrived."""
        if self._discarding:
            self._on_read(len(data))
        else:
            self._data += data
            self._changed.set()

    def discard(self) -> None:
        """Drop what is unread and what still arrives: the application sends the last part of its response.

        Otherwise a client that does not read its response would fill the memory with its body.
        """
        if not (self._discarding or self.ended or self.closed):
            self._discarding = True
            self._on_read(len(self._data))
            self._data.clear()
            self._has_space.set()

    async def wait_for_space(self) -> None:
        """Wait while `WINDOW` bytes or more are unread."""
        if len(self._data) >= WINDOW:
            self._has_space.clear()
            await self._has_space.wait()

    def feed_end(self) -> None:
        """Mark the body as complete."""
        self.ended = True
        self._changed.set()

    def close(self) -> None:
        """End the request. Unread bytes are dropped, unless the body is complete."""
        if self.closed:
            return
        self.closed = True
        self._on_read(len(self._data))
        if not self.ended:
            self._data.clear()
        self._changed.set()
        self._has_space.set()

    async def receive(self) -> dict[str, Any]:
        """Return the next ASGI message: everything that has arrived, or the disconnect."""
        while not (self._data or self.closed or (self.ended and not self._end_reported)):
            self._changed.clear()
            await self._changed.wait()
        if not self._data and (self._end_reported or not self.ended):
            return {"type": "http.disconnect"}
        data = bytes(self._data)
        self._data.clear()
        self._end_reported = self.ended
        self._has_space.set()
        if not self.closed:
            self._on_read(len(data))
        return {"type": "http.request", "body": data, "more_body": not self.ended}


class RequestStream(HTTPStream):
    """Hypercorn's ASGI state machine, with a body that cannot block its connection."""

    def __init__(
        self,
        client_connection: Connection,
        send: Callable[[Event], Awaitable[None]],
        stream_id: int,
        on_read: Callable[[int], None],
    ) -> None:
        """`send` writes a part of the response. See RequestBody for `on_read`."""
        super().__init__(
            *client_connection.server.hypercorn_arguments, *client_connection.tls_and_addresses, send, stream_id
        )
        self.client_connection = client_connection
        self.body = RequestBody(on_read)
        self._pieces = 0
        self.window_opened = asyncio.Event()
        """HTTP/2: set when the client may have opened its flow-control window."""

    async def start(self, version: str, method: bytes, target: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        """Call the application in a task, or refuse the request.

        The target is in origin form; see `normal_path` for what of its path is decoded.
        """
        self.start_time = time()
        path, _, query = target.partition(b"?")
        self.scope = {
            "type": "http",
            "http_version": version,
            # 2.3: send() does nothing if the client has disconnected. With 2.4 it would have to raise.
            "asgi": {"spec_version": "2.3", "version": "3.0"},
            "method": method.decode("latin-1"),
            "scheme": self.scheme,
            "path": normal_path(path) if b"%" in path else path.decode("latin-1"),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": headers,
            "client": self.client,
            "server": self.server,
            "extensions": {},
        }  # type: ignore[typeddict-item]
        if (refusal := self._refusal(headers)) is not None:
            await self._respond(refusal)
        else:
            self.client_connection.server.spawn(self._run())

    def _refusal(self, headers: list[tuple[bytes, bytes]]) -> BridgeError | None:
        limit = self.client_connection.server.header_limit
        size = FIELD_OVERHEAD * len(headers)
        has_coding = has_length = False
        for name, value in headers:
            size += len(name) + len(value)
            has_coding |= name == b"transfer-encoding"
            has_length |= name == b"content-length"
        # h11 and h2 check their limits only between reads, and h2 can only close the connection.
        if size > limit:
            return HeadersTooLarge(f"The headers have {size} bytes; at most {limit} are allowed.")
        if has_coding and has_length:
            # "Such a message might indicate an attempt to perform request smuggling" (RFC 9112, section 6.1). Http1
            # closes the connection, because the body has not been read.
            return RequestMalformed("A request has either content-length or transfer-encoding, not both.")
        return host_refusal(headers) if self.scope["http_version"] == "1.1" else None

    async def handle(self, event: Event) -> None:
        """Handle a part of the request, from Hypercorn's HTTP/1.1; waits while too much of the body is unread."""
        if isinstance(event, Body):
            self.body.feed(event.data)
            await self.body.wait_for_space()
            self._pieces += 1
            if self._pieces % PIECES == 0:
                await asyncio.sleep(0)
        elif isinstance(event, EndBody):
            self.body.feed_end()
            if self.client_connection.half_closed:
                self.body.close()
        elif isinstance(event, StreamClosed):
            self.close()

    def close(self) -> None:
        """End the request: the application receives the disconnect, and what it still sends is dropped."""
        self.closed = True
        self.body.close()
        self.window_opened.set()

    async def app_send(self, message: ASGISendEvent | None) -> None:
        """Send an ASGI message of the application; None when the application has returned."""
        if self.closed and self.state is not ASGIHTTPState.CLOSED:
            # The client has disconnected. An application that only sends must not block the event loop.
            await asyncio.sleep(0)
        else:
            if message is None or (message["type"] == "http.response.body" and not message.get("more_body")):
                self.body.discard()
            await super().app_send(message)

    async def _run(self) -> None:
        try:
            await self.client_connection.server.requests(self.scope, self.body.receive, self.app_send)  # type: ignore[arg-type]
        finally:
            if self.state is ASGIHTTPState.REQUEST and not self.closed:
                await self._respond(Internal("Internal error in the bridge: it has no response to this request."))
            await self.app_send(None)

    async def _respond(self, error: BridgeError) -> None:
        await self.client_connection.server.requests.respond(self.scope, self.app_send, error)  # type: ignore[arg-type]
