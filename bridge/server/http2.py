"""HTTP/2: Hypercorn's protocol with the sending half replaced and the receiving half made unblockable."""

import asyncio
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
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
from h2.settings import SettingCodes, Settings
from hypercorn.events import Closed, Updated
from hypercorn.events import Event as LinkEvent
from hypercorn.protocol.events import Body, EndBody, Request, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.protocol.http_stream import ASGIHTTPState
from hypercorn.utils import filter_pseudo_headers
from hyperframe.frame import Frame, GoAwayFrame

from bridge.server.fields import Literals
from bridge.server.heartbeat import Heartbeat
from bridge.server.listener import MAX_STREAMS
from bridge.server.stream import WINDOW, Stream

if TYPE_CHECKING:
    from bridge.server.link import Link

RESET_BURST, RESET_RATE = 200, 33
"""Streams a client may cancel at once, and per second after that. Rapid reset (CVE-2023-44487) needs thousands."""

DISCARD = 1 << 20
"""Bytes of a body that are dropped after its answer, before the stream is reset: most clients want to finish."""

HEADER_SLACK = 4
"""Times `header_limit` that is still answered 431; beyond it h2 ends the connection (GOAWAY ENHANCE_YOUR_CALM)."""

CONTROL = 4 * WINDOW
"""Bytes that may wait for a client that does not read before its own frames are left unread too. Writers wait at a
quarter of it: the rest is for the answers to frames, so that a reset is heard from a client that reads nothing."""


class Budget:
    """A bucket of tokens: `burst` at first, `rate` new ones per second."""

    def __init__(self, burst: int, rate: float) -> None:
        self._burst, self._rate = burst, rate
        self._tokens: float = burst
        self._at = monotonic()

    def spend(self) -> bool:
        """Take one token; False when there is none."""
        now = monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Peer(H2Connection):
    """h2, except that a client's polite GOAWAY does not stop the answers it waits for."""

    def _receive_goaway_frame(self, frame: GoAwayFrame) -> tuple[list[Frame], list[Event]]:
        if frame.error_code == ErrorCodes.NO_ERROR:
            return [], []  # it opens no more streams; h2 would drop what it still has to send
        return super()._receive_goaway_frame(frame)


class Http2(H2Protocol):
    """One HTTP/2 connection.

    Hypercorn gives each stream a buffer and one task sends from all of them. With a window of zero it took whatever
    the application wrote (1.38 GB in 2 s), and the writers of a client that left waited for ever. Here a writer sends
    its own frames and waits for the window itself: nothing is buffered, nobody is left behind.
    """

    streams: dict[int, Stream]  # type: ignore[assignment]

    def __init__(self, link: "Link") -> None:
        super().__init__(*link.shared, link.state, link.tls, link.client, link.server, link.send)
        self.link = link
        self.connection = Peer(
            H2Configuration(
                client_side=False,
                header_encoding=None,
                # What our doors answer is valid by construction, and tested to be: h2's second look costs 15 us.
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self.connection.encoder = Literals()
        self.connection.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.INITIAL_WINDOW_SIZE: WINDOW - 1,
                SettingCodes.MAX_HEADER_LIST_SIZE: link.header_limit,
            },
        )
        self.connection.decoder.max_header_list_size = HEADER_SLACK * link.header_limit
        self._resets = Budget(RESET_BURST, RESET_RATE)
        self._dropping: dict[int, int] = {}  # bytes dropped of bodies whose answer is complete
        self._unwritten = 0
        self._write_due = False
        self._heartbeat = Heartbeat(self._ping, link.cut)

    async def handle(self, event: LinkEvent) -> None:
        """Take what the connection has read, or its end."""
        if isinstance(event, Closed):
            self._heartbeat.stop()
        else:
            self._heartbeat.heard()
        await super().handle(event)

    async def initiate(self, headers: object = None, settings: object = None) -> None:  # noqa: ARG002 - for an upgrade
        """Send the settings. There is no upgrade to continue, and no sending task to start."""
        self.connection.initiate_connection()
        # h2 ends the connection of a client that opens too many streams. One that has not seen our settings yet may
        # do so in good faith, so the limit is in force only once it is acknowledged; until then streams are refused.
        self.connection.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAMS})
        # A body that nobody reads holds its own window only, never that of its neighbours.
        self.connection.increment_flow_control_window((MAX_STREAMS - 1) * WINDOW)
        self._write()

    def drain(self) -> None:
        """Close the connection if no request is being answered; else it closes after the last answer."""
        if not self.streams and not self.closed:
            # Only now: python-h2, and so httpx, drops every open stream when it receives a GOAWAY.
            self._goodbye(ErrorCodes.NO_ERROR, linger=bool(self._dropping))

    # What the client sends

    async def _handle_events(self, events: list[Event]) -> None:
        for event in events:
            if self.link.closing:
                return
            if isinstance(event, RequestReceived):
                await self._create_stream(event)
            elif isinstance(event, DataReceived):
                await self._receive(event)
            elif isinstance(event, StreamEnded):
                await self._ended(event)
            elif isinstance(event, StreamReset):
                await self._reset(event)
            elif isinstance(event, WindowUpdated):
                await self._window_updated(event.stream_id)
            elif isinstance(event, RemoteSettingsChanged):
                await self._window_updated(None)
            elif isinstance(event, ConnectionTerminated):
                await self.send(Closed())
        await self._write_back()

    async def _create_stream(self, request: RequestReceived) -> None:
        stream_id = request.stream_id
        assert stream_id is not None  # noqa: S101 - h2's annotation is wider than its events
        if self.context.terminated.is_set() or len(self.streams) >= MAX_STREAMS:
            with suppress(NoSuchStreamError):  # reset by the client in the same packet
                self.connection.reset_stream(stream_id, ErrorCodes.REFUSED_STREAM)
            return
        pseudo = dict(request.headers or ())
        stream = Stream(self.link, self.stream_send, stream_id, partial(self._taken, stream_id))
        self.streams[stream_id] = stream
        await self.send(Updated(idle=False))
        await stream.handle(
            Request(
                stream_id=stream_id,
                headers=filter_pseudo_headers(request.headers),
                http_version="2",
                method=pseudo[b":method"].decode("ascii").upper(),
                raw_path=pseudo.get(b":path", b""),
                state=self.link.state,
            )
        )

    async def _receive(self, event: DataReceived) -> None:
        stream_id, data, size = event.stream_id, event.data or b"", event.flow_controlled_length or 0
        assert stream_id is not None  # noqa: S101 - h2's annotation is wider than its events
        if stream := self.streams.get(stream_id):
            self._taken(stream_id, size - len(data))  # padding
            await stream.handle(Body(stream_id, data=data))
            return
        # Answered already. Hypercorn raised KeyError here, which ended the connection and cancelled its other streams.
        self._taken(stream_id, size)
        dropped = self._dropping.get(stream_id, 0) + size
        self._dropping[stream_id] = dropped
        if dropped > DISCARD:
            del self._dropping[stream_id]
            with suppress(NoSuchStreamError):
                self.connection.reset_stream(stream_id, ErrorCodes.NO_ERROR)

    async def _ended(self, event: StreamEnded) -> None:
        self._dropping.pop(event.stream_id, None)
        if stream := self.streams.get(event.stream_id):
            await stream.handle(EndBody(event.stream_id))

    async def _reset(self, event: StreamReset) -> None:
        # Whoever reset it: a client can also make the server do so (CVE-2025-8671).
        if event.stream_id in self.streams and not self._resets.spend():
            self._goodbye(ErrorCodes.ENHANCE_YOUR_CALM)
            return
        self._dropping.pop(event.stream_id, None)
        await self._close_stream(event.stream_id)

    def _taken(self, stream_id: int, size: int) -> None:
        if size and not self.link.closing:
            with suppress(ProtocolError):
                self.connection.acknowledge_received_data(size, stream_id)
            self._write_soon()

    async def _window_updated(self, stream_id: int | None) -> None:
        if stream_id:
            if stream := self.streams.get(stream_id):
                stream.room.set()
        else:
            for stream in self.streams.values():
                stream.room.set()

    async def _close_stream(self, stream_id: int) -> None:
        await super()._close_stream(stream_id)
        if self.streams or self.closed:
            return
        if self.context.terminated.is_set():
            self.drain()
        else:
            await self.send(Updated(idle=True))

    # What the application sends

    async def stream_send(self, event: StreamEvent) -> None:
        """Send a part of an answer; returns once it is written, silently when the client has left."""
        stream_id = event.stream_id
        try:
            if isinstance(event, Response):
                status = (b":status", b"%d" % event.status_code)
                self.connection.send_headers(stream_id, [status, *event.headers, *self.config.response_headers("h2")])
                self._write_soon()  # with the body, if that follows at once
            elif isinstance(event, Body):
                await self._send_body(stream_id, event.data)
            elif isinstance(event, EndBody):
                self.connection.end_stream(stream_id)
                self._write_soon()  # the answers of one turn of the loop leave in one packet
            elif isinstance(event, StreamClosed):
                await self._finish(stream_id)
        except NoSuchStreamError:
            return
        except ProtocolError:
            if self.connection.state_machine.state is not ConnectionState.CLOSED:
                raise  # ours: Hypercorn hides it, and the client waits for ever

    async def _send_body(self, stream_id: int, data: bytes) -> None:
        rest = memoryview(data)
        while rest and (stream := self.streams.get(stream_id)):
            size = min(
                len(rest),
                self.connection.max_outbound_frame_size,
                self.connection.local_flow_control_window(stream_id),
            )
            if size <= 0:
                stream.room.clear()
                await self._flush()
                await stream.room.wait()
                continue
            self.connection.send_data(stream_id, bytes(rest[:size]))
            rest = rest[size:]
            self._unwritten += size
            if rest or self._unwritten + self.link.unsent > WINDOW:
                await self._flush()
            else:
                self._write_soon()

    async def _finish(self, stream_id: int) -> None:
        stream = self.streams.get(stream_id)
        if stream is None:
            return
        if stream.state is not ASGIHTTPState.CLOSED:
            # The application failed in the middle: without a reset the client would wait, or take a part for the whole.
            self.connection.reset_stream(stream_id, ErrorCodes.INTERNAL_ERROR)
            self._write_soon()
        elif not stream.inbox.ended:
            self._dropping[stream_id] = 0
        await self._close_stream(stream_id)

    # The wire

    def _write_soon(self) -> None:
        """Write in the next turn of the event loop, so that what is sent together leaves in one packet."""
        if not self._write_due:
            self._write_due = True
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        self._write_due = False
        self._unwritten = 0
        if data := self.connection.data_to_send():
            self.link.write(data)

    async def _write_back(self) -> None:
        self._write()
        if self.link.unsent > CONTROL:
            await self.link.drained()

    async def _flush(self) -> None:
        self._write()
        await self.link.drained()

    def _ping(self) -> bool:
        if not self.streams or self.link.closing:
            return False  # a client that asks nothing is idle, and closed as such
        self.connection.ping(bytes(8))
        self._write()
        return True

    def _goodbye(self, code: ErrorCodes, *, linger: bool = True) -> None:
        self.connection.close_connection(code)
        self._write()
        self.link.close(linger=linger)
