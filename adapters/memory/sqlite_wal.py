"""Where the valid part of SQLite's write-ahead log (https://sqlite.org/fileformat2.html#walformat) ends."""

import struct
from pathlib import Path
from typing import Final

_HEADER: Final = struct.Struct(">8I")
"""Magic, format, page size, checkpoint number, two salts, two checksums."""
_FRAME: Final = struct.Struct(">6I")
"""Page number, pages after commit, two salts, two checksums; a page follows."""
_MAGIC: Final = 0x377F0682
"""The lowest bit says whether checksums read words in big-endian order."""
_MASK: Final = 0xFFFFFFFF


def first_bad_frame(path: Path) -> int:
    """Return the byte offset of the first frame of SQLite's WAL that is torn, damaged, or left from earlier use.

    0 if there is no file or its header is damaged; the file's length if all of it is valid.

    SQLite recovers a log up to the first frame with a wrong checksum and does not report the rest: that is right for a
    torn tail, but silent loss if a bit in the middle is flipped.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return 0
    with file:
        raw = file.read(_HEADER.size)
        if len(raw) < _HEADER.size:
            return 0
        magic, _, page_size, _, salt1, salt2, *expected = _HEADER.unpack(raw)
        order = ">" if magic & 1 else "<"
        sums = _checksum(order, raw[:24], (0, 0))
        if magic | 1 != _MAGIC | 1 or list(sums) != expected:
            return 0
        offset = _HEADER.size
        while len(raw := file.read(_FRAME.size + page_size)) == _FRAME.size + page_size:
            _, _, frame_salt1, frame_salt2, *expected = _FRAME.unpack_from(raw)
            sums = _checksum(order, raw[:8], sums)
            sums = _checksum(order, raw[_FRAME.size :], sums)
            if (frame_salt1, frame_salt2) != (salt1, salt2) or list(sums) != expected:
                break
            offset += len(raw)
        return offset


def _checksum(order: str, data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    """Return SQLite's checksum, continued over `data`, whose length is a multiple of 8."""
    first, second = sums
    for one, two in struct.iter_unpack(order + "2I", data):
        first = (first + one + second) & _MASK
        second = (second + two + first) & _MASK
    return first, second
