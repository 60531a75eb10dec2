"""A stored message: a tuple of its fields in memory; a JSON header and a body in a row of the journal."""

import json
from sys import getsizeof
from typing import Any, Final

from bridge.message import TEXTS, Message

_OVERHEAD: Final = 512
"""Bytes of a stored message that `footprint` does not count one by one: the message's tuple, the objects of its
numbers, its dict of properties, its place in the columns of a partition, and what malloc rounds up. Measured by
`test_footprint_is_not_below_what_python_takes`."""
_EMPTY: Final = getsizeof("")
"""Bytes of a text in ASCII, besides its characters."""
_NAMES: Final = Message._fields

Record = tuple[Any, ...]
"""A message as it is stored: its fields, with the properties as one tuple of their names and then their values.

Tuples of strings and numbers are the only objects that the garbage collector stops visiting. With 1 million named
tuples a full collection, which stops the loop, took 1.0 s; with tuples 0.05 s, and in a `RecordList` less than 1 ms.
"""
BODY: Final = _NAMES.index("body")
PROPERTIES: Final = _NAMES.index("properties")


def pack(message: Message) -> Record:
    """Turn a message into a record."""
    properties = message.properties
    fields: list[Any] = list(message)
    fields[PROPERTIES] = (*properties, *properties.values()) if properties else ()
    return tuple(fields)


def unpack(record: Record) -> Message:
    """Turn a record into the message that `pack` was given."""
    flat = record[PROPERTIES]
    fields = [*record]
    # ends with the last value; an argument `strict`, or to slice the names too, takes 0.2 us more
    fields[PROPERTIES] = dict(zip(flat, flat[len(flat) // 2 :])) if flat else {}  # noqa: B905
    return tuple.__new__(Message, fields)


def footprint(record: Record) -> int:
    """Return the bytes of memory that a record takes; an upper estimate."""
    size = _OVERHEAD + len(record[BODY])
    for index in TEXTS:
        text = record[index]
        if text is not None:
            size += _size_of(text)
    for text in record[PROPERTIES]:
        size += _size_of(text)
    return size


def _size_of(text: str) -> int:
    return _EMPTY + len(text) if text.isascii() else getsizeof(text)  # to ask each for its size takes longer


def encode(record: Record) -> bytes:
    """Return every field that is set, except the body, as JSON in ASCII."""
    fields = {
        name: value
        for name, value in zip(_NAMES, record, strict=True)
        if value is not None and value != () and name != _NAMES[BODY]
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(header: bytes, body: bytes) -> Record:
    """Return the record that `encode` was given. Raises `ValueError` for a field unknown to this version."""
    fields = json.loads(header)
    if unknown := fields.keys() - set(_NAMES):
        raise ValueError(f"unknown fields {sorted(unknown)}")
    record = [fields.get(name) for name in _NAMES]
    record[BODY] = body
    record[PROPERTIES] = tuple(fields.get(_NAMES[PROPERTIES], ()))
    return tuple(record)
