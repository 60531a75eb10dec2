"""gzip bodies, undone on the way in and done again on the way out."""

import gzip
import zlib
from typing import Final

GZIP: Final = "gzip"
INFLATED_MAX: Final = 16 << 20
"""Bytes: what inflates beyond them stays as it is. A bomb of a native producer costs 50 ms, and no memory after it."""
_GZIP_WINDOW: Final = 31
"""zlib's code for a 32 KiB window inside a gzip wrapper."""
_STEP: Final = 1024
"""Bytes fed first, then twice as many: zlib copies what follows a member, so 200,000 empty ones fed whole cost 6 s."""
_FAST: Final = 1
"""Level: the result travels one hop and is inflated there; level 6 takes three times as long for a tenth less."""


class NotGzip(ValueError):
    """A body is not gzip from beginning to end."""


def inflate(body: bytes) -> bytes | None:
    """Undo gzip, several members too; None: it inflates beyond `INFLATED_MAX`. Raises `NotGzip`."""
    parts: list[bytes] = []
    room, at, step = INFLATED_MAX, 0, _STEP
    member = zlib.decompressobj(_GZIP_WINDOW)
    while not member.eof or at < len(body):
        if member.eof:
            member, step = zlib.decompressobj(_GZIP_WINDOW), _STEP
        piece = body[at : at + step]
        if not piece:
            raise NotGzip
        try:
            part = member.decompress(piece, room + 1)
        except zlib.error:
            raise NotGzip from None
        if len(part) > room:
            return None
        parts.append(part)
        room -= len(part)
        at += len(piece) - len(member.unused_data)
        step *= 2
    return b"".join(parts)


def is_gzip(body: bytes) -> bool:
    """Whether it is what somebody claims it to be, from beginning to end or as far as `INFLATED_MAX`."""
    try:
        inflate(body)
    except NotGzip:
        return False
    return True


def deflate(body: bytes) -> bytes:
    """Write gzip, the same bytes for the same body (no time stamp)."""
    return gzip.compress(body, compresslevel=_FAST, mtime=0)
