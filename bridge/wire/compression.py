"""gzip bodies: inflate with a bound, so that a bomb costs no more than the limit."""

import gzip
import zlib
from typing import Final

from bridge.errors import BodyInvalid, BodyTooLarge, BridgeError, ContentTypeUnsupported
from bridge.message import Message
from bridge.wire.text import printable

GZIP: Final = "gzip"
_GZIP_WINDOW: Final = 31
"""zlib's code for a 32 KiB window inside a gzip wrapper."""
_STEP: Final = 1024
"""Bytes fed first, then twice as many: zlib copies what follows a member, so 200,000 empty ones fed whole cost 6 s."""


def inflate(body: bytes, limit: int) -> bytes:
    """Undo gzip (several members too). Raises `BodyInvalid` when corrupt, `BodyTooLarge` beyond limit bytes."""
    parts: list[bytes] = []
    room, at, step = limit, 0, _STEP
    member = zlib.decompressobj(_GZIP_WINDOW)
    while not member.eof or at < len(body):
        if member.eof:
            member, step = zlib.decompressobj(_GZIP_WINDOW), _STEP
        piece = body[at : at + step]
        if not piece:
            raise BodyInvalid("x-oms-h-compression: the gzip body ends too early.")
        try:
            part = member.decompress(piece, room + 1)
        except zlib.error as error:
            raise BodyInvalid(f"x-oms-h-compression: the body is not valid gzip ({error}).") from None
        if len(part) > room:
            raise BodyTooLarge(f"x-oms-h-compression: the body inflates beyond {limit} bytes.")
        parts.append(part)
        room -= len(part)
        at += len(piece) - len(member.unused_data)
        step *= 2
    return b"".join(parts)


def unpacked(message: Message, limit: int) -> Message:
    """Undo a message's compression for a consumer that does not accept it."""
    if message.compression is None:
        return message
    try:
        return message._replace(compression=None, body=inflate(message.body, limit))
    except BridgeError:
        return message  # written natively, and not what it claims: handed on as it is, header and all


def deflate(body: bytes) -> bytes:
    """Write gzip, the same bytes for the same body (no time stamp)."""
    return gzip.compress(body, compresslevel=6, mtime=0)


def is_coded(content_encoding: bytes | None) -> bool:
    """Whether HTTP's own `content-encoding` says gzip. Raises `ContentTypeUnsupported` for another coding."""
    coding = (content_encoding or b"identity").lower()
    if coding not in (b"gzip", b"identity"):
        raise ContentTypeUnsupported(f"content-encoding: gzip is allowed, not {printable(coding)}.")
    return coding == b"gzip"


def accepts_gzip(accept_encoding: bytes) -> bool:
    """Whether an `accept-encoding` header takes gzip (RFC 9110 12.5.3); `*` and absence do not ask for it."""
    for item in accept_encoding.lower().split(b","):
        coding, _, weight = item.partition(b";")
        if coding.strip() in (b"gzip", b"x-gzip"):
            return weight.replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000")
    return False
