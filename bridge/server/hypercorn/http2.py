"""HTTP/2 on python-h2: each stream sends its own frames, and receiving never waits for a stream."""

import asyncio
from contextlib import suppress
from functools import partial

from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import NoSuchStreamError, ProtocolError
from hypercorn.protocol.events import Body, EndBody, Response, StreamClosed
from hypercorn.protocol.events import Event as ResponsePart
from hypercorn.protocol.http_stream import ASGIHTTPState
from hypercorn.utils import filter_pseudo_headers

from bridge.server import connection_limits
from bridge.server.hypercorn.connection import Connection
from bridge.server.hypercorn.h2_connection import (
    EARNED_BY_DATA,
    EARNED_BY_REQUEST,
    FRAME_BURST,
    FRAME_RATE,
    FRAMES_SAVED,
    TokenBucket,
    TolerantH2Connection,
    frame_cost,
)
from bridge.server.hypercorn.stream import WINDOW, RequestStream

RESET_BURST, RESET_RATE = 200, 33
"""Streams that a client may cancel, or make the server reset, at once, and per second after that. Rapid reset
(CVE-2023-44487) needs thousands."""

SLICE = 64
"""Frames that are handled before other connections have their turn."""

DISCARD_LIMIT = 1 << 20
"""Bytes of a body that are discarded after its response, before the stream is reset: most clients send all of it."""

READ_PAUSE = 4 * WINDOW
"""Unsent bytes at which reading pauses, so that a client cannot make the bridge buffer answers to its frames. Streams
wait at a quarter of this: the rest is for those answers, so that a reset arrives from a client that reads nothing."""


class Http2:
    """One HTTP/2 connection.

    Hypercorn's class gives each stream a buffer, from which one task sends. With a window of zero it buffered all that
    an application wrote (1.38 GB in 2 s), and the writers of a client that had disconnected never ended. Here a stream
    waits for its window and for the socket itself: nothing is buffered, and closing the stream ends the wait.
    """

    def __init__(self, client_connection: Connection) -> None:
        self._connection = client_connection
        self._server = client_connection.server
        self._h2 = TolerantH2Connection(client_connection.server.header_limit)
        self._streams: dict[int, RequestStream] = {}
        self._discarding: dict[int, int] = {}
        """Bytes discarded of bodies whose response is complete, by stream id."""
        self._resets = TokenBucket(RESET_BURST, RESET_RATE)
        self._frames = TokenBucket(FRAME_BURST, FRAME_RATE, FRAMES_SAVED)
        self._received = False
        self._unwritten = 0
        self._write_due = False
        self._ping_timer = asyncio.get_running_loop().call_later(
            connection_limits.PING_INTERVAL, self._check_client, False
        )
        self._write()

    # What the client sends

    async def receive(self, data: bytes) -> None:
        """See HttpProtocol."""
        self._received = True
        for number, (frame, events) in enumerate(self._h2.receive_frames(data), 1):
            for event in events:
                await self._on_event(event)
            if self._connection.closing:
                return
            if frame and (cost := frame_cost(frame)) and not self._frames.take(cost):
                self._goaway(ErrorCodes.ENHANCE_YOUR_CALM)
                return
            if number % SLICE == 0:
                await self._write_answers()
                await asyncio.sleep(0)
        await self._write_answers()

    async def _write_answers(self) -> None:
        self._write()
        if self._connection.unsent > READ_PAUSE:
            await self._connection.drained()

    def half_closed(self) -> bool:
        """See HttpProtocol. A client of HTTP/2 does not close only its half: it ends each request with a flag."""
        return False

    async def input_ended(self) -> None:
        """See HttpProtocol."""

    async def disconnected(self) -> None:
        """See HttpProtocol."""
        self._ping_timer.cancel()
        for stream_id in list(self._streams):
            self._streams.pop(stream_id).close()

    def drain(self) -> None:
        """See HttpProtocol."""
        if not self._streams and not self._connection.closing:
            # Only now: python-h2, and so httpx, drops every open stream when it receives a GOAWAY.
            self._goaway(ErrorCodes.NO_ERROR, linger=bool(self._discarding))

    async def _on_event(self, event: Event) -> None:
        if isinstance(event, RequestReceived):
            await self._on_request(event.stream_id, event.headers or [])
        elif isinstance(event, DataReceived):
            self._on_data(event)
        elif isinstance(event, StreamEnded):
            self._discarding.pop(event.stream_id, None)
            if stream := self._streams.get(event.stream_id):
                stream.body.feed_end()
        elif isinstance(event, StreamReset):
            self._on_reset(event)
        elif isinstance(event, WindowUpdated | RemoteSettingsChanged):
            self._on_window(event)
        elif isinstance(event, ConnectionTerminated):
            self._write()
            self._connection.close()

    async def _on_request(self, stream_id: int, headers: list[tuple[bytes, bytes]]) -> None:
        if self._server.draining or len(self._streams) + len(self._discarding) >= connection_limits.MAX_STREAMS:
            self._h2.reset_stream(stream_id, ErrorCodes.REFUSED_STREAM)
            if not (self._server.draining or self._resets.take()):
                self._goaway(ErrorCodes.ENHANCE_YOUR_CALM)
            return
        self._frames.earn(EARNED_BY_REQUEST)
        pseudo = dict(headers)
        stream = RequestStream(self._connection, self.send, stream_id, partial(self._on_read, stream_id))
        self._streams[stream_id] = stream
        self._connection.set_idle(False)
        await stream.start("2", pseudo[b":method"], pseudo.get(b":path", b""), filter_pseudo_headers(headers))

    def _on_data(self, event: DataReceived) -> None:
        stream_id, data, size = event.stream_id, event.data or b"", event.flow_controlled_length or 0
        if stream := self._streams.get(stream_id):
            self._on_read(stream_id, size - len(data))  # padding
            stream.body.feed(data)
            return
        # The response is complete. Hypercorn raises KeyError here, which cancels the other streams of the connection.
        self._on_read(stream_id, size)
        discarded = self._discarding.get(stream_id, 0) + size
        self._discarding[stream_id] = discarded
        if discarded > DISCARD_LIMIT:
            del self._discarding[stream_id]
            with suppress(NoSuchStreamError):
                self._h2.reset_stream(stream_id, ErrorCodes.NO_ERROR)

    def _on_read(self, stream_id: int, size: int) -> None:
        """Give `size` bytes back to the flow-control windows: the application has read them, or never will."""
        if size and not self._connection.closing:
            with suppress(ProtocolError):
                self._h2.acknowledge_received_data(size, stream_id)
            self._write_soon()

    def _on_reset(self, event: StreamReset) -> None:
        # h2 reports its own resets too: a client can make the server send them (CVE-2025-8671).
        stream_id = event.stream_id
        if (stream_id in self._streams or not event.remote_reset) and not self._resets.take():
            self._goaway(ErrorCodes.ENHANCE_YOUR_CALM)
            return
        self._discarding.pop(stream_id, None)
        self._close_stream(stream_id)

    def _on_window(self, event: WindowUpdated | RemoteSettingsChanged) -> None:
        if isinstance(event, WindowUpdated) and event.stream_id:
            if stream := self._streams.get(event.stream_id):
                stream.window_opened.set()
        else:  # the connection's window, or the initial window of all streams
            for stream in self._streams.values():
                stream.window_opened.set()

    def _close_stream(self, stream_id: int) -> None:
        if stream := self._streams.pop(stream_id, None):
            stream.close()
        if self._streams or self._connection.closing:
            return
        if self._server.draining:
            self.drain()
        else:
            self._connection.set_idle(True)

    # What the application sends

    async def send(self, part: ResponsePart) -> None:
        """Send a part of a response; returns when it is written, and silently if the client has disconnected."""
        stream_id = part.stream_id
        try:
            if isinstance(part, Response):
                if self._connection.unsent > WINDOW:
                    await self._connection.drained()  # the headers of all streams could be 8 MiB
                headers = [(b":status", b"%d" % part.status_code), *part.headers]
                self._h2.send_headers(stream_id, headers + self._server.config.response_headers("h2"))
                self._write_soon()  # in one packet with the body, if that follows at once
            elif isinstance(part, Body):
                await self._send_body(stream_id, part.data)
            elif isinstance(part, EndBody):
                self._h2.end_stream(stream_id)
                self._write_soon()
            elif isinstance(part, StreamClosed):
                self._finish(stream_id)
        except NoSuchStreamError:
            return
        except ProtocolError:
            if not self._connection.closing:
                raise  # a defect of the bridge. Hypercorn hides it, and the client waits without end

    async def _send_body(self, stream_id: int, data: bytes) -> None:
        rest = memoryview(data)
        while rest and (stream := self._streams.get(stream_id)):
            size = min(len(rest), self._h2.max_outbound_frame_size, self._h2.local_flow_control_window(stream_id))
            if size <= 0:
                stream.window_opened.clear()
                await self._flush()
                await stream.window_opened.wait()
                continue
            self._h2.send_data(stream_id, bytes(rest[:size]))
            self._frames.earn(EARNED_BY_DATA)
            rest = rest[size:]
            self._unwritten += size
            if rest or self._unwritten + self._connection.unsent > WINDOW:
                await self._flush()
            else:
                self._write_soon()

    def _finish(self, stream_id: int) -> None:
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        if stream.state is not ASGIHTTPState.CLOSED:
            # The application failed in the middle: without a reset the client would wait, or take a part for the whole.
            self._h2.reset_stream(stream_id, ErrorCodes.INTERNAL_ERROR)
            self._write_soon()
        elif not stream.body.ended:
            self._discarding[stream_id] = 0
        self._close_stream(stream_id)

    # The socket

    def _write_soon(self) -> None:
        """Write in the next iteration of the event loop: the responses of one iteration leave in one packet."""
        if not self._write_due:
            self._write_due = True
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        self._write_due = False
        self._unwritten = 0
        if data := self._h2.data_to_send():
            self._connection.write(data)

    async def _flush(self) -> None:
        self._write()
        await self._connection.drained()

    def _check_client(self, pinged: bool) -> None:
        """Ping a client with open requests every `PING_INTERVAL`; abort if nothing arrives within `PING_TIMEOUT`.

        Without this a client that lost power or its network would keep its streams, and the leases of those streams:
        TCP notices nothing while there is nothing to send.
        """
        if pinged and not self._received:
            self._connection.abort()
            return
        ping = not pinged and bool(self._streams) and not self._connection.closing
        if ping:
            self._received = False
            self._h2.ping(bytes(8))
            self._write()
        delay = connection_limits.PING_TIMEOUT if ping else connection_limits.PING_INTERVAL
        self._ping_timer = asyncio.get_running_loop().call_later(delay, self._check_client, ping)

    def _goaway(self, code: ErrorCodes, *, linger: bool = True) -> None:
        self._h2.close_connection(code)
        self._write()
        self._connection.close(linger=linger)
