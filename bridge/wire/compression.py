"""gzip bodies: inflate with a bound, so that a bomb costs no more than the limit."""

import gzip
import zlib
from typing import Final

from bridge.errors import BodyInvalid, BodyTooLarge

GZIP: Final = "gzip"
_GZIP_WINDOW: Final = 31
"""zlib's code for a 32 KiB window inside a gzip wrapper."""


def inflate(body: bytes, limit: int) -> bytes:
    """Undo gzip (several members too). Raises `BodyInvalid` when corrupt, `BodyTooLarge` beyond limit bytes."""
    parts: list[bytes] = []
    room = limit
    rest = body
    while True:
        member = zlib.decompressobj(_GZIP_WINDOW)
        try:
            part = member.decompress(rest, room + 1)
        except zlib.error as error:
            raise BodyInvalid(f"x-oms-h-compression: the body is not valid gzip ({error}).") from None
        if len(part) > room:
            raise BodyTooLarge(f"x-oms-h-compression: the body inflates beyond {limit} bytes.")
        if not member.eof:
            raise BodyInvalid("x-oms-h-compression: the gzip body ends too early.")
        parts.append(part)
        room -= len(part)
        rest = member.unused_data
        if not rest:
            return b"".join(parts)


def deflate(body: bytes) -> bytes:
    """Write gzip, the same bytes for the same body (no time stamp)."""
    return gzip.compress(body, compresslevel=6, mtime=0)


def accepts_gzip(accept_encoding: bytes) -> bool:
    """Whether an `accept-encoding` header takes gzip (RFC 9110 12.5.3); `*` and absence do not ask for it."""
    for item in accept_encoding.lower().split(b","):
        coding, _, weight = item.partition(b";")
        if coding.strip() in (b"gzip", b"x-gzip"):
            return weight.replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000")
    return False
