"""HTTP/2 as bytes: frames that no library would send, and the frames that come back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
UNKNOWN: Final = 0x16

END_STREAM, ACK = 0x1, 0x1
END_HEADERS, PADDED, PRIORITIZED = 0x4, 0x8, 0x20
WHOLE: Final = END_STREAM | END_HEADERS

TIMEOUT: Final = 15.0
"""Seconds after which a wait in a test fails: a guard, not a measurement."""


class Frame(NamedTuple):
    """A frame that the server has sent."""

    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def code(self) -> int:
        """The error code of a RST_STREAM or a GOAWAY."""
        at = 4 if self.kind == GOAWAY else 0
        return int.from_bytes(self.payload[at : at + 4], "big")


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """Return the bytes of a frame; the highest bit of `stream` is the reserved one."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def block(*fields: tuple[str, str]) -> bytes:
    """Return a header block of literals without indexing."""
    written = bytearray()
    for field in fields:
        written += b"\0"
        for text in field:
            assert len(text) < 127
            written += bytes((len(text),)) + text.encode()
    return bytes(written)


def request(path: str = "/size", *more: tuple[str, str], method: str = "GET") -> bytes:
    """Return the header block of a request."""
    return block((":method", method), (":scheme", "http"), (":path", path), (":authority", "localhost"), *more)


def number(value: int) -> bytes:
    """Return four bytes: a window's increment, an error code, the stream that another depends on."""
    return value.to_bytes(4, "big")


def setting(code: int, value: int) -> bytes:
    return code.to_bytes(2, "big") + number(value)


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def flushed(self) -> None:
        """Wait until the server takes what was sent; returns too if the server has closed the connection."""
        try:
            async with asyncio.timeout(TIMEOUT):
                await self._writer.drain()
        except OSError:
            return

    async def frame(self) -> Frame | None:
        """Return the next frame; None if the server has closed the connection."""
        try:
            async with asyncio.timeout(TIMEOUT):
                head = await self._reader.readexactly(9)
                payload = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
        except TimeoutError:
            raise AssertionError("no frame in time") from None
        except (OSError, asyncio.IncompleteReadError):
            return None
        return Frame(head[3], head[4], int.from_bytes(head[5:], "big") & 0x7FFFFFFF, payload)

    async def frames(self) -> AsyncIterator[Frame]:
        """Return frames until the server closes the connection."""
        while (received := await self.frame()) is not None:
            yield received

    async def until(self, kind: int, stream: int = 0, flags: int = 0) -> Frame:
        """Return the next frame of that kind and stream with all of those flags. The connection must live so long."""
        async for received in self.frames():
            if (received.kind, received.stream) == (kind, stream) and received.flags & flags == flags:
                return received
            assert received.kind != GOAWAY, f"GOAWAY {received.code}"
        raise AssertionError("the server closed the connection")

    async def alive(self) -> None:
        """Assert that the connection still answers."""
        self.send(frame(PING, payload=b"are you?"))
        while (await self.until(PING, flags=ACK)).payload != b"are you?":
            pass


@asynccontextmanager
async def connected(port: int, settings: bytes = b"") -> AsyncIterator[RawClient]:
    """Open a connection and exchange settings."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = RawClient(reader, writer)
    client.send(PREFACE + frame(SETTINGS, payload=settings))
    await client.until(SETTINGS, flags=ACK)
    client.send(frame(SETTINGS, ACK))
    try:
        yield client
    finally:
        writer.transport.abort()
