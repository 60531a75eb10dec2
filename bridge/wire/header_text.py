"""Text in header names and values: escaping, `traceparent`, `accept`, and how error messages show it.

An HTTP/2 field name is a lower-case token (RFC 9113 8.2.1), in which `%` is allowed. A field value consists of visible
ASCII, space and tab; leading and trailing white space is not part of it (RFC 9110 5.5).
"""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from bridge.errors import HeaderInvalid, NotAcceptable

NAME_BYTES_MAX: Final = 249
"""UTF-8 bytes of a property's name: AMQP allows 255 for the name of a header, six of them are `oms_p_`."""

_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789._-")
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")
_ATTR_CHAR: Final = "!#$&+-.^_`|~"
"""Characters besides letters and digits that RFC 8187 does not escape."""
_LOWER_HEX: Final = frozenset(b"0123456789abcdef")
_VISIBLE: Final = range(0x21, 0x7F)
_TRACEPARENT: Final = 55
"""Bytes of a version 00 `traceparent`."""
_EXAMPLE_MAX: Final = 20
"""Characters of a value whose extended form an error message shows."""
_SHOWN_MAX: Final = 80
"""Characters of client input in an error message."""


def encode_name(name: str) -> bytes:
    """Escape a property name: every character outside `a-z 0-9 . _ -`, so also `A-Z`, becomes `%xx` of its UTF-8."""
    raw = name.encode("utf-8", "replace")  # a broker's message may contain half a surrogate pair
    if _PLAIN.issuperset(raw):
        return raw
    return b"".join(b"%c" % byte if byte in _PLAIN else b"%%%02x" % byte for byte in raw)


def decode_name(raw: bytes) -> str:
    """Unescape a property name. Raises `HeaderInvalid`: empty, too long, a broken escape, not UTF-8."""
    if b"%" in raw:
        raw = unquote_strictly(raw, f"x-oms-p-{printable(raw)}")
    if not raw or len(raw) > NAME_BYTES_MAX:
        raise HeaderInvalid(f"x-oms-p-: a property name has 1 to {NAME_BYTES_MAX} bytes; this one has {len(raw)}.")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise HeaderInvalid(f"x-oms-p-: the property name {printable(raw)} is not UTF-8.") from None


def encode_value(text: str) -> tuple[bool, bytes]:
    """Return (whether the value is extended, the header value).

    CR, LF, NUL and non-ASCII of a broker's message cannot break a response: they are sent as an extended value.
    """
    return (False, text.encode("ascii")) if is_plain(text) else (True, extend_value(text))


def is_plain(text: str) -> bool:
    """Return whether a text is sent unchanged: printable ASCII without leading or trailing spaces."""
    return text.isascii() and text.isprintable() and text.strip(" ") == text


def extend_value(text: str) -> bytes:
    """Return any text as an RFC 8187 extended value."""
    return b"UTF-8''" + quote(text, safe=_ATTR_CHAR, errors="replace").encode("ascii")


def decode_value(name: bytes, raw: bytes) -> str:
    """Return the text of a header value, which is ASCII without control characters except tab.

    Raises `HeaderInvalid`, whose detail shows the extended value to send instead.
    """
    if not raw.isascii():
        raise _needs_escapes(name, raw, "contains characters outside ASCII")
    text = raw.decode("ascii")
    if not text.isprintable() and any((char < " " and char != "\t") or char == "\x7f" for char in text):
        raise _needs_escapes(name, raw, "contains a control character")
    return text


def _needs_escapes(name: bytes, raw: bytes, reason: str) -> HeaderInvalid:
    shown = printable(name)
    if not name.startswith((b"x-oms-h-", b"x-oms-p-")):
        return HeaderInvalid(f"{shown}: the value {reason}.")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = raw.decode("latin-1")  # a guess, but the form is the same for all
    example = quote(text[:_EXAMPLE_MAX], safe=_ATTR_CHAR) + ("..." if len(text) > _EXAMPLE_MAX else "")
    return HeaderInvalid(
        f"{shown}: the value {reason}; send it as an extended value (RFC 8187): `{shown}*: UTF-8''{example}`."
    )


def decode_extended(name: bytes, raw: bytes) -> str:
    """Return the text of an RFC 8187 extended value, `UTF-8'language'%C3%BC`. Raises `HeaderInvalid`."""
    charset, quote_1, rest = raw.partition(b"'")
    _language, quote_2, value = rest.partition(b"'")
    if charset.lower() != b"utf-8" or not quote_1 or not quote_2:
        raise HeaderInvalid(f"{printable(name)}: an extended value starts with UTF-8'' (RFC 8187).")
    try:
        return unquote_strictly(value, printable(name)).decode()
    except UnicodeDecodeError:
        raise HeaderInvalid(f"{printable(name)}: the extended value is not UTF-8.") from None


def unquote_strictly(raw: bytes, where: str) -> bytes:
    """Decode `%xx`. Raises `HeaderInvalid` if a `%` is not followed by two hex digits."""
    for piece in raw.split(b"%")[1:]:
        if len(piece) < 2 or piece[0] not in _HEX or piece[1] not in _HEX:  # noqa: PLR2004 - two digits
            raise HeaderInvalid(f"{where}: `%` is followed by two hex digits.")
    return unquote_to_bytes(raw)


def printable(raw: bytes) -> str:
    """Return client input that is safe in an error message or a log: ASCII, at most 80 characters."""
    return raw[:_SHOWN_MAX].decode("latin-1").encode("unicode_escape").decode("ascii")


def did_you_mean(given: str, known: Mapping[str, str]) -> str:
    """Return "; did you mean `NAME`?" for the most similar known name, or an empty text if none is similar.

    `known` maps the lower-case text to compare with to the name to show.
    """
    near = get_close_matches(given[:_SHOWN_MAX].lower(), known, 1)
    return f"; did you mean `{known[near[0]]}`?" if near else ""


def is_traceparent(raw: bytes) -> bool:
    """Whether raw is a W3C traceparent of a version from 00 to fe. An invalid one is ignored, see section 3.2 there."""
    if len(raw) < _TRACEPARENT or (len(raw) > _TRACEPARENT and (raw[:2] == b"00" or raw[_TRACEPARENT] != ord("-"))):
        return False
    if raw[2] != ord("-") or raw[35] != ord("-") or raw[52] != ord("-") or raw[:2] == b"ff":
        return False
    if any(byte not in _VISIBLE for byte in raw[_TRACEPARENT:]):
        return False  # a later version may append text, which must not break a header
    if not _LOWER_HEX.issuperset(raw[:2] + raw[3:35] + raw[36:52] + raw[53:55]):
        return False
    return raw[3:35] != b"0" * 32 and raw[36:52] != b"0" * 16


EVENTS: Final = "; format=cloudevents"
"""The parameter of a media type whose messages are CloudEvents."""

_WEIGHT: Final = re.compile(r"0(\.\d{0,3})?|\.\d{1,3}|1(\.0{0,3})?", re.ASCII)
"""RFC 9110 12.4.2, and `.2`: by default, Java's `HttpURLConnection` sends `*/*; q=.2`."""


def choose(accept: bytes | None, offered: Sequence[str], subject: str) -> str:
    """Return the offered media type that `accept` prefers; the first one among equals.

    Raises `NotAcceptable`; `subject` begins its sentence.
    """
    given = weights(accept) if accept is not None else {"*/*": 1.0}
    best = max(offered, key=lambda name: _quality(name, given))
    if not _quality(best, given):
        shown = printable(accept or b"")
        raise NotAcceptable(f"accept: {subject} is {', '.join(offered)}; {shown} accepts none of these.")
    return best


def weights(accept: bytes) -> dict[str, float]:
    """Return the weight of each media type or range, in lower case. Of its parameters, only `format` is kept."""
    ranges: dict[str, float] = {}
    for part in accept.decode("latin-1").lower().split(","):
        name, *options = (piece.strip() for piece in part.split(";"))
        weight = next((option[2:] for option in options if option.startswith("q=")), "1")
        form = "".join(f"; {option}" for option in options if option.startswith("format="))
        ranges[name + form] = float(weight) if _WEIGHT.fullmatch(weight) else 0.0
    return ranges


def _quality(name: str, given: Mapping[str, float]) -> float:
    """Return the weight of the most specific range that matches; for CloudEvents it has to name them."""
    family = name.partition("/")[0]
    ranges = (name,) if name.endswith(EVENTS) else (name, f"{family}/*", "*/*")
    return next((given[r] for r in ranges if r in given), 0.0)
