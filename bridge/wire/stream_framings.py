"""Framings of streams: many messages on one response of a push, and the lines of a body without end. Pure.

Each framing of a push marks the end of the stream; a stream without this mark was cut off.
"""

import json
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from msgspec.json import Decoder
from msgspec.structs import astuple

from bridge.cloudevents import LEASE_UNTIL, RECEIPT
from bridge.errors import BodyInvalid
from bridge.message import Message
from bridge.wire import cloudevents, json_errors, jsonform, multipart
from bridge.wire.cloudevents import Mode
from bridge.wire.header_text import EVENTS, choose, printable
from bridge.wire.headers import encode

_EVENTS: Final = EVENTS.encode("ascii")
_encode_json: Final = json.JSONEncoder(separators=(",", ":")).encode


class StreamMessage(NamedTuple):
    """One message of a stream."""

    message: Message
    receipt: str | None
    lease_until: int


class Sent(Protocol):
    """What a framing reads of a message: a `StreamMessage`, or what a consumer has taken."""

    @property
    def message(self) -> Message:
        """The message."""
        ...

    @property
    def receipt(self) -> str | None:
        """Its receipt."""
        ...

    @property
    def lease_until(self) -> int:
        """The end of its lease, ms since 1970."""
        ...


Events = Iterable[tuple[str, Sent]]
"""Messages, each with its event id, which is empty if nothing reads it."""


class StreamEnd(NamedTuple):
    """The end of a stream."""

    reason: str
    """`maxmessages`, `waitmills`, `draining`, `purged`, `deleted`, or the code of an error."""
    detail: str | None = None


class Framing(Protocol):
    """How the messages of a stream are encoded and separated."""

    content_type: bytes
    opening: bytes
    """Sent immediately, so that the client gets the headers of the response."""
    heartbeat: bytes
    """Sent when the stream has been silent for a while; no message."""

    def messages(self, events: Events) -> bytes:
        """Return messages, complete without the next one."""
        ...

    def end(self, end: StreamEnd) -> bytes:
        """Return the end mark."""
        ...


class MultipartFraming:
    """`multipart/mixed`: each part is one message in the form of a produce, with its receipt as a header."""

    def __init__(self, boundary: bytes, *, events: bool = False) -> None:
        """`events`: each part is a CloudEvent in binary mode."""
        self.content_type = b"multipart/mixed; boundary=" + boundary + (_EVENTS if events else b"")
        self._events = events
        self.opening = multipart.opening(boundary)
        self.heartbeat = multipart.encode_part((), b"", boundary)
        self._boundary = boundary

    def messages(self, events: Events) -> bytes:
        """See `Framing`."""
        return b"".join([self._encode(line) for _, line in events])

    def _encode(self, line: Sent) -> bytes:
        message = line.message
        pairs, body = cloudevents.encode(message, Mode.BINARY) if self._events else (encode(message), message.body)
        if line.receipt is not None:
            pairs.append((b"x-oms-receipt", line.receipt.encode("ascii")))
            pairs.append((b"x-oms-leaseuntil", b"%d" % line.lease_until))
        return multipart.encode_part(pairs, body, self._boundary)

    def end(self, end: StreamEnd) -> bytes:
        """See `Framing`: the closing delimiter. After an error there is none: the stream is cut off."""
        return multipart.CLOSING if end.detail is None else b""


class NdjsonFraming:
    """`application/x-ndjson`: each line is one message in the specification's JSON form."""

    opening = b""
    heartbeat = b"\n"

    def __init__(self, *, events: bool = False) -> None:
        """`events`: each line is a CloudEvent in structured mode."""
        self.content_type = b"application/x-ndjson" + (_EVENTS if events else b"")
        self._events = events

    def messages(self, events: Events) -> bytes:
        """See `Framing`."""
        if self._events:
            return b"".join([_encode_event(line) + b"\n" for _, line in events])
        return jsonform.encode_lines([(line.message, line.receipt, line.lease_until) for _, line in events])

    def end(self, end: StreamEnd) -> bytes:
        """See `Framing`."""
        return encode_line(end) + b"\n"


class EventStreamFraming:
    """`text/event-stream` for a browser's `EventSource`: the lines of NDJSON as data."""

    opening = b"retry: 1000\n\n"
    """Milliseconds after which a browser reconnects."""
    heartbeat = b":\n\n"

    def __init__(self, *, events: bool = False) -> None:
        """`events`: the data is a CloudEvent in structured mode."""
        self.content_type = b"text/event-stream" + (_EVENTS if events else b"")
        self._encode = _encode_event if events else _encode_message

    def messages(self, events: Events) -> bytes:
        """See `Framing`."""
        return b"".join([b"id: %b\ndata: %b\n\n" % (at.encode("ascii"), self._encode(line)) for at, line in events])

    def end(self, end: StreamEnd) -> bytes:
        """See `Framing`."""
        return b"event: end\ndata: %b\n\n" % encode_line(end)


FRAMINGS: Final[dict[str, Callable[[bytes], Framing]]] = {
    "multipart/mixed": MultipartFraming,
    "application/x-ndjson": lambda _: NdjsonFraming(),
    "text/event-stream": lambda _: EventStreamFraming(),
    f"multipart/mixed{EVENTS}": partial(MultipartFraming, events=True),
    f"application/x-ndjson{EVENTS}": lambda _: NdjsonFraming(events=True),
    f"text/event-stream{EVENTS}": lambda _: EventStreamFraming(events=True),
}
"""Each media type, and what builds its framing with a boundary that occurs in no message."""


def choose_framing(accept: bytes | None, boundary: bytes) -> Framing:
    """Return the framing that an `accept` header prefers (RFC 9110 12.5.1); by default `multipart/mixed`.

    The boundary must not occur in any message. Raises `NotAcceptable`.
    """
    return FRAMINGS[choose(accept, tuple(FRAMINGS), "a push stream")](boundary)


def _encode_event(line: Sent) -> bytes:
    """Return one message as a CloudEvent on a line, without the newline."""
    if line.receipt is None:
        return cloudevents.encode_json(line.message)
    return cloudevents.encode_json(line.message, {RECEIPT: line.receipt, LEASE_UNTIL: str(line.lease_until)})


def encode_line(line: StreamMessage | StreamEnd) -> bytes:
    """Return one message, or the end, as a line of JSON without the newline."""
    if isinstance(line, StreamEnd):
        detail = {} if line.detail is None else {"detail": line.detail}
        return _encode_json({"end": line.reason, **detail}).encode("ascii")
    return _encode_message(line)


def _encode_message(line: Sent) -> bytes:
    return jsonform.encode(line.message, line.receipt, line.lease_until)


_decoder: Final = Decoder(jsonform.Line)


def decode_lines(raw: bytes) -> Iterable[StreamMessage | StreamEnd]:
    """Return the messages of whole lines, and the end. Raises `BodyInvalid` at the line that is neither."""
    try:
        return [_to_message(line) for line in _decoder.decode_lines(raw)]
    except (ValueError, RecursionError):  # most often because of the end
        return (decode_line(line) for line in raw.split(b"\n") if line)


def decode_message(raw: bytes) -> Message:
    """Return the message of a response or a callback in the JSON form. Raises `BodyInvalid`."""
    line = decode_line(raw)
    if isinstance(line, StreamEnd):
        raise BodyInvalid("The body is not a message in the JSON form.")
    return line.message


def decode_line(raw: bytes) -> StreamMessage | StreamEnd:
    """Return the message or the end of a line. Raises `BodyInvalid`."""
    try:
        return _to_message(_decoder.decode(raw))
    except (ValueError, RecursionError) as error:
        return _decode_end(raw, str(error))


def _to_message(line: Any) -> StreamMessage:  # noqa: ANN401 - a `jsonform.Line`
    destination, *header = astuple(line.header)
    fields = (destination, line.data, line.properties, *header, *astuple(line.extension))
    return StreamMessage(Message._make(fields), line.receipt, line.lease_until)


def _decode_end(raw: bytes, reason: str) -> StreamEnd:
    """Return the end; `reason` says why the line is no message."""
    item = json_errors.read(raw)
    if not isinstance(item, dict) or "end" not in item:
        shown = printable(reason.encode())
        raise BodyInvalid(f"A line of a push stream is a message with header.destination, or an end; {shown}")
    end, detail = item["end"], item.get("detail")
    if type(end) is not str or type(detail) not in (str, type(None)):
        raise BodyInvalid("A line of a push stream: end and detail are strings.")
    return StreamEnd(end, detail)


RUN: Final = 64 << 10
"""Bytes of a run, unless it is one line; so much is decoded in one step."""


class Line(NamedTuple):
    """One line of a body."""

    number: int
    """1 for the first line; lines of white space count, and are left out."""
    text: bytes | None
    """None: the line is longer than the limit."""


class Run(NamedTuple):
    """Lines that follow each other."""

    number: int
    """Of the first line."""
    length: int
    """Number of lines."""
    text: bytes | None
    """With line feeds between the lines, and none at the end. None: it is one line, longer than the limit."""

    def lines(self) -> Iterator[Line]:
        """Yield the lines, except those of white space."""
        if self.text is None:
            yield Line(self.number, None)
            return
        for number, line in enumerate(self.text.split(b"\n"), self.number):
            text = line.removeprefix(BOM_UTF8)  # before the first line of a file, and of each one appended to it
            if text.strip():
                yield Line(number, text)


class LineSplitter:
    """Collects pieces of a body, and holds no more of a line than `limit` bytes."""

    def __init__(self, limit: int, most: int) -> None:
        """`most`: lines of a run."""
        self._limit = limit
        self._most = most
        self._unfinished = bytearray()
        self._too_long = False
        self._number = 1

    @property
    def size(self) -> int:
        """Bytes that are held of a line without its end."""
        return len(self._unfinished)

    def feed(self, piece: bytes) -> list[Run]:
        """Return the lines that end in this piece."""
        first = piece.find(b"\n")
        if first < 0:
            self._add(piece)
            return []
        self._add(piece[:first])
        last = piece.rfind(b"\n")
        whole = b"" if self._too_long else bytes(self._unfinished)
        if not self._too_long and first < last and len(whole) + last - first <= RUN:
            self._unfinished.clear()
            runs = self._runs(whole + piece[first:last])
        else:
            runs = self.end()
            if first < last:
                runs += self._runs(piece[first + 1 : last])
        self._add(piece[last + 1 :])
        return runs

    def end(self) -> list[Run]:
        """End the line that was begun, which needs no line feed at the end of the body. Returns it, or nothing."""
        number, self._number = self._number, self._number + 1
        text, self._unfinished = bytes(self._unfinished), bytearray()
        if self._too_long:
            self._too_long = False
            return [Run(number, 1, None)]
        return [Run(number, 1, text)] if text.strip() else []

    def _runs(self, text: bytes) -> list[Run]:
        """Return whole lines as runs that are not too large."""
        count = text.count(b"\n") + 1
        if len(text) <= min(RUN, self._limit) and count <= self._most:
            self._number += count
            return [Run(self._number - count, count, text)]
        if count > 1:
            middle = text.rfind(b"\n", 0, len(text) // 2 + 1)
            if middle < 0:
                middle = text.find(b"\n")
            return self._runs(text[:middle]) + self._runs(text[middle + 1 :])
        self._add(text)
        return self.end()

    def _add(self, part: bytes) -> None:
        if self._too_long or len(self._unfinished) + len(part) > self._limit:
            self._too_long = True
            self._unfinished.clear()
        else:
            self._unfinished += part
