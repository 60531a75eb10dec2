"""Push streams by a client that reads a given part of each, and what a bridge holds while it serves them."""

import base64
import contextlib
import http.client
import json
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import h2.errors
import h2.events

from tests.conformance.frames import Frames
from tests.http.asking import VERSION, Pair, post, pulling
from tests.launch import Bridge

PATIENCE: Final = 30.0
"""Seconds until a test that waits for something gives up: a guard, not a measurement."""
LINES: Final = (b"accept", b"application/x-ndjson")
EVENTS: Final = (b"accept", b"text/event-stream")
_DATA: Final = (b"{", b"data: ")
_NO_LINGER: Final = struct.pack("ii", 1, 0)
_BATCH: Final = 2 << 20
"""Bytes of bodies in one batch."""


class Streams(Frames):
    """One HTTP/2 connection full of push streams."""

    def __init__(self, url: str, *, window: int | None = None) -> None:
        """Connect. `window` bytes of each stream are taken, and more when `grant` says so; None: all there is."""
        super().__init__(url, window=window)
        self.bodies: dict[int, bytearray] = {}
        """What has come on each push stream."""
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else 40 ms for each window of an upload
        self._h2.increment_flow_control_window(1 << 30)  # of the connection: one stream must not stop another
        self._write()

    def push(
        self, source: bytes, *more: Pair, group: bytes = b"g", ack: bool = True, end: bool = True, accept: Pair = LINES
    ) -> int:
        """Open a stream; `end=False` leaves our side of it open. Returns its number."""
        pairs = pulling(source, accept, *more, group=group, ack=b"true" if ack else b"false")
        stream = self.request("GET", "/v1/push", pairs, b"" if end else None)
        self.bodies[stream] = bytearray()
        return stream

    def grant(self, stream: int, size: int) -> None:
        """Let so many more bytes of a stream come; AssertionError when it is over."""
        assert self.over(stream) is None, self.over(stream)
        self._h2.increment_flow_control_window(size, stream)
        self._write()

    def send_until_stopped(self, stream: int, data: bytes) -> bytes:
        """Send until the window of a stream stays shut for a second; return the rest."""
        view, since = memoryview(data), time.monotonic()
        while time.monotonic() - since < 1:
            window = min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size, len(view))
            if window:
                self.send(stream, bytes(view[:window]))
                view, since = view[window:], time.monotonic()
            else:
                self._read(time.monotonic() + 0.1)
        return bytes(view)

    def end(self, stream: int) -> None:
        """Close our side of a stream."""
        self._h2.end_stream(stream)
        self._write()

    def leave(self, how: str, streams: Iterable[int]) -> None:
        """`reset` every stream, or of the connection: `close` it, `cut` it with a TCP reset, `shut` our side of it."""
        if how == "reset":
            for stream in streams:
                self._h2.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
            self._write()
        else:
            leave(self._socket, how)

    def lines(self, stream: int) -> list[dict[str, Any]]:
        """Return the messages that have come whole, and the end: of a stream of lines or of events."""
        return _lines(self.bodies[stream])

    def take(self, stream: int) -> list[dict[str, Any]]:
        """Return them and drop them."""
        whole = self.bodies[stream].rfind(b"\n") + 1
        taken = _lines(self.bodies[stream][:whole])
        del self.bodies[stream][:whole]
        return taken

    def over(self, stream: int) -> str | None:
        """How a stream has ended, if it has: see `Answer.ended`."""
        return self._done.get(stream, "closed" if self._closed else None)

    def until(self, done: Callable[[], bool], what: str) -> None:
        """Read until `done`."""
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < deadline, what
            assert not self._closed, f"the connection ended: {what}"
            self._read(min(deadline, time.monotonic() + 0.1))

    def answer_pings(self) -> None:
        """Read what has come, without waiting: who reads nothing for 50 s is taken for dead."""
        if wait([self._socket], 0):
            self._read(time.monotonic())

    def more(self, stream: int) -> None:
        """Read until more of a stream has come."""
        seen = len(self.bodies[stream])
        self.until(lambda: len(self.bodies[stream]) > seen, "more of it")

    def _note(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.DataReceived) and event.stream_id in self.bodies:
            self.bodies[event.stream_id] += event.data or b""
            size = event.flow_controlled_length or 0
            if self._window is None:
                self._h2.acknowledge_received_data(size, event.stream_id)
            elif size:
                self._h2.increment_flow_control_window(size)
        else:
            super()._note(event)


def _lines(text: bytearray) -> list[dict[str, Any]]:
    whole = bytes(text[: text.rfind(b"\n") + 1]).split(b"\n")
    return [json.loads(line.removeprefix(b"data: ")) for line in whole if line.startswith(_DATA)]


class Plain:
    """One push stream over HTTP/1.1, on a socket with a small receive buffer."""

    def __init__(self, url: str, source: bytes, *, group: bytes, ack: bool) -> None:
        parts = urlsplit(url)
        self._socket = socket.socket()
        self._socket.settimeout(PATIENCE)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
        self._socket.connect((parts.hostname, parts.port))
        pairs = [(b"host", b"localhost"), EVENTS, *pulling(source, group=group, ack=b"true" if ack else b"false")]
        head = b"".join(b"%b: %b\r\n" % pair for pair in pairs)
        self._socket.sendall(b"GET /v1/push HTTP/1.1\r\n%b\r\n" % head)
        self.got = bytearray()

    def until(self, text: bytes) -> None:
        """Read until that has come; not much further."""
        while text not in self.got:
            data = self._socket.recv(1000)
            assert data, "the connection ended"
            self.got += data

    def leave(self, how: str) -> None:
        """See `Streams.leave`."""
        leave(self._socket, how)

    def read_to_the_end(self) -> None:
        """Read until the bridge ends the connection."""
        with contextlib.suppress(ConnectionResetError):
            while self._socket.recv(1 << 16):
                pass

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self._socket.close()


def leave(connection: socket.socket, how: str) -> None:
    if how == "shut":
        connection.shutdown(socket.SHUT_WR)
        return
    if how == "cut":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    connection.close()


class Load(NamedTuple):
    """What a bridge is busy with."""

    requests: int
    waiting: int
    leases: int
    descriptors: int


def gauges(bridge: Bridge) -> dict[str, float]:
    """Return its metrics by name, those of all labels together."""
    found: defaultdict[str, float] = defaultdict(float)
    asking = http.client.HTTPConnection(urlsplit(bridge.management).netloc)
    asking.request("GET", "/metrics")
    text = asking.getresponse().read().decode("utf-8")
    asking.close()
    for line in text.splitlines():
        if line.startswith("oms_"):
            found[line.partition("{")[0].partition(" ")[0]] += float(line.split()[-1])
    return found


def load(bridge: Bridge) -> Load:
    """Measure it."""
    now = gauges(bridge)
    descriptors = sum(1 for _ in Path(f"/proc/{bridge.pid}/fd").iterdir())
    return Load(int(now["oms_requests_active"]), int(now["oms_waiting_pulls"]), int(now["oms_leases"]), descriptors)


def wait_until(done: Callable[[], bool], what: Callable[[], object]) -> None:
    """Wait for a condition; AssertionError with `what` if it does not come."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


def back_to(bridge: Bridge, rest: Load) -> None:
    """Wait until a bridge is no busier than it was."""
    wait_until(
        lambda: all(now <= then for now, then in zip(load(bridge), rest, strict=True)), lambda: (load(bridge), rest)
    )


def take_one(frames: Frames, source: bytes, group: bytes = b"g") -> tuple[bytes, int]:
    """Pull one message for good: its body and its deliveryCount."""
    answer = frames.ask("GET", "/v1/messages", pulling(source, group=group, ack=b"false"))
    assert answer.status == 200, answer
    return answer.body, int(answer.headers[b"x-oms-h-deliverycount"])


def fill(frames: Frames, target: bytes, bodies: Iterable[bytes], **header: object) -> None:
    """Store messages, in this order, in batches."""
    waiting: list[bytes] = []
    for body in bodies:
        waiting.append(body)
        if sum(map(len, waiting)) >= _BATCH or len(waiting) == 1000:
            _store(frames, target, waiting, header)
            waiting = []
    if waiting:
        _store(frames, target, waiting, header)


def _store(frames: Frames, target: bytes, bodies: list[bytes], header: dict[str, object]) -> None:
    head = {"destination": target.decode("ascii"), **header}
    items = [{"header": head, "data": base64.b64encode(body).decode("ascii")} for body in bodies]
    pairs = [VERSION, (b"content-type", b"application/json")]
    answer = post(frames, pairs, json.dumps(items).encode("ascii"))
    assert answer.status == 200, answer


def bodies_of(lines: Iterable[dict[str, Any]]) -> list[bytes]:
    """Return the bodies of a stream's lines."""
    return [base64.b64decode(line["data"]) for line in lines if "data" in line]
