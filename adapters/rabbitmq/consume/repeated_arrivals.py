"""Recognizes messages that were sent again and are in a partition's queue twice. Pure.

A bridge that lost the connection before a confirm sends the message again, with the header `RESENT`. The first copy may
be in the queue as well. Both have the same id and the same store time, which no other message of that id has.
"""

from array import array
from typing import Final

from adapters.amqp.messages import Arrival
from adapters.rabbitmq.headers import RESENT, STORED
from adapters.rabbitmq.mapping import message_id

_REMEMBERED: Final = 10_000
"""Messages of a partition, 8 bytes each. As many as a bridge has in flight by default lie between two copies."""


class RepeatedArrivals:
    """The messages that have arrived lately from one partition, on any connection."""

    def __init__(self) -> None:
        self._keys = array("q")
        """Of messages that were not sent again; the oldest is replaced next."""
        self._next = 0
        self._known: frozenset[int] | None = None
        """The same as a set, while only copies arrive."""
        self._resent: dict[int, int] = {}
        """Of messages whose first copy here was sent again: how often, by their keys."""

    def repeats(self, arrival: Arrival) -> bool:
        """Remember a message; return whether another copy of it has arrived before. A copy may arrive repeatedly."""
        headers = arrival.properties.headers or {}
        stored, resent = headers.get(STORED), headers.get(RESENT, 0)
        if stored is None or not isinstance(resent, int):  # of a native producer
            return False
        key = hash((message_id(arrival), stored))
        if key in self._resent:
            return self._resent[key] != resent
        if not resent:
            self._add(key)
            return False
        if self._known is None:
            self._known = frozenset(self._keys)
        if key in self._known:
            return True
        self._resent[key] = resent
        if len(self._resent) > _REMEMBERED:
            del self._resent[next(iter(self._resent))]
        return False

    def _add(self, key: int) -> None:
        self._known = None
        if len(self._keys) < _REMEMBERED:
            self._keys.append(key)
        else:
            self._keys[self._next] = key
            self._next = (self._next + 1) % _REMEMBERED
