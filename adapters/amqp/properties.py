"""The properties of a message on their way through the bridge: pika's, read and written without its gaps."""

from functools import lru_cache
from struct import Struct
from typing import Any, Final

from pika import BasicProperties

from adapters.amqp.field_tables import SHORT_MAX, read_table, text_or_bytes, write_table

_FLAGS: Final = Struct(">H")
_STAMP: Final = Struct(">Q")
_SIZE_BYTES: Final = 4

_ORDER: Final = (
    *("content_type", "content_encoding", "headers", "delivery_mode", "priority", "correlation_id", "reply_to"),
    *("expiration", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id"),
)
"""In the order of AMQP: the first has the highest bit."""
_HEADERS: Final = "headers"
_TIMESTAMP: Final = "timestamp"
_BYTES: Final = frozenset({"delivery_mode", "priority"})
_NOT_TEXT: Final = _BYTES | {_HEADERS, _TIMESTAMP}
_KINDS: Final = 256
"""Sets of properties that are remembered: a producer writes the same ones again and again."""
_SLOTS: Final = tuple((name, 1 << (15 - at)) for at, name in enumerate(_ORDER))


class Properties(BasicProperties):  # type: ignore[misc] # pika has no types
    """The properties of a message. Short strings that are not UTF-8 are bytes, as in pika."""

    @classmethod
    def decode(cls, encoded: bytes, offset: int = 0) -> "Properties":
        """Return the properties that are written at `offset`."""
        (flags,) = _FLAGS.unpack_from(encoded, offset)
        at = offset + _FLAGS.size
        found = _NONE.copy()
        for name in _present(flags):
            if name not in _NOT_TEXT:
                start = at + 1
                at = start + encoded[at]
                found[name] = text_or_bytes(encoded[start:at])
            elif name in _BYTES:
                found[name] = encoded[at]
                at += 1
            elif name is _HEADERS:
                start = at + _SIZE_BYTES
                at = start + int.from_bytes(encoded[at:start])
                found[name] = read_table(encoded, start, at)
            else:
                (found[name],) = _STAMP.unpack_from(encoded, at)
                at += _STAMP.size
        properties: Properties = cls.__new__(cls)
        properties.__dict__ = found  # `BasicProperties.__init__` takes twice as long
        return properties

    def encode(self) -> list[bytes]:
        """Return the encoded properties. Raises `ValueError` if a short string or a number is too large."""
        flags = 0
        pieces = [b""]
        found = self.__dict__
        for name, flag in _SLOTS:
            value: Any = found[name]
            if value is None:
                continue
            flags |= flag
            if name is _HEADERS:
                pieces.append(write_table(value))
            elif name in _BYTES:
                pieces.append(bytes((value,)))
            elif name is _TIMESTAMP:
                pieces.append(_STAMP.pack(value))
            else:
                raw = value.encode() if isinstance(value, str) else value
                if len(raw) > SHORT_MAX:
                    raise ValueError(f"{name} has {len(raw)} bytes; AMQP allows {SHORT_MAX}")
                pieces += (bytes((len(raw),)), raw)
        pieces[0] = _FLAGS.pack(flags)
        return pieces


_NONE: Final[dict[str, Any]] = Properties().__dict__


@lru_cache(_KINDS)
def _present(flags: int) -> tuple[str, ...]:
    """Return the names of the properties that are written."""
    return tuple(name for name, flag in _SLOTS if flags & flag)
