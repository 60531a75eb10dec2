"""One HTTP/2 connection, frame by frame: for what a well-behaved client would never send."""

import contextlib
import socket
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Final, NamedTuple, Self
from urllib.parse import urlsplit

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings

TIMEOUT: Final = 20.0

Pairs = Iterable[tuple[bytes, bytes]]


class Answer(NamedTuple):
    """What became of one request."""

    status: int | None
    """None: no headers came."""
    headers: dict[bytes, bytes]
    body: bytes
    ended: str
    """`complete`, `reset` (the stream alone) or `closed` (the whole connection)."""


class Frames:
    """A client that sends any frames, legal or not. Synchronous; use it as a context manager."""

    def __init__(self, url: str, *, window: int | None = None) -> None:
        """Connect with prior knowledge. `window` bytes of each answer's body are taken, then no more."""
        parts = urlsplit(url)
        self.authority = parts.netloc.encode("ascii")
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 80), timeout=TIMEOUT)
        config = h2.config.H2Configuration(
            header_encoding=None,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
            validate_inbound_headers=True,
        )
        self._h2 = h2.connection.H2Connection(config)
        if window is not None:
            code = h2.settings.SettingCodes.INITIAL_WINDOW_SIZE
            self._h2.local_settings = h2.settings.Settings(client=True, initial_values={code: window})
        self._window = window
        self._answers: dict[int, Answer] = {}
        self._done: dict[int, str] = {}
        self._closed = False
        self._h2.initiate_connection()
        self._write()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hang_up()

    def request(self, method: str, path: str, pairs: Pairs = (), body: bytes | None = None) -> int:
        """Open a stream; it stays half open when body is None. Returns its number."""
        stream = self._h2.get_next_available_stream_id()
        pseudo = [
            (b":method", method.encode("ascii")),
            (b":scheme", b"http"),
            (b":authority", self.authority),
            (b":path", path.encode("latin-1")),
        ]
        self._h2.send_headers(stream, [*pseudo, *pairs], end_stream=body == b"")
        self._write()
        if body:
            self.send(stream, body, end=True)
        return stream

    def send(self, stream: int, body: bytes, *, end: bool = False) -> None:
        """Send a part of a body, as the window allows."""
        view = memoryview(body)
        while stream not in self._done and not self._closed:
            window = min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size, len(view))
            if window or not view:
                last = window == len(view)
                self._h2.send_data(stream, bytes(view[:window]), end_stream=end and last)
                self._write()
                view = view[window:]
                if last:
                    return
            elif not self._read(time.monotonic() + TIMEOUT):
                return

    def raw(self, data: bytes) -> None:
        """Send bytes past every check."""
        self._socket.sendall(data)

    def reset(self, stream: int) -> None:
        """Cancel a request."""
        self._h2.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
        self._write()

    def answer(self, stream: int, seconds: float = TIMEOUT) -> Answer:
        """Wait for the end of an answer. Raises `TimeoutError`."""
        deadline = time.monotonic() + seconds
        while stream not in self._done:
            if self._closed or not self._read(deadline):
                if not self._closed:
                    raise TimeoutError(f"no end of stream {stream} within {seconds} s")
                self._done[stream] = "closed"
        return self._answers.get(stream, Answer(None, {}, b"", ""))._replace(ended=self._done[stream])

    def headers_of(self, stream: int, seconds: float = TIMEOUT) -> Answer:
        """Wait for the headers of an answer only. Raises `TimeoutError`."""
        deadline = time.monotonic() + seconds
        while stream not in self._answers:
            if stream in self._done or not self._read(deadline):
                raise TimeoutError(f"no headers of stream {stream}")
        return self._answers[stream]

    def body_of(self, stream: int) -> bytes:
        """Return what has come of an answer's body so far."""
        return self._answers[stream].body if stream in self._answers else b""

    def grows(self, stream: int, size: int, seconds: float) -> bool:
        """Wait until more than so many bytes of a body are there, or the answer is over. False: neither in time."""
        deadline = time.monotonic() + seconds
        while len(self.body_of(stream)) <= size:
            if stream in self._done or self._closed:
                return True
            if time.monotonic() >= deadline:
                return False
            self._read(deadline)
        return True

    def ask(self, method: str, path: str, pairs: Pairs = (), body: bytes = b"") -> Answer:
        """Send a request and wait for its answer."""
        return self.answer(self.request(method, path, pairs, body))

    def hang_up(self) -> None:
        """Close the socket without a GOAWAY."""
        self._socket.close()

    def _read(self, deadline: float) -> bool:
        self._socket.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            data = self._socket.recv(65536)
        except TimeoutError:
            return False
        except OSError:
            data = b""
        if not data:
            self._closed = True
            return False
        for event in self._h2.receive_data(data):
            self._note(event)
        self._write()
        return True

    def _note(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.ResponseReceived):
            assert event.stream_id is not None
            headers = {bytes(name): bytes(value) for name, value in event.headers or ()}
            self._answers[event.stream_id] = Answer(int(headers[b":status"]), headers, b"", "")
        elif isinstance(event, h2.events.DataReceived):
            assert event.stream_id is not None
            known = self._answers[event.stream_id]
            self._answers[event.stream_id] = known._replace(body=known.body + (event.data or b""))
            if self._window is None:
                self._h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            assert event.stream_id is not None
            self._done.setdefault(event.stream_id, "complete")
        elif isinstance(event, h2.events.StreamReset):
            # a reset with NO_ERROR after a whole answer means "send no more", not "forget it" (RFC 9113 8.1)
            assert event.stream_id is not None
            self._done.setdefault(event.stream_id, "reset")
        elif isinstance(event, h2.events.ConnectionTerminated):
            self._closed = True

    def _write(self) -> None:
        if data := self._h2.data_to_send():
            with contextlib.suppress(OSError):
                self._socket.sendall(data)
