"""A small HTTP/2 client over a plain socket: about 20 us a request, where a client on python-h2 takes 200.

It knows what a load generator needs and trusts its server: no continuation, no padding, no push.
"""

import socket
import struct
from collections.abc import Callable, Iterable, Mapping
from selectors import EVENT_READ, DefaultSelector
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from hpack import Decoder

DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW, MAX_FRAME_SIZE = 4, 5
"""Identifiers of settings."""
FRAME: Final = 16384
"""Bytes of one frame that every server takes, unless it says that it takes larger ones."""
LARGEST: Final = 2**31 - 1

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD: Final = struct.Struct(">BHBBI")
_OK: Final = (0x88, 0x89)
"""How HPACK starts a block with :status 200 or 204 (RFC 7541, appendix A)."""


class Answer(NamedTuple):
    """A complete answer. Its headers are there if the connection unpacks them, which costs more than all the rest."""

    stream: int
    headers: Mapping[bytes, bytes]


class Connection:
    """One connection. `ask` and `flush`, then `answers` until all have come."""

    def __init__(
        self, url: str, *, unpacking: bool = False, hearing: Callable[[int, bytes], None] | None = None
    ) -> None:
        """Connect. `hearing` is called with each piece of an answer's body and the number of its stream."""
        place = urlsplit(url)
        self._socket = socket.create_connection((place.hostname, place.port), timeout=90)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._out = bytearray(_PREFACE)
        self._in = b""
        self._next = 1
        self.asked = 0
        self._decoder = Decoder() if unpacking else None
        self._hearing = hearing
        self._headers: dict[int, Mapping[bytes, bytes]] = {}
        self._window = self._initial = 65535
        self._largest = FRAME
        self._bodies: dict[int, memoryview] = {}
        self._room: dict[int, int] = {}
        self._greeted = False
        self._frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW, LARGEST))
        self._frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", LARGEST - 65535))
        self.flush()
        while not self._greeted:  # what it says about windows counts for the first request already
            self.answers()

    def ask(self, block: bytes, body: bytes = b"") -> int:
        """Queue a request; its body leaves as the server opens its windows. Returns the stream's number."""
        stream = self._next
        self._next += 2
        self.asked += 1
        self._frame(HEADERS, END_HEADERS if body else END_HEADERS | END_STREAM, stream, block)
        if body:
            self._bodies[stream] = memoryview(body)
            self._room[stream] = self._initial
            self._push(stream)
        return stream

    def flush(self) -> None:
        """Send what is queued."""
        if self._out:
            self._socket.sendall(self._out)
            self._out.clear()

    def answers(self) -> list[Answer]:
        """Wait for bytes; return the answers that they complete. Raises `ConnectionError` for any but 200 and 204."""
        received = self._socket.recv(1 << 18)
        if not received:
            raise ConnectionError("the server closed the connection")
        buffer = self._in + received if self._in else received
        done: list[Answer] = []
        at = 0
        while len(buffer) - at >= _HEAD.size:
            high, low, kind, flags, stream = _HEAD.unpack_from(buffer, at)
            end = at + _HEAD.size + (high << 16 | low)
            if end > len(buffer):
                break
            if kind == HEADERS:
                self._headers[stream] = self._read(buffer[at + _HEAD.size : end])
            elif kind != DATA:
                self._control(kind, flags, stream, buffer[at + _HEAD.size : end])
            elif self._hearing is not None:
                self._hearing(stream, buffer[at + _HEAD.size : end])
            if flags & END_STREAM and kind in (HEADERS, DATA):
                done.append(Answer(stream, self._headers.pop(stream)))
            at = end
        self._in = buffer[at:]
        self.flush()
        return done

    def fileno(self) -> int:
        """For selectors."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket and send nothing."""
        self._socket.close()

    def _read(self, block: bytes) -> Mapping[bytes, bytes]:
        """Look at the status, and at the rest if asked to: at once, for what a block means depends on those before."""
        at = 0
        while block[at] & 0xE0 == 0x20:  # a change of the table's size
            at += 1
            while block[at - 1] & 0x1F == 0x1F and block[at] & 0x80:
                at += 1
        if block[at] not in _OK:
            raise ConnectionError(f"the server answered neither 200 nor 204: {block!r}")
        return {} if self._decoder is None else dict(self._decoder.decode(block, raw=True))

    def _control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind in (RESET, GOAWAY):
            raise ConnectionError(f"the server ended a stream or the connection: {payload[:80].hex()}")
        if kind == SETTINGS and not flags & ACK:
            self._greeted = True
            self._set(payload)
            self._frame(SETTINGS, ACK, 0)
        elif kind == PING and not flags & ACK:
            self._frame(PING, ACK, 0, payload)
        elif kind == WINDOW_UPDATE:
            (more,) = struct.unpack(">I", payload)
            if stream:
                if stream in self._room:
                    self._room[stream] += more
                    self._push(stream)
            else:
                self._window += more
                for waiting in list(self._bodies):
                    self._push(waiting)

    def _set(self, payload: bytes) -> None:
        for name, value in struct.iter_unpack(">HI", payload):
            if name == INITIAL_WINDOW:
                self._room = {key: room + value - self._initial for key, room in self._room.items()}
                self._initial = value
            elif name == MAX_FRAME_SIZE:
                self._largest = value

    def _push(self, stream: int) -> None:
        rest = self._bodies[stream]
        while rest and (size := min(len(rest), self._largest, self._window, self._room[stream])) > 0:
            self._window -= size
            self._room[stream] -= size
            self._frame(DATA, END_STREAM if size == len(rest) else 0, stream, rest[:size])
            rest = rest[size:]
        if rest:
            self._bodies[stream] = rest
        else:
            del self._bodies[stream], self._room[stream]

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes | memoryview = b"") -> None:
        self._out += _HEAD.pack(len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream)
        self._out += payload


def readable(connections: Iterable[Connection], seconds: float) -> list[Connection]:
    """Wait up to so many seconds; the connections with something to read. `select.select` takes no file above 1,023."""
    with DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, EVENT_READ, connection)
        return [key.data for key, _ in selector.select(seconds)]


def pack(url: str, method: str, path: str, headers: Iterable[tuple[str, str]] = ()) -> bytes:
    """Write a header block, each field literally: no state, so one block serves any number of requests."""
    pseudo = ((":method", method), (":scheme", "http"), (":authority", urlsplit(url).netloc), (":path", path))
    return b"".join(b"\0" + _string(name) + _string(value) for name, value in (*pseudo, *headers))


def _string(text: str) -> bytes:
    """RFC 7541, 5.2, without Huffman."""
    raw = text.encode("ascii")
    size = len(raw)
    if size < 127:
        return bytes((size,)) + raw
    size -= 127
    length = bytearray((127,))
    while size >= 128:
        length.append(size & 127 | 128)
        size >>= 7
    length.append(size)
    return bytes(length) + raw
