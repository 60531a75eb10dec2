"""Programs without the bridge: plain pika, as its users write it."""

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple
from uuid import uuid4

import pika
from pika.adapters.blocking_connection import BlockingChannel

SECONDS: Final = 60
KINDS: Final[Mapping[str, Mapping[str, object]]] = {
    "classic": {"x-queue-type": "classic"},
    "quorum": {"x-queue-type": "quorum"},
    "priority": {"x-queue-type": "classic", "x-max-priority": 9},
}


class Sent(NamedTuple):
    """A message as a native producer publishes it."""

    body: bytes = b"body"
    key: str = ""
    properties: pika.BasicProperties = pika.BasicProperties()


class Got(NamedTuple):
    """A message as a native consumer gets it."""

    body: bytes
    key: str
    redelivered: bool
    properties: pika.BasicProperties


class Foreign(pika.BasicProperties):  # type: ignore[misc] # pika has no types
    """Headers as clients of other languages write them: names, types and bytes that pika has no way to write."""

    def __init__(self, *headers: tuple[bytes, bytes, bytes]) -> None:
        super().__init__()
        self._table = b"".join(bytes((len(name),)) + name + kind + payload for name, kind, payload in headers)

    def encode(self) -> list[bytes]:
        return [struct.pack(">HI", self.FLAG_HEADERS, len(self._table)), self._table]


@contextmanager
def channel(url: str) -> Iterator[BlockingChannel]:
    """Open a channel on its own connection, with publisher confirms."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        opened = connection.channel()
        opened.confirm_delivery()
        yield opened
    finally:
        if connection.is_open:
            connection.close()


def queue_of(url: str, kind: str = "classic", *, exchange: str | None = None, key: str = "#") -> str:
    """Make a durable queue without the bridge, bound to an exchange that is there."""
    name = f"native.{uuid4().hex[:12]}"
    with channel(url) as opened:
        opened.queue_declare(name, durable=True, arguments=dict(KINDS[kind]))
        if exchange is not None:
            opened.queue_bind(name, exchange, key)
    return name


def exchange_of(url: str, kind: str) -> str:
    """Make a durable exchange without the bridge."""
    name = f"native.{uuid4().hex[:12]}"
    with channel(url) as opened:
        opened.exchange_declare(name, kind, durable=True)
    return name


def write(url: str, exchange: str, messages: Sequence[Sent]) -> None:
    """Publish, each one confirmed and routed to a queue at least; pika raises for one that is not."""
    with channel(url) as opened:
        for message in messages:
            opened.basic_publish(exchange, message.key, message.body, message.properties, mandatory=True)


def take(url: str, queue: str, count: int) -> list[Got]:
    """Consume and acknowledge the next messages of a queue; AssertionError if they do not come."""
    taken: list[Got] = []
    with channel(url) as opened:
        for method, properties, body in opened.consume(queue, inactivity_timeout=SECONDS):
            assert method is not None, f"{len(taken)} of {count} messages have come"
            opened.basic_ack(method.delivery_tag)
            taken.append(Got(body, method.routing_key, method.redelivered, properties))
            if len(taken) == count:
                break
        opened.cancel()
    return taken


def left(url: str, queue: str) -> int:
    """Return how many messages lie in a queue, delivered to no consumer."""
    with channel(url) as opened:
        return int(opened.queue_declare(queue, passive=True).method.message_count)
