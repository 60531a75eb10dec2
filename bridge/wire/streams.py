"""A push stream: many messages on one response, in one of three framings.

Each framing has an end of its own: a stream that stops without it was broken off.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from bridge.errors import BodyInvalid, NotAcceptable
from bridge.message import Message
from bridge.wire import jsonform, multipart
from bridge.wire.headers import encode
from bridge.wire.text import printable

T = TypeVar("T")
D = TypeVar("D")

_encode_json: Final = json.JSONEncoder(separators=(",", ":")).encode


class Line(NamedTuple):
    """One message of a stream."""

    message: Message
    receipt: str | None
    lease_until: int


class End(NamedTuple):
    """The last line of a stream: why it ended."""

    why: str
    """`maxmessages`, `waitmills`, `draining`, or the code of an error."""
    detail: str | None = None


class Framing(Protocol):
    """How messages follow one another."""

    content_type: bytes
    opening: bytes
    """Sent at once, so that the head of the answer is on its way too."""

    def message(self, line: Line, event_id: str) -> bytes:
        """Write one message, complete in itself."""
        ...

    def end(self, end: End) -> bytes:
        """Write the end."""
        ...


class Multipart:
    """`multipart/mixed`: each part is one message in the produce form, with its receipt beside it."""

    def __init__(self, boundary: bytes) -> None:
        self.content_type = b"multipart/mixed; boundary=" + boundary
        self.opening = multipart.opening(boundary)
        self._boundary = boundary

    def message(self, line: Line, event_id: str) -> bytes:  # noqa: ARG002 - only events have ids
        """See `Framing`."""
        pairs = encode(line.message)
        if line.receipt is not None:
            pairs.append((b"x-oms-receipt", line.receipt.encode("ascii")))
            pairs.append((b"x-oms-leaseuntil", b"%d" % line.lease_until))
        return multipart.encode_part(pairs, line.message.body, self._boundary)

    def end(self, end: End) -> bytes:
        """See `Framing`. The closing delimiter stands for every reason but an error, which breaks the stream off."""
        return multipart.CLOSING if end.detail is None else b""


class Lines:
    """`application/x-ndjson`: each line one message in the specification's JSON form."""

    content_type = b"application/x-ndjson"
    opening = b""

    def message(self, line: Line, event_id: str) -> bytes:  # noqa: ARG002 - only events have ids
        """See `Framing`."""
        return encode_line(line) + b"\n"

    def end(self, end: End) -> bytes:
        """See `Framing`."""
        return encode_line(end) + b"\n"


class Events:
    """`text/event-stream`, what a browser's `EventSource` reads: the same lines as data."""

    content_type = b"text/event-stream"
    opening = b"retry: 1000\n\n"
    """Milliseconds after which a browser comes back."""

    def message(self, line: Line, event_id: str) -> bytes:
        """See `Framing`."""
        return b"id: %b\ndata: %b\n\n" % (event_id.encode("ascii"), encode_line(line))

    def end(self, end: End) -> bytes:
        """See `Framing`."""
        return b"event: end\ndata: %b\n\n" % encode_line(end)


_WEIGHT: Final = re.compile(r"0(\.\d{0,3})?|\.\d{1,3}|1(\.0{0,3})?", re.ASCII)
"""RFC 9110 12.4.2, and `.2`: Java's `HttpURLConnection` asks for `*/*; q=.2` unless it is told otherwise."""

_FRAMINGS: Final[dict[str, Callable[[bytes], Framing]]] = {
    "multipart/mixed": Multipart,
    "application/x-ndjson": lambda _: Lines(),
    "text/event-stream": lambda _: Events(),
}


def framing_for(accept: bytes | None, boundary: bytes) -> Framing:
    """Choose by an `accept` header (RFC 9110 12.5.1); absent or without preference: `multipart/mixed`.

    Raises `NotAcceptable`. The boundary must not occur in any message.
    """
    ranges = _ranges(accept) if accept is not None else {"*/*": 1.0}
    best = max(_FRAMINGS, key=lambda name: _quality(name, ranges))  # the first of equals
    if not _quality(best, ranges):
        shown = printable(accept or b"")
        raise NotAcceptable(f"accept: a push stream is {', '.join(_FRAMINGS)}; {shown} takes none of these.")
    return _FRAMINGS[best](boundary)


def encode_line(line: Line | End) -> bytes:
    """Write one line, without its line end."""
    if isinstance(line, End):
        detail = {} if line.detail is None else {"detail": line.detail}
        return _encode_json({"end": line.why, **detail}).encode("ascii")
    item = jsonform.encode_head(line.message)
    if line.receipt is not None:
        item["receipt"] = line.receipt
        item["leaseUntil"] = line.lease_until
    head = _encode_json(item)[:-1].encode("ascii")
    # Base64 needs no escape: past the encoder a body of 1 KiB costs 2 us less of the 25 that a message may take.
    return b'%b,"data":"%b"}' % (head, b64encode(line.message.body))


def decode_line(raw: bytes) -> Line | End:
    """Read one line. Raises `BodyInvalid`, or what `jsonform.decode` raises."""
    item = jsonform.read(raw)
    if not isinstance(item, dict):
        raise BodyInvalid("A line of a push stream is a JSON object.")
    if "end" in item:
        return End(_member(item, "end", str, ""), _member(item, "detail", str, None))
    receipt, until = _member(item, "receipt", str, None), _member(item, "leaseUntil", int, 0)
    return Line(jsonform.decode(item), receipt, until)


def _member(item: dict[str, Any], name: str, kind: type[T], otherwise: D) -> T | D:
    value = item.pop(name, otherwise)
    if value is not otherwise and type(value) is not kind:
        raise BodyInvalid(f"A line of a push stream: {name} is not what it should be.")
    return value


def _ranges(accept: bytes) -> dict[str, float]:
    ranges: dict[str, float] = {}
    for part in accept.decode("latin-1").lower().split(","):
        name, *options = (piece.strip() for piece in part.split(";"))
        weight = next((option[2:] for option in options if option.startswith("q=")), "1")
        ranges[name] = float(weight) if _WEIGHT.fullmatch(weight) else 0.0
    return ranges


def _quality(name: str, ranges: dict[str, float]) -> float:
    """The most specific range that matches decides."""
    family = name.partition("/")[0]
    return next((ranges[r] for r in (name, f"{family}/*", "*/*") if r in ranges), 0.0)
