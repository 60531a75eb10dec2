"""Maps headers of native producers to properties that HTTP can carry. It never raises, and loses as little as possible.

- A value or key that is not UTF-8 becomes a data URL, `data:;base64,AP8=`.
- If headers share a name, the last one keeps it, as `lastHeader` does in Java; earlier ones become `name#1`, `name#2`.
  A property (`oms_p_name`) takes precedence over a native header of its name.
- An `oms_h_` header that no field can hold keeps its whole name.
- A header without a name is called `_`; a name of more than 249 bytes is cut.
- Headers beyond `HEADERS_MAX` bytes, as HTTP carries them, are left out, and the property `oms_left_out` says how many:
  clients close a connection that carries more than 64 KiB of headers. A longer key becomes `sha256:` and its hash.
  Only native messages are cut: what a bridge wrote with `properties=plain` came over HTTP, and is kept whole.
"""

import re
from base64 import b64encode
from hashlib import sha256
from typing import Final

NAME_BYTES_MAX: Final = 249
"""The longest name of a property in UTF-8, as the HTTP profile has it."""
HEADERS_MAX: Final = 40 << 10
"""Bytes of the headers of one message."""
KEY_MAX: Final = 4 << 10
"""Bytes of a key; in HTTP three times as many if they have to be escaped."""
HEADERS_DROPPED: Final = "oms_left_out"
_OVERHEAD: Final = 48
"""Bytes of a header beside its name and value: HTTP/2's overhead, the prefix, the mark of escaped text."""
_ESCAPED: Final = 3
"""`%xx` for one byte."""

_TRACEPARENT: Final = re.compile(
    r"(?!ff|00.{54})[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-[!-~]*)?"
)
"""W3C trace context, 3.2; version 00 has 55 characters, later versions may have more."""

Unmapped = list[tuple[str, bytes]]
"""Headers that are neither a field nor a property of the bridge, in order: the name of the property, and the bytes."""


def as_text(raw: bytes) -> str:
    """Return UTF-8 text as it is, other bytes as a data URL (RFC 2397)."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "data:;base64," + b64encode(raw).decode("ascii")


def key_text(raw: bytes) -> str:
    """Return the messageKey for a record's key: equal for equal keys only."""
    return as_text(raw) if len(raw) <= KEY_MAX else "sha256:" + sha256(raw).hexdigest()


def is_traceparent(text: str) -> bool:
    """Return whether a text is a valid traceparent; an invalid one becomes a property."""
    return _TRACEPARENT.fullmatch(text) is not None


def is_plain(text: str) -> bool:
    """Return whether an HTTP header may hold a text unescaped: visible ASCII, with spaces inside only."""
    return text.isascii() and text.isprintable() and bool(text) and text[0] != " " and text[-1] != " "


def add_properties(properties: dict[str, str], unmapped: Unmapped, *, native: bool = True) -> None:
    """Add native headers to the properties of a message; all of them if a bridge wrote it (`native` is False)."""
    names = [_cut(name or "_", NAME_BYTES_MAX) for name, _ in unmapped]
    last = {name: at for at, name in enumerate(names) if name not in properties}
    taken = {*properties, *names}
    counts: dict[str, int] = {}
    bytes_left, dropped = HEADERS_MAX, 0
    for at, name in enumerate(names):
        raw = unmapped[at][1]
        key = name if last.get(name) == at else _numbered(name, counts, taken)
        text = as_text(raw)
        cost = _OVERHEAD + _ESCAPED * (len(key) if key.isascii() else len(key.encode()))
        cost += len(text) if is_plain(text) else _ESCAPED * len(raw)
        if native and cost > bytes_left:
            dropped += 1
            continue
        bytes_left -= cost
        properties[key] = text
    if dropped:
        properties[HEADERS_DROPPED] = str(dropped)


def _numbered(name: str, counts: dict[str, int], taken: set[str]) -> str:
    """Return the first of `name#1`, `name#2` that no other header has."""
    while True:
        counts[name] = count = counts.get(name, 0) + 1
        suffix = f"#{count}"
        key = _cut(name, NAME_BYTES_MAX - len(suffix)) + suffix
        if key not in taken:
            taken.add(key)
            return key


def _cut(name: str, length: int) -> str:
    """Return a name cut to at most `length` bytes of UTF-8, whole characters."""
    if len(name) <= length and name.isascii():
        return name
    return name.encode("utf-8", "replace")[:length].decode("utf-8", "ignore")
