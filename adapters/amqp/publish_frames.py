"""The frames of one publish. Pure.

pika builds an object for each frame. Here the method frame of an exchange and a routing key is built once.
"""

import struct
from collections.abc import Iterator
from typing import Final

from adapters.amqp.deliveries import BODY, CONTENT, HEAD, HEADER, METHOD, OVERHEAD
from adapters.amqp.messages import Outgoing
from bridge.errors import HeadersTooLarge

_END: Final = b"\xce"
_PUBLISH: Final = (60, 40)
_MANDATORY: Final = b"\1"
"""The broker returns a message that it routes to no queue."""
_CONTENT_FRAME: Final = struct.Struct(">BHIHHQ")
_KNOWN_MAX: Final = 4096


class Frames:
    """Makes the frames of the messages of one channel."""

    def __init__(self, channel: int, frame_max: int) -> None:
        self._channel = channel
        self._space = frame_max - OVERHEAD
        self._methods: dict[tuple[str, str], bytes] = {}

    def of(self, outgoing: Outgoing) -> list[bytes]:
        """Return the frames. Raises `HeadersTooLarge`, or pika's errors for values that AMQP does not have."""
        target = (outgoing.exchange, outgoing.routing_key)
        method = self._methods.get(target)
        if method is None:
            if len(self._methods) >= _KNOWN_MAX:  # the routing keys of delayed messages are not limited
                self._methods.clear()
            method = self._methods[target] = self._method(*target)
        properties = b"".join(outgoing.properties.encode())
        size = len(properties) + CONTENT.size
        if size > self._space:
            # the broker would close the connection
            said = f"the properties together are larger than RabbitMQ accepts ({self._space} bytes)"
            raise HeadersTooLarge(f"{outgoing.exchange}: {said}.")
        body, channel = outgoing.body, self._channel
        head = method + _CONTENT_FRAME.pack(HEADER, channel, size, _PUBLISH[0], 0, len(body)) + properties + _END
        if not body:
            return [head]
        if len(body) <= self._space:
            return [head, HEAD.pack(BODY, channel, len(body)), body, _END]
        return [head, *self._pieces(body)]

    def _pieces(self, body: bytes) -> Iterator[bytes]:
        for start in range(0, len(body), self._space):
            piece = body[start : start + self._space]
            yield HEAD.pack(BODY, self._channel, len(piece))
            yield piece
            yield _END

    def _method(self, exchange: str, routing_key: str) -> bytes:
        payload = struct.pack(">HHH", *_PUBLISH, 0) + _short(exchange) + _short(routing_key) + _MANDATORY
        return HEAD.pack(METHOD, self._channel, len(payload)) + payload + _END


def _short(text: str) -> bytes:
    raw = text.encode()
    return bytes((len(raw),)) + raw
