"""An HTTP/2 client that does only what a test calls: no retries, no pool, and a GOAWAY does not end its streams."""

import asyncio
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    PingReceived,
    ResponseReceived,
    SettingsAcknowledged,
    StreamEnded,
    StreamReset,
)
from h2.settings import SettingCodes, Settings
from hyperframe.frame import Frame, GoAwayFrame

TIMEOUT = 15.0
"""Seconds after which a wait in a test fails: a guard, not a measurement."""


@dataclass
class Answer:
    """The response of one stream."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    ended: bool = False
    reset: int | None = None

    @property
    def over(self) -> bool:
        return self.ended or self.reset is not None


class _Connection(H2Connection):
    def _receive_goaway_frame(self, frame: GoAwayFrame) -> tuple[list[Frame], list[Event]]:
        # python-h2 refuses every frame after a GOAWAY. RFC 9113, section 6.8, allows open streams to finish.
        event = ConnectionTerminated()
        event.error_code, event.last_stream_id = frame.error_code, frame.last_stream_id
        return [], [event]


class Client:
    """One connection. With `reading=False` it never opens a window again after it is full."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, window: int, reading: bool
    ) -> None:
        self.reader, self.writer = reader, writer
        self.reading = reading
        self.answers: dict[int, Answer] = defaultdict(Answer)
        self.goaway: int | None = None
        self.last_stream = 0
        self.closed = False
        self.settled = False
        self.pings = 0
        self.h2 = _Connection(
            H2Configuration(
                client_side=True,
                header_encoding="utf-8",
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        values = {SettingCodes.INITIAL_WINDOW_SIZE: window, SettingCodes.ENABLE_PUSH: 0}
        self.h2.local_settings = Settings(client=True, initial_values=values)
        self.h2.initiate_connection()
        self.flush()

    def flush(self) -> None:
        if data := self.h2.data_to_send():
            self.writer.write(data)

    def request(  # noqa: PLR0913 - all but one by name
        self,
        path: str,
        *,
        method: str = "GET",
        body: bytes | None = None,
        end: bool = True,
        headers: Iterable[tuple[str, str]] = (),
        flush: bool = True,
    ) -> int:
        """Send a request (the body must fit the window) and return the number of its stream."""
        stream = self.h2.get_next_available_stream_id()
        fields = [(":method", method), (":scheme", "http"), (":authority", "localhost"), (":path", path), *headers]
        self.h2.send_headers(stream, fields, end_stream=end and body is None)
        if body is not None:
            self.data(stream, body, end=end, flush=False)
        if flush:
            self.flush()
        return stream

    def data(self, stream: int, data: bytes, *, end: bool = False, flush: bool = True) -> None:
        step = self.h2.max_outbound_frame_size
        for at in range(0, len(data), step):
            self.h2.send_data(stream, data[at : at + step])
        if end:
            self.h2.end_stream(stream)
        if flush:
            self.flush()

    async def upload(self, stream: int, data: bytes) -> None:
        """Send `data` as the window allows, and the end of the stream; stop when the server resets it."""
        rest = memoryview(data)
        while rest and self.answers[stream].reset is None:
            size = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size, len(rest))
            if size:
                self.data(stream, bytes(rest[:size]))
                rest = rest[size:]
                await self.writer.drain()
            else:
                await self.receive()
        if self.answers[stream].reset is None:
            self.h2.end_stream(stream)
            self.flush()

    def open_window(self, size: int, stream: int | None = None) -> None:
        """Let the server send `size` more bytes on the connection, and on one of its streams."""
        self.h2.increment_flow_control_window(size)
        if stream is not None:
            self.h2.increment_flow_control_window(size, stream)
        self.flush()

    async def receive(self) -> None:
        """Read once."""
        try:
            data = await self.reader.read(65536)
        except OSError:
            data = b""
        if not data:
            self.closed = True
            return
        for event in self.h2.receive_data(data):
            self._note(event)
        self.flush()

    def _note(self, event: Event) -> None:
        if isinstance(event, ResponseReceived):
            answer = self.answers[event.stream_id]
            answer.headers = {str(name): str(value) for name, value in event.headers}
            answer.status = int(answer.headers[":status"])
        elif isinstance(event, DataReceived):
            self.answers[event.stream_id].body += event.data
            if self.reading:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, StreamEnded):
            self.answers[event.stream_id].ended = True
        elif isinstance(event, StreamReset):
            self.answers[event.stream_id].reset = int(event.error_code)
        elif isinstance(event, ConnectionTerminated):
            self.goaway, self.last_stream = int(event.error_code or 0), event.last_stream_id or 0
        elif isinstance(event, SettingsAcknowledged):
            self.settled = True
        elif isinstance(event, PingReceived):
            self.pings += 1

    async def until(self, done: Callable[[], bool], seconds: float = TIMEOUT) -> None:
        """Read until `done`. Raises AssertionError if the connection closes or the time is over."""
        try:
            async with asyncio.timeout(seconds):
                while not done():
                    assert not self.closed, f"closed too early, GOAWAY {self.goaway}"
                    await self.receive()
        except TimeoutError:
            raise AssertionError("it did not happen in time") from None

    async def answer(self, stream: int, seconds: float = TIMEOUT) -> Answer:
        answer = self.answers[stream]
        await self.until(lambda: answer.over, seconds)
        return answer

    async def ended(self, seconds: float = TIMEOUT) -> None:
        """Read until the server closes the connection."""
        await self.until(lambda: self.closed, seconds)


@asynccontextmanager
async def connected(
    port: int, *, window: int = 65535, reading: bool = True, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=tls, server_hostname="localhost" if tls else None
    )
    client = Client(reader, writer, window=window, reading=reading)
    try:
        yield client
    finally:
        writer.transport.abort()
