"""A kept message as a row of the journal, and back: its fields as JSON, its body as it is."""

import json
from typing import Final

from adapters.memory.partition import BODY, PROPERTIES, Record
from bridge.message import Message

_NAMES: Final = Message._fields
_BODY: Final = _NAMES[BODY]


def encode(record: Record) -> bytes:
    """Return every field that is set, except the body; ASCII, so that no string is beyond it."""
    fields = {
        name: value
        for name, value in zip(_NAMES, record, strict=True)
        if value is not None and value != () and name != _BODY
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(header: bytes, body: bytes) -> Record:
    """Return what `encode` was given. Raises `ValueError` for a field that this version does not know."""
    fields = json.loads(header)
    if unknown := fields.keys() - set(_NAMES):
        raise ValueError(f"unknown fields {sorted(unknown)}")
    record = [fields.get(name) for name in _NAMES]
    record[BODY] = body
    record[PROPERTIES] = tuple(fields.get(_NAMES[PROPERTIES], ()))
    return tuple(record)
