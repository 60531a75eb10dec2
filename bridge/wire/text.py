"""Text inside header names and header values.

Facts: over HTTP/2 a field name is a lower-case token (RFC 9113 8.2.1) and `%` is a legal character of it; a field
value is visible ASCII, space and tab, and its outer white space is not part of it (RFC 9110 5.5).
"""

from typing import Final
from urllib.parse import quote, unquote_to_bytes

from bridge.errors import HeaderInvalid

NAME_BYTES_MAX: Final = 249
"""UTF-8 bytes of a property's name: AMQP allows 255 for a header's name and `oms_p_` takes six of them."""

_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789._-")
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")
_ATTR_CHAR: Final = "!#$&+-.^_`|~"
"""What RFC 8187 leaves unescaped beside letters and digits."""


def encode_name(name: str) -> bytes:
    """Escape a property name: every character outside `a-z 0-9 . _ -` travels as `%xx` of its UTF-8 bytes."""
    raw = name.encode("utf-8", "replace")  # a broker may hand us half a surrogate pair
    if _PLAIN.issuperset(raw):
        return raw
    return b"".join(b"%c" % byte if byte in _PLAIN else b"%%%02x" % byte for byte in raw)


def decode_name(raw: bytes) -> str:
    """Undo `encode_name`. Raises `HeaderInvalid`: empty, too long, a broken escape, bytes that are no text."""
    if b"%" in raw:
        raw = unquote_strictly(raw, f"x-oms-p-{printable(raw)}")
    if not raw or len(raw) > NAME_BYTES_MAX:
        raise HeaderInvalid(f"x-oms-p-: a property name has 1 to {NAME_BYTES_MAX} bytes; this one has {len(raw)}.")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise HeaderInvalid(f"x-oms-p-: the property name {printable(raw)} is not UTF-8.") from None


def encode_value(text: str) -> tuple[bool, bytes]:
    """Turn text into a header value: (extended?, bytes).

    Printable ASCII travels as it is; anything else, and text with outer spaces, as an RFC 8187 extended value,
    so CR, LF, NUL and non-ASCII from a broker can never break a response.
    """
    if text.isascii() and text.isprintable() and text[:1] != " " and text[-1:] != " ":
        return False, text.encode("ascii")
    return True, b"UTF-8''" + quote(text, safe=_ATTR_CHAR, errors="replace").encode("ascii")


def decode_value(name: bytes, raw: bytes) -> str:
    """Read a header value. Raw UTF-8 is accepted. Raises `HeaderInvalid` for other bytes and control characters."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise HeaderInvalid(
            f"{printable(name)}: the value is not text; send UTF-8, or an extended value under {printable(name)}*."
        ) from None
    if not text.isprintable() and any((char < " " and char != "\t") or char == "\x7f" for char in text):
        raise HeaderInvalid(f"{printable(name)}: the value holds a control character; send it extended (RFC 8187).")
    return text


def decode_extended(name: bytes, raw: bytes) -> str:
    """Read an RFC 8187 extended value, `UTF-8'language'%C3%BC`. Raises `HeaderInvalid`."""
    charset, quote_1, rest = raw.partition(b"'")
    _language, quote_2, value = rest.partition(b"'")
    if charset.lower() != b"utf-8" or not quote_1 or not quote_2:
        raise HeaderInvalid(f"{printable(name)}: an extended value starts with UTF-8'' (RFC 8187).")
    try:
        return unquote_strictly(value, printable(name)).decode()
    except UnicodeDecodeError:
        raise HeaderInvalid(f"{printable(name)}: the extended value is not UTF-8.") from None


def unquote_strictly(raw: bytes, where: str) -> bytes:
    """Decode `%xx`. Raises `HeaderInvalid` where a `%` is not followed by two hex digits."""
    for piece in raw.split(b"%")[1:]:
        if len(piece) < 2 or piece[0] not in _HEX or piece[1] not in _HEX:  # noqa: PLR2004 - two digits
            raise HeaderInvalid(f"{where}: `%` is followed by two hex digits.")
    return unquote_to_bytes(raw)


def printable(raw: bytes) -> str:
    """Client bytes, made safe to show in an error or a log: ASCII, at most 80 characters."""
    return raw[:80].decode("latin-1").encode("unicode_escape").decode("ascii")
