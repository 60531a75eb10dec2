"""What goes to RabbitMQ and comes from it."""

from typing import NamedTuple

from pika import BasicProperties


class Outgoing(NamedTuple):
    """A message to be published."""

    exchange: str
    routing_key: str
    properties: BasicProperties
    body: bytes


class Arrival(NamedTuple):
    """A message as it was delivered."""

    tag: int
    """Its delivery tag: of its channel, and only while that is open."""
    redelivered: bool
    """Whether it was delivered before, to anybody. What counts deliveries in its headers is true only then."""
    routing_key: str
    properties: BasicProperties
    body: bytes


class Source(NamedTuple):
    """Where a group reads one partition."""

    partition: int
    queue: str
    history: str | None = None
    """A queue with what the destination's log held when the group came late: it is read first."""
    shared: bool = False
    """A queue that existed already, with consumers that are none of ours: nothing about it is ours to decide."""
