"""Inflates gzip bodies up to a limit, so that a small body cannot fill the memory. Pure."""

import zlib
from collections.abc import Iterator
from typing import Final

_GZIP_WINDOW: Final = 31
"""zlib's code for a 32 KiB window inside a gzip wrapper."""
_STEP: Final = 1024
"""Bytes of the first step; each step doubles. zlib copies the rest of its input after each member of the gzip file:
200,000 empty members in one step took 6 s."""
_STEP_MAX: Final = 64 << 10
"""Bytes of the longest step. It takes 3 ms if they are thousands of blocks without content."""
_PIECE: Final = 256 << 10
"""Bytes of content that a step returns at most; zlib needs 0.6 ms for them."""


class NotGzip(ValueError):
    """The body is not valid gzip from beginning to end. The text says why, without a full stop."""


def inflate_in_pieces(body: bytes, limit: int) -> Iterator[bytes]:
    """Yield the content of a gzip body of one or several members, in pieces, some of them empty.

    The content ends after `limit` + 1 bytes: the body is then too large. Raises `NotGzip`.
    """
    bytes_left, start, step, work = limit + 1, 0, _STEP, 0
    pieces: list[bytes] = []
    member = zlib.decompressobj(_GZIP_WINDOW)
    while bytes_left and (not member.eof or start < len(body)):
        if member.eof:
            member, step = zlib.decompressobj(_GZIP_WINDOW), _STEP
        given = body[start : start + step]
        if not given:
            raise NotGzip("the gzip body ends too early")
        try:
            piece = member.decompress(given, min(bytes_left, _PIECE))
        except zlib.error as error:
            raise NotGzip(f"the body is not valid gzip ({error})") from None
        pieces.append(piece)
        read = len(given) - len(member.unused_data) - len(member.unconsumed_tail)
        bytes_left -= len(piece)
        start += read
        step = min(2 * step, _STEP_MAX)
        work += read + len(piece)
        if work >= _STEP_MAX:
            yield b"".join(pieces)
            pieces, work = [], 0
    yield b"".join(pieces)


def inflate_up_to(body: bytes, limit: int) -> bytes | None:
    """Return the content of a gzip body of one or several members; None if it has more than `limit` bytes.

    Raises `NotGzip`.
    """
    content = b"".join(inflate_in_pieces(body, limit))
    return content if len(content) <= limit else None
