"""How answers' header fields are written: hpack without its memory."""

from collections.abc import Iterable
from typing import Final

from hpack import Encoder
from hpack.hpack import encode_integer

_STATIC: Final = {b"200": b"\x88", b"204": b"\x89", b"400": b"\x8c", b"404": b"\x8d", b"500": b"\x8e"}
"""The `:status` fields that the static table holds whole (RFC 7541 appendix A)."""
_SHORT: Final = 127
"""Lengths below this fit into one byte (RFC 7541 5.1, a 7-bit prefix)."""


class Literals(Encoder):
    """Writes each field as a literal without indexing (RFC 7541 6.2.2), without Huffman code.

    An answer of this bridge has ten fields, half of them different each time. hpack puts every one into its dynamic
    table, pushes others out, searches it for the next and spells the values in Huffman code: 33 us an answer, a tenth
    of the whole. This takes 3 us, and 200 bytes more on a wire that is loopback or a rack's.
    """

    def encode(self, headers: Iterable[tuple[bytes, bytes]], huffman: bool = True) -> bytes:  # type: ignore[override]
        """Return one header block."""
        if self.header_table.resized:
            return super().encode(headers, huffman)  # the change must be announced, and the library knows how
        block = bytearray()
        for name, value in headers:
            if name == b":status" and value in _STATIC:
                block += _STATIC[value]
            else:
                block += b"\0"
                for text in (name, value):
                    size = len(text)
                    block += b"%c" % size if size < _SHORT else encode_integer(size, 7)
                    block += text
        return bytes(block)
