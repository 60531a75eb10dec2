"""Deliveries, from the frames of a channel to messages. Pure.

pika builds an object for each frame and dispatches each, which takes half of the CPU of a delivery.
"""

from struct import Struct
from typing import Final

from adapters.amqp.messages import Arrival
from adapters.amqp.properties import Properties

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEAD: Final = Struct(">BHI")
"""In front of a frame's payload: its kind, its channel, the bytes of the payload. One byte is behind it."""
OVERHEAD: Final = 8
"""Bytes of a frame beside its payload."""
CONTENT: Final = Struct(">HHQ")
"""In front of the properties: class, weight, bytes of the body."""

_DELIVER: Final = b"\x00\x3c\x00\x3c"
_TAG: Final = Struct(">QB")

Delivery = tuple[str, Arrival]
"""The consumer tag and the message."""


def read_whole(channel: int, data: bytes, at: int, size: int) -> tuple[Delivery, int] | None:
    """Return the delivery whose frames begin at `at` and the end of its frames.

    None: the frame is not a delivery's, or not all three frames follow in these bytes.
    """
    payload = at + HEAD.size
    if not data.startswith(_DELIVER, payload):
        return None
    header = payload + HEAD.unpack_from(data, at)[2] + 1
    if size - header < OVERHEAD + CONTENT.size:
        return None
    kind, its_channel, length = HEAD.unpack_from(data, header)
    body = header + length + OVERHEAD
    content = header + HEAD.size
    left = CONTENT.unpack_from(data, content)[2]
    end = body + left + OVERHEAD if left else body
    if end > size or kind != HEADER or its_channel != channel:
        return None
    if left and HEAD.unpack_from(data, body) != (BODY, channel, left):
        return None
    consumer, tag, redelivered, key = _arguments(data, payload)
    properties = Properties.decode(data, content + CONTENT.size)
    return (consumer, Arrival(tag, redelivered, key, properties, data[body + HEAD.size : end - 1])), end


class Incomplete:
    """A delivery whose frames arrive one at a time."""

    __slots__ = ("_arguments", "_left", "_pieces", "_properties")

    def __init__(self, data: bytes, at: int) -> None:
        """Read the payload of the first frame at `at`."""
        self._arguments = _arguments(data, at)
        self._properties: Properties | None = None
        self._left = 0
        """Bytes of the body that have not arrived."""
        self._pieces: list[bytes] = []

    @classmethod
    def begin(cls, data: bytes, at: int) -> "Incomplete | None":
        """Return a delivery if the payload of a method's frame at `at` is one."""
        return cls(data, at) if data.startswith(_DELIVER, at) else None

    def add(self, kind: int, data: bytes, at: int, end: int) -> Delivery | None:
        """Read the payload of another frame; return the delivery if it was the last."""
        if kind == HEADER:
            self._left = CONTENT.unpack_from(data, at)[2]
            self._properties = Properties.decode(data, at + CONTENT.size)
        elif kind == BODY:
            self._pieces.append(data[at:end])
            self._left -= end - at
        if self._properties is None or self._left > 0:
            return None
        consumer, tag, redelivered, key = self._arguments
        return consumer, Arrival(tag, redelivered, key, self._properties, b"".join(self._pieces))


def _arguments(data: bytes, at: int) -> tuple[str, int, bool, str]:
    """Return consumer tag, delivery tag, whether it is delivered again, and routing key."""
    start = at + len(_DELIVER) + 1
    tag_at = start + data[start - 1]
    tag, redelivered = _TAG.unpack_from(data, tag_at)
    exchange_at = tag_at + _TAG.size
    key_at = exchange_at + data[exchange_at] + 2
    key = data[key_at : key_at + data[key_at - 1]].decode("utf-8", "replace")
    return data[start:tag_at].decode(), tag, bool(redelivered), key
