"""The HTTP/2 state machine: python-h2, configured and changed for the bridge, and a budget of frames. Pure.

python-h2 ends the connection for every error. Here a malformed request resets its own stream (RFC 9113, section 8.1.1),
and the other requests of the connection go on.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from time import monotonic
from typing import Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, Event, StreamReset
from h2.exceptions import DenialOfServiceError, InvalidBodyLengthError, ProtocolError, StreamClosedError
from h2.settings import SettingCodes, Settings
from h2.stream import StreamClosedBy, StreamState
from hpack import Decoder, Encoder, HPACKError, OversizedHeaderListError
from hpack.hpack import encode_integer
from hyperframe.exceptions import InvalidPaddingError
from hyperframe.frame import DataFrame, Frame, GoAwayFrame, HeadersFrame, RstStreamFrame, SettingsFrame

from bridge.server.connection_limits import MAX_STREAMS
from bridge.server.hypercorn.stream import WINDOW

SMALL_DATA: Final = 16
"""Bytes of a DATA frame below which it counts as empty: handling it costs more than its bytes are worth."""

SETTINGS_COST: Final = 10
"""A SETTINGS frame counts as so many frames: it changes the window of each open stream."""

FRAME_BURST: Final = 1000
"""Counted frames that a client may send at once. A frame costs about 10 us."""

FRAME_RATE: Final = 100
"""Counted frames that a client may send per second after that."""

FRAMES_SAVED: Final = 10_000
"""Counted frames that a client may have earned and not used: its answers to DATA arrive later than the DATA."""

EARNED_BY_REQUEST: Final = 4
"""Counted frames that each request allows in addition, such as PRIORITY."""

EARNED_BY_DATA: Final = 3
"""Counted frames that each DATA frame of a response allows in addition: a WINDOW_UPDATE for the stream and one for the
connection, and a PING that measures the bandwidth."""


def frame_cost(frame: Frame) -> int:
    """Return how many frames `frame` counts as: 0 for a header block, and for DATA that holds bytes or ends a body.

    Everything else has a cost: SETTINGS, PING, WINDOW_UPDATE, PRIORITY, RST_STREAM, unknown types, and DATA of fewer
    than `SMALL_DATA` bytes, padding not counted.
    """
    if isinstance(frame, HeadersFrame):
        return 0
    if isinstance(frame, DataFrame):
        return int(len(frame.data) < SMALL_DATA and "END_STREAM" not in frame.flags)
    return SETTINGS_COST if isinstance(frame, SettingsFrame) else 1


class TokenBucket:
    """`burst` tokens at first, `rate` new ones per second up to `burst`, and earned ones up to `saved`."""

    def __init__(self, burst: int, rate: float, saved: int = 0) -> None:
        self._burst, self._rate, self._saved = burst, rate, saved
        self._tokens: float = burst
        self._updated = monotonic()

    def earn(self, tokens: int) -> None:
        """Add tokens."""
        self._tokens = max(self._tokens, min(self._saved, self._tokens + tokens))

    def take(self, tokens: int = 1) -> bool:
        """Take `tokens`; False, and nothing is taken, if there are fewer."""
        now = monotonic()
        if self._tokens < self._burst:
            self._tokens = min(self._burst, self._tokens + (now - self._updated) * self._rate)
        self._updated = now
        if self._tokens < tokens:
            return False
        self._tokens -= tokens
        return True


HEADER_SLACK = 4
"""Times `header_limit` that is still answered 431. Beyond it h2 closes the connection (GOAWAY ENHANCE_YOUR_CALM)."""

_KNOWN_SETTINGS: Final = frozenset(SettingCodes)

_INDEXED_STATUS: Final = {b"200": b"\x88", b"204": b"\x89", b"400": b"\x8c", b"404": b"\x8d", b"500": b"\x8e"}
"""The `:status` fields that the static table contains with their value (RFC 7541, appendix A)."""

_ONE_BYTE: Final = 127
"""Lengths below this take one byte (RFC 7541, section 5.1: a prefix of 7 bits)."""
_LENGTHS: Final = tuple(bytes((size,)) for size in range(_ONE_BYTE))


def _no_text() -> str:
    """Replace the text of a frame, which h2 makes of all its bytes for a log that is off: 30 us for 16 KiB."""
    return ""


class TolerantH2Connection(H2Connection):
    """The server's side of a connection. It goes on responding after a client's GOAWAY with NO_ERROR."""

    def __init__(self, header_limit: int) -> None:
        super().__init__(
            H2Configuration(
                client_side=False,
                header_encoding=None,
                # The bridge's responses are valid by construction, which tests check; checking each again costs 15 us.
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self.encoder = NonIndexingEncoder()
        self.decoder = _Decoder(HEADER_SLACK * header_limit)
        self.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.INITIAL_WINDOW_SIZE: WINDOW - 1,
                SettingCodes.MAX_HEADER_LIST_SIZE: header_limit,
                SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
            },
        )
        self.initiate_connection()
        # Announced, but not applied by h2: it would end the connection. Http2 refuses the stream.
        del self.local_settings[SettingCodes.MAX_CONCURRENT_STREAMS]
        # An unread body fills its own window only, never the window of the connection.
        self.increment_flow_control_window((MAX_STREAMS - 1) * WINDOW)

    def receive_frames(self, data: bytes) -> Iterator[tuple[Frame | None, list[Event]]]:
        """Handle the frames in `data` one by one; yields each with its events.

        An error of the connection ends the iteration with `ConnectionTerminated`; the GOAWAY is ready to be sent.
        """
        buffer = self.incoming_buffer
        buffer.max_frame_size = self.max_inbound_frame_size
        try:
            buffer.add_data(data)
            for frame in buffer:
                if isinstance(frame, DataFrame):
                    frame._body_repr = _no_text  # type: ignore[method-assign] # noqa: SLF001
                yield frame, self._receive_frame(frame)
        except (ProtocolError, InvalidPaddingError) as error:
            code = error.error_code if isinstance(error, ProtocolError) else ErrorCodes.PROTOCOL_ERROR
            self._terminate_connection(code)
            yield None, [ConnectionTerminated()]

    def _receive_headers_frame(self, frame: HeadersFrame) -> tuple[list[Frame], list[Event]]:
        try:
            return super()._receive_headers_frame(frame)
        except (DenialOfServiceError, HeaderBlockError, StreamClosedError):
            raise
        except ProtocolError as error:
            if frame.stream_id not in self.streams:
                raise  # the number of the stream is wrong
            raise self._reset(frame.stream_id, error) from error

    def _receive_data_frame(self, frame: DataFrame) -> tuple[list[Frame], list[Event]]:
        try:
            return super()._receive_data_frame(frame)
        except InvalidBodyLengthError as error:
            # "A request or response is also malformed if the value of a content-length header field does not equal the
            # sum of the DATA frame payload lengths" (RFC 9113, section 8.1.1).
            return self._handle_data_on_closed_stream([], self._reset(frame.stream_id, error), frame)

    def _reset(self, stream_id: int, error: ProtocolError) -> StreamClosedError:
        """Close a stream. Returns the exception that makes h2 send the RST_STREAM."""
        machine = self.streams[stream_id].state_machine
        machine.state, machine.stream_closed_by = StreamState.CLOSED, StreamClosedBy.SEND_RST_STREAM
        closed = StreamClosedError(stream_id)
        closed.error_code = error.error_code
        closed._events = [StreamReset(stream_id=stream_id, error_code=error.error_code, remote_reset=False)]  # noqa: SLF001
        return closed

    def _receive_rst_stream_frame(self, frame: RstStreamFrame) -> tuple[list[Frame], list[Event]]:
        if frame.stream_id > self.highest_inbound_stream_id:
            raise ProtocolError("RST_STREAM for an idle stream")  # h2 ignores it; see RFC 9113, section 6.4
        return super()._receive_rst_stream_frame(frame)

    def _receive_settings_frame(self, frame: SettingsFrame) -> tuple[list[Frame], list[Event]]:
        # h2 stores unknown settings: 50 MB for all 65,536.
        for unknown in frame.settings.keys() - _KNOWN_SETTINGS:
            del frame.settings[unknown]
        return super()._receive_settings_frame(frame)

    def _receive_goaway_frame(self, frame: GoAwayFrame) -> tuple[list[Frame], list[Event]]:
        if frame.error_code == ErrorCodes.NO_ERROR:
            return [], []  # the client opens no more streams; h2 would drop the responses that it still waits for
        return super()._receive_goaway_frame(frame)


class HeaderBlockError(ProtocolError):
    """A header block cannot be decoded. The compression state is lost, and with it the connection.

    "A receiver MUST terminate the connection with a connection error of type COMPRESSION_ERROR if it does not
    decompress a field block" (RFC 9113, section 4.3).
    """

    error_code = ErrorCodes.COMPRESSION_ERROR


class _Decoder(Decoder):
    """Raises `HeaderBlockError`: h2 makes no difference between that and a malformed request."""

    def decode(self, data: bytes, raw: bool = False) -> Iterable[tuple[bytes, bytes]]:  # type: ignore[override]
        try:
            return super().decode(data, raw)
        except OversizedHeaderListError:
            raise  # h2 closes the connection: ENHANCE_YOUR_CALM
        except HPACKError as error:
            raise HeaderBlockError(str(error)) from error


class NonIndexingEncoder(Encoder):
    """Writes each header field as a literal without indexing (RFC 7541, section 6.2.2), and without Huffman code.

    A response of the bridge has ten fields, half of them different each time. hpack adds each to its dynamic table,
    evicts others, searches the table for the next, and encodes values with Huffman: 33 us a response, a tenth of the
    total. This class takes 3 us, and 200 bytes more on a loopback or a local network.
    """

    def encode(self, headers: Iterable[tuple[bytes, bytes]], huffman: bool = True) -> bytes:  # type: ignore[override]
        """Return one header block."""
        if self.header_table.resized:
            return super().encode(headers, huffman)  # the new size must be announced, which hpack does
        block = bytearray()
        for name, value in headers:
            if name == b":status" and value in _INDEXED_STATUS:
                block += _INDEXED_STATUS[value]
            else:
                block += _literal_name(name)
                size = len(value)
                block += _LENGTHS[size] if size < _ONE_BYTE else encode_integer(size, 7)
                block += value
        return bytes(block)


@lru_cache(maxsize=256)
def _literal_name(name: bytes) -> bytes:
    """Return the start of a literal without indexing up to its value: the bridge sends few different names."""
    size = len(name)
    return b"\0" + (_LENGTHS[size] if size < _ONE_BYTE else encode_integer(size, 7)) + name
