"""A message that is published, and one that was delivered."""

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
    """The delivery tag, valid on its channel while that is open."""
    redelivered: bool
    """Whether it was delivered before, to any consumer. The counts in its headers are valid only then."""
    routing_key: str
    properties: BasicProperties
    body: bytes
