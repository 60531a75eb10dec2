"""Many messages as `multipart/mixed`: each part is one message. Both directions; RFC 2046 5.1."""

import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from email.message import Message as EmailMessage
from typing import Any, Final

from bridge.errors import BodyInvalid, BodyTooLarge, BridgeError, ContentTypeUnsupported, HeaderInvalid, HeadersTooLarge
from bridge.long_work import Steps
from bridge.message import Message
from bridge.wire.gzip_body import GZIP, is_gzip
from bridge.wire.header_text import printable
from bridge.wire.headers import Headers, decode_header, encode, parse, part_names

CLOSING: Final = b"--\r\n"
"""Appended to the last delimiter."""

HEARTBEAT: Final = b"content-length: 0\r\n\r\n"
"""A part that is no message: a push stream sends it when it has been silent for a while."""
_BOUNDARY_MAX: Final = 70
_SIMPLE: Final = re.compile(
    r'multipart/mixed; ?boundary=(?:"([0-9A-Za-z_.+-]{1,70})"|([0-9A-Za-z_.+-]{1,70}))', re.IGNORECASE
)
"""A content type as most clients write it: the email package takes 2 % of the time of a batch to read it."""
_LINES_MAX: Final = 4096
"""Header lines that are remembered. Without a limit, 4 MiB of lines that all differ took 60 MiB, and longer."""
_STEP: Final = 8 << 10
"""Bytes of parts in one step. The slowest, of parts that have neither headers nor a body, takes 2.6 ms."""
_HEARTBEAT_END: Final = len(HEARTBEAT) + 1
_OF_THE_REQUEST: Final = frozenset({"require", "transaction", "transaction-timeout", "transaction-check"})
"""Parameters that apply to all parts. If a part's own were ignored, a message that should be prepared was visible."""
_CR, _LF = b"\r\n"
_IDENTITY: Final = (b"binary", b"8bit", b"7bit")
"""The values of `content-transfer-encoding` that leave the bytes unchanged (RFC 2045 6.2)."""


def boundary_of(content_type: str) -> bytes:
    """Return the boundary that a multipart content type names. Raises `ContentTypeUnsupported`."""
    if (simple := _SIMPLE.fullmatch(content_type)) is not None:
        return str(simple[1] or simple[2]).encode("ascii")
    header = EmailMessage()
    try:
        header["content-type"] = content_type
        boundary = header.get_boundary()
    except (TypeError, ValueError):  # the email package fails on contradictory RFC 2231 parameters
        boundary = None
    if not boundary or len(boundary) > _BOUNDARY_MAX or not (boundary.isascii() and boundary.isprintable()):
        raise ContentTypeUnsupported(f"multipart/mixed needs a boundary of 1 to {_BOUNDARY_MAX} ASCII characters.")
    return boundary.encode("ascii")


def decode(raw: bytes, boundary: bytes, limit: int, header_limit: int) -> Steps[list[Message | BridgeError]]:
    """Return the messages of at most `limit` parts, or the error of each that is invalid.

    Each part has at most `header_limit` bytes of headers. Heartbeats are skipped. Raises `BodyInvalid` if the framing
    is broken, `BodyTooLarge` for more parts.
    """
    results: list[Message | BridgeError] = []
    decoder = _PartDecoder(raw, header_limit)
    step_end = _STEP
    for start, end in _split(raw, boundary, limit):
        if raw[start : min(end, start + _HEARTBEAT_END)] == HEARTBEAT:
            continue
        try:
            results.append(decoder.message(start, end))
        except BridgeError as error:
            results.append(error)
        if end >= step_end:
            step_end = end + _STEP
            yield
    return results


def encode_parts(messages: Sequence[Message], boundary: bytes) -> bytes:
    """Return a whole multipart body. The boundary must not occur in any message."""
    return opening(boundary) + b"".join(encode_part(encode(m), m.body, boundary) for m in messages) + CLOSING


def opening(boundary: bytes) -> bytes:
    """Return the text before the first part."""
    return b"--" + boundary


def encode_part(pairs: Iterable[tuple[bytes, bytes]], body: bytes, boundary: bytes) -> bytes:
    """Return one part and the delimiter after it, so that the reader of a stream sees the end of the part at once."""
    head = b"".join([b"%b: %b\r\n" % pair for pair in pairs])
    return b"\r\n%bcontent-length: %d\r\n\r\n%b\r\n--%b" % (head, len(body), body, boundary)


def _split(raw: bytes, boundary: bytes, limit: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of each part, without a copy of its body."""
    delimiter = b"\r\n--" + boundary
    first = len(BOM_UTF8) if raw.startswith(BOM_UTF8) else 0
    if raw.startswith(delimiter[2:], first):
        at = first + len(delimiter) - 2
    else:
        at = raw.find(delimiter) + len(delimiter)
        if at < len(delimiter):
            raise _not_closed()
    parts = 0
    while True:
        end = raw.find(delimiter, at)
        if end >= 0 and raw.startswith(b"\r\n", at, end):  # nothing else on the line, as with all but the last
            start = at + 2
        else:
            stop = len(raw) if end < 0 else end
            line_end = raw.find(b"\r\n", at, stop)
            rest_of_line = raw[at : stop if line_end < 0 else line_end]
            closes = rest_of_line.startswith(b"--")
            if rest_of_line[2 if closes else 0 :].strip(b" \t"):
                raise BodyInvalid(
                    "multipart/mixed: text follows a boundary on its line; a body must not contain the boundary."
                )
            if closes:
                if not parts:
                    raise BodyInvalid("multipart/mixed: the batch has no part.")
                return
            if line_end < 0 or end < 0:
                raise _not_closed()
            start = line_end + 2
        if parts == limit:
            raise BodyTooLarge(f"A batch has at most {limit} messages.")
        parts += 1
        yield start, end
        at = end + len(delimiter)


def _not_closed() -> BodyInvalid:
    return BodyInvalid("multipart/mixed: the closing boundary is missing.")


class _PartDecoder:
    """Decodes the parts of one body. A header line that it remembers is not parsed again."""

    def __init__(self, raw: bytes, header_limit: int) -> None:
        self._raw = raw
        self._header_limit = header_limit
        self._lines: dict[bytes, tuple[int, Any, Any]] = {}
        """By line: which of the four dicts of `Headers` it is for, its key there and its value."""

    def message(self, start: int, end: int) -> Message:
        raw = self._raw
        if raw.startswith(b"\r\n", start, end):
            head, at = b"", start + 2
        else:
            at = raw.find(b"\r\n\r\n", start, end)
            if at < 0:
                raise BodyInvalid("multipart/mixed: a part has headers, a blank line, a body.")
            head, at = raw[start:at], at + 4
        if len(head) > self._header_limit:
            raise HeadersTooLarge(
                f"The headers of a part have at most {self._header_limit} bytes; these have {len(head)}."
            )
        headers = self._headers(head)
        plain = headers.plain
        if headers.parameters:
            _check_parameters(headers)
        declared = plain.get(b"content-length")
        if declared is not None and declared != b"%d" % (end - at):
            raise BodyInvalid(f"content-length: the part says {printable(declared)}, its body has {end - at} bytes.")
        if b"content-transfer-encoding" in plain and plain[b"content-transfer-encoding"].lower() not in _IDENTITY:
            raise BodyInvalid("content-transfer-encoding: only binary is allowed; HTTP needs no other encoding.")
        message = headers.message(raw[at:end])
        if b"content-encoding" in plain and is_gzip(plain[b"content-encoding"]):
            return message._replace(compression=GZIP)
        return message

    def _headers(self, head: bytes) -> Headers:
        headers = Headers({}, {}, {}, {})
        for line in head.split(b"\r\n") if head else ():
            place = self._lines.get(line)
            if place is None:
                if len(self._lines) == _LINES_MAX:
                    return parse(map(_pair, head.split(b"\r\n")), part_names)
                place = self._lines[line] = decode_header(*_pair(line), part_names)
            index, key, value = place
            target: dict[Any, Any] = headers[index]
            if key in target:
                return parse(map(_pair, head.split(b"\r\n")), part_names)  # a repeated header: joined, or refused
            target[key] = value
        return headers


def _check_parameters(headers: Headers) -> None:
    """Raises `HeaderInvalid` for a parameter that applies to all parts, and `VersionUnsupported`."""
    for name in headers.parameters:
        if name in _OF_THE_REQUEST:
            raise HeaderInvalid(f"x-oms-{name} is a header of the request, for all of its parts.")
    if "version" in headers.parameters:
        headers.require_version()


def _pair(line: bytes) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    # numbers: to look for a byte that is given as bytes, CPython raises and clears an error, 0.3 us each
    if not colon or not name or name.strip(b" \t") != name or _CR in line or _LF in line or 0 in line:
        raise HeaderInvalid(f"multipart/mixed: {printable(line)} is not a header line `name: value`.")
    return name.lower(), value.strip(b" \t")
