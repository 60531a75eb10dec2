"""What native producers write, made into what HTTP can carry: it never raises, and loses as little as it can.

- A value or key that is not UTF-8 becomes a data URL, `data:;base64,AP8=`.
- Of headers of one name the last keeps it, as `lastHeader` does in Java; earlier ones become `name#1`, `name#2`. A
  property (`oms_p_name`) goes before a native header of its name.
- An `oms_h_` header that no field can take keeps its whole name.
- A header without a name is called `_`; one of more than 249 bytes is cut there.
- Headers beyond `ROOM` bytes, as HTTP would carry them, are left out, and the property `oms_left_out` says how many:
  clients end a connection on which more than 64 KiB of headers come. A longer key becomes `sha256:` and its hash.
"""

import re
from base64 import b64encode
from hashlib import sha256
from typing import Final

NAME_BYTES_MAX: Final = 249
"""The longest name of a property in UTF-8, as the HTTP profile has it."""
ROOM: Final = 40 << 10
KEY_MAX: Final = 4 << 10
"""Bytes of a key that travel: three times as many where they have to be escaped."""
LEFT_OUT: Final = "oms_left_out"
_OVERHEAD: Final = 48
"""Bytes of a header beside its name and value: what HTTP/2 counts for each, the prefix, the mark of escaped text."""
_ESCAPED: Final = 3
"""`%xx` for one byte."""

_TRACEPARENT: Final = re.compile(
    r"(?!ff|00.{54})[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-[!-~]*)?"
)
"""W3C trace context, 3.2; version 00 is 55 characters long, later ones may say more."""

Odd = list[tuple[str, bytes]]
"""Headers that are no field and no ordinary property, in order, by the name of the property they become."""


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
    """Whether HTTP would carry it; what is none is no more than a property."""
    return _TRACEPARENT.fullmatch(text) is not None


def is_plain(text: str) -> bool:
    """Whether an ordinary HTTP header may hold it: visible ASCII, with spaces inside only."""
    return text.isascii() and text.isprintable() and bool(text) and text[0] != " " and text[-1] != " "


def add_properties(properties: dict[str, str], odd: Odd) -> None:
    """Add what native producers wrote to the properties of a message."""
    names = [_cut(name or "_", NAME_BYTES_MAX) for name, _ in odd]
    last = {name: at for at, name in enumerate(names) if name not in properties}
    taken = {*properties, *names}
    counts: dict[str, int] = {}
    room, left_out = ROOM, 0
    for at, name in enumerate(names):
        raw = odd[at][1]
        key = name if last.get(name) == at else _numbered(name, counts, taken)
        text = as_text(raw)
        cost = _OVERHEAD + _ESCAPED * (len(key) if key.isascii() else len(key.encode()))
        cost += len(text) if is_plain(text) else _ESCAPED * len(raw)
        if cost > room:
            left_out += 1
            continue
        room -= cost
        properties[key] = text
    if left_out:
        properties[LEFT_OUT] = str(left_out)


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
    """Return at most so many bytes of a name, whole characters."""
    if len(name) <= length and name.isascii():
        return name
    return name.encode("utf-8", "replace")[:length].decode("utf-8", "ignore")
