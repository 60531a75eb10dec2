"""One request: the body that waits for the application, and the ASGI side of the answer."""

import asyncio
from collections.abc import Awaitable, Callable
from time import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from hypercorn.protocol.events import Body, EndBody, Event, Request, Response, StreamClosed
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream
from hypercorn.typing import ASGISendEvent

if TYPE_CHECKING:
    from bridge.server.link import Link

WINDOW = 65536
"""Bytes of one request's body that may wait for the application."""

FIELD_OVERHEAD = 32
"""What a header field counts beside its bytes (RFC 9113, section 6.5.2)."""


class Inbox:
    """The part of a body that has arrived and has not been read.

    Hypercorn has a queue of ten messages here. An application that answered without reading left it full, and the
    connection that waited to put the eleventh froze, with every other stream on it.
    """

    def __init__(self, taken: Callable[[int], None]) -> None:
        self._data = bytearray()
        self._taken = taken
        self._told = False
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self.ended = False
        self.closed = False

    async def put(self, data: bytes) -> None:
        """Keep `data`; wait while there is too much (HTTP/1.1 only: HTTP/2 has its window)."""
        self._data += data
        self._news.set()
        if len(self._data) >= WINDOW:
            self._room.clear()
            await self._room.wait()

    def end(self) -> None:
        """Mark the body as complete."""
        self.ended = True
        self._news.set()

    def close(self) -> None:
        """Mark the exchange as over: what the application has not read is not kept for it, unless the body is whole."""
        if self.closed:
            return
        self.closed = True
        self._taken(len(self._data))
        if not self.ended:
            self._data.clear()
        self._news.set()
        self._room.set()

    async def get(self) -> dict[str, Any]:
        """Return the next ASGI message: everything that has arrived, or the disconnect."""
        while not (self._data or self.closed or (self.ended and not self._told)):
            self._news.clear()
            await self._news.wait()
        if not self._data and (self._told or not self.ended):
            return {"type": "http.disconnect"}
        data = bytes(self._data)
        self._data.clear()
        self._told = self.ended
        self._room.set()
        if not self.closed:
            self._taken(len(data))
        return {"type": "http.request", "body": data, "more_body": not self.ended}


class Stream(HTTPStream):
    """Hypercorn's ASGI state machine, with a body that cannot block its connection."""

    def __init__(
        self, link: "Link", send: Callable[[Event], Awaitable[None]], stream_id: int, taken: Callable[[int], None]
    ) -> None:
        super().__init__(*link.shared, link.tls, link.client, link.server, send, stream_id)
        self.link = link
        self.inbox = Inbox(taken)
        self.room = asyncio.Event()  # set when the peer may have opened its window

    async def handle(self, event: Event) -> None:
        """Take what the connection has read."""
        if isinstance(event, Request):
            await self._start(event)
        elif isinstance(event, Body):
            await self.inbox.put(event.data)
        elif isinstance(event, EndBody):
            self.inbox.end()
        elif isinstance(event, StreamClosed):
            self.closed = True
            self.inbox.close()
            self.room.set()

    async def _start(self, request: Request) -> None:
        self.start_time = time()
        path, _, query = request.raw_path.partition(b"?")
        self.scope = {
            "type": "http",
            "http_version": request.http_version,
            # 2.3: send() says nothing when the client has left (2.4 would raise), so frameworks listen for it.
            "asgi": {"spec_version": "2.3", "version": "3.0"},
            "method": request.method,
            "scheme": self.scheme,
            "path": unquote(path.decode("latin-1")),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": request.headers,
            "client": self.client,
            "server": self.server,
            "state": request.state,
            "extensions": {},
        }
        # h11 and h2 look at their limits only between reads, and h2 can only end the connection.
        if sum(len(name) + len(value) + FIELD_OVERHEAD for name, value in request.headers) > self.link.header_limit:
            await self._refuse(431)
        elif request.method == "CONNECT":
            await self._refuse(501)
        else:
            self.link.spawn(self._run())

    async def _run(self) -> None:
        try:
            await self.link.requests(self.scope, self.inbox.get, self.app_send)  # type: ignore[arg-type]
        finally:
            await self.app_send(None)

    async def app_send(self, message: ASGISendEvent | None) -> None:
        """Take what the application sends; None when it has returned."""
        if self.closed and self.state is not ASGIHTTPState.CLOSED:
            await asyncio.sleep(0)  # the client has left; an application that only sends must not hold the event loop
        else:
            await super().app_send(message)

    async def _refuse(self, status: int) -> None:
        await self._send_error_response(status)
        await self.send(StreamClosed(stream_id=self.stream_id))

    async def _send_error_response(self, status_code: int) -> None:
        # Without Hypercorn's "connection: close": HTTP/2 forbids the field, and Http1 adds it where it is due.
        await self.send(Response(self.stream_id, headers=[(b"content-length", b"0")], status_code=status_code))
        await self.send(EndBody(self.stream_id))
        self.state = ASGIHTTPState.CLOSED
