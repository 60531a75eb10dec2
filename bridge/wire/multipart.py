"""Many messages as `multipart/mixed`: each part one in the single form, both directions (RFC 2046 5.1)."""

from collections.abc import Iterable, Iterator, Sequence
from email.message import Message as EmailMessage
from typing import Final

from bridge.errors import BodyInvalid, BodyTooLarge, BridgeError, ContentTypeUnsupported, HeaderInvalid, HeadersTooLarge
from bridge.message import Message
from bridge.wire.compression import GZIP, is_coded
from bridge.wire.headers import encode, parse
from bridge.wire.text import printable

CLOSING: Final = b"--\r\n"
"""What makes the last delimiter the end."""

_BOUNDARY_MAX: Final = 70
_IDENTITY: Final = (b"binary", b"8bit", b"7bit")
"""What a MIME library may write and still send the bytes themselves (RFC 2045 6.2); base64 would be stored as text."""


def boundary_of(content_type: str) -> bytes:
    """Return the boundary that a multipart content type names. Raises `ContentTypeUnsupported`."""
    header = EmailMessage()
    try:
        header["content-type"] = content_type
        boundary = header.get_boundary()
    except (TypeError, ValueError):  # email trips over RFC 2231 parameters that contradict each other
        boundary = None
    if not boundary or len(boundary) > _BOUNDARY_MAX or not (boundary.isascii() and boundary.isprintable()):
        raise ContentTypeUnsupported(f"multipart/mixed needs a boundary of 1 to {_BOUNDARY_MAX} ASCII characters.")
    return boundary.encode("ascii")


def decode(raw: bytes, boundary: bytes, limit: int, header_limit: int) -> list[Message | BridgeError]:
    """Read at most limit parts, each judged on its own, each with at most header_limit bytes of headers.

    Raises `BodyInvalid` when the framing is broken: then nothing of it can be trusted.
    """
    results: list[Message | BridgeError] = []
    for part in _split(raw, boundary, limit):
        try:
            results.append(_decode_part(part, header_limit))
        except BridgeError as error:
            results.append(error)
    return results


def encode_parts(messages: Sequence[Message], boundary: bytes) -> bytes:
    """Write a whole body. The boundary must not occur in any message."""
    return opening(boundary) + b"".join(encode_part(encode(m), m.body, boundary) for m in messages) + CLOSING


def opening(boundary: bytes) -> bytes:
    """Write what stands before the first part."""
    return b"--" + boundary


def encode_part(pairs: Iterable[tuple[bytes, bytes]], body: bytes, boundary: bytes) -> bytes:
    """Write one part and the delimiter behind it: a reader of a stream sees its end at once, not with the next part."""
    head = b"".join([b"%b: %b\r\n" % pair for pair in pairs])
    return b"\r\n%bcontent-length: %d\r\n\r\n%b\r\n--%b" % (head, len(body), body, boundary)


def _split(raw: bytes, boundary: bytes, limit: int) -> Iterator[bytes]:
    delimiter = b"\r\n--" + boundary
    raw = b"\r\n" + raw
    if raw.count(delimiter) > limit + 1:
        raise BodyTooLarge(f"A batch has at most {limit} messages.")
    _preamble, *parts = raw.split(delimiter)
    for index, part in enumerate(parts):
        rest_of_line, line_end, content = part.partition(b"\r\n")
        closes = rest_of_line.startswith(b"--")
        if rest_of_line[2 if closes else 0 :].strip(b" \t"):
            raise BodyInvalid(
                "multipart/mixed: text follows a boundary on its line; a body must not hold the boundary."
            )
        if closes:
            if index == 0:
                raise BodyInvalid("multipart/mixed: the batch has no part.")
            return
        if not line_end:
            break
        yield content
    raise BodyInvalid("multipart/mixed: the closing boundary is missing.")


def _decode_part(part: bytes, header_limit: int) -> Message:
    if part.startswith(b"\r\n"):
        head, body = b"", part[2:]
    else:
        head, blank_line, body = part.partition(b"\r\n\r\n")
        if not blank_line:
            raise BodyInvalid("multipart/mixed: a part has headers, a blank line, a body.")
    if len(head) > header_limit:
        raise HeadersTooLarge(f"The headers of a part have at most {header_limit} bytes; these have {len(head)}.")
    headers = parse(_pairs(head))
    if "version" in headers.parameters:
        headers.require_version()
    declared = headers.plain.get(b"content-length")
    if declared is not None and declared != b"%d" % len(body):
        raise BodyInvalid(f"content-length: the part says {printable(declared)}, its body has {len(body)} bytes.")
    if headers.plain.get(b"content-transfer-encoding", b"binary").lower() not in _IDENTITY:
        raise BodyInvalid("content-transfer-encoding: a part is sent as it is (binary), as HTTP does.")
    message = headers.message(body)
    return message._replace(compression=GZIP) if is_coded(headers.plain.get(b"content-encoding")) else message


def _pairs(head: bytes) -> list[tuple[bytes, bytes]]:
    if not head:
        return []
    lines = [line.partition(b":") for line in head.split(b"\r\n")]
    pairs = [(name.lower(), value.strip(b" \t")) for name, _, value in lines]
    # looked at together: a batch of 100 has 600 lines, and none of them is wrong
    stray = b"\0" in head or head.count(b"\n") + head.count(b"\r") != 2 * (len(lines) - 1)
    if stray or any(not colon or not name or name.strip(b" \t") != name for name, colon, _ in lines):
        raise HeaderInvalid(f"multipart/mixed: {_first_wrong(head)} is not a header line `name: value`.")
    return pairs


def _first_wrong(head: bytes) -> str:
    for line in head.split(b"\r\n"):
        name, colon, _ = line.partition(b":")
        if not colon or not name or name.strip(b" \t") != name or any(byte in line for byte in b"\r\n\0"):
            return printable(line)
    return printable(head)
