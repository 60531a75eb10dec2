"""A partition that has a history: what is read from its two queues, and what was in both. Pure.

The history queue ends with a record: the ids of what the log stored while the partition's own queue was being bound.
Each of those is in the history, and may be in the own queue as well, before a marker. So the own queue is sieved up to
that marker. A bridge that takes the partition over before it is reached begins with the same record again.

A holder of the partition reads the history until `NEXT`, keeps that record unacknowledged and reads the own queue. At
`END` it waits until everything of the history is settled, deletes the history queue, and only then acknowledges the
marker. If it ends between any two of these, the next holder finds either the whole record or no history queue.
"""

import json
from collections.abc import Mapping
from enum import Enum
from typing import Final

from adapters.amqp.messages import Arrival
from adapters.amqp.properties import Properties
from adapters.rabbitmq.message.headers import MARKER
from adapters.rabbitmq.message.mapping import message_id

_END: Final = "end"
_THROUGH: Final = "through "
_PERSISTENT: Final = 2


class Verdict(Enum):
    """What to do with an arrival."""

    KEEP = "keep"
    """It is a message."""
    DROP = "drop"
    """Acknowledge it: it was in the history, or is a mark of no meaning here."""
    NEXT = "next"
    """The history's record: keep it unacknowledged, and begin to read the partition's own queue."""
    END = "end"
    """The own queue's marker: once all of the history is settled delete its queue, then acknowledge this."""


class Deduplicator:
    """Judges what arrives of one held partition, from its history first, then from its own queue."""

    def __init__(self) -> None:
        self._mark: str | None = None
        self._both: dict[str, int] = {}

    def arrived(self, arrival: Arrival) -> Verdict:
        """Judge one. The record, delivered a second time to the same holder, changes nothing."""
        headers = arrival.properties.headers
        mark = headers.get(MARKER) if headers else None
        if mark is None:
            return Verdict.DROP if self._both and self._was_in_both(arrival) else Verdict.KEEP
        if mark == _END and (record := _read_end(arrival.body)) is not None:
            if self._mark != record[0]:
                self._mark, self._both = record
            return Verdict.NEXT
        if self._mark is not None and mark == _THROUGH + self._mark:
            self._both = {}
            return Verdict.END
        return Verdict.DROP

    def _was_in_both(self, arrival: Arrival) -> bool:
        name = message_id(arrival)
        left = self._both.get(name)
        if left is None:
            return False
        if left > 1:
            self._both[name] = left - 1
        else:
            del self._both[name]
        return True


def end(name: str, both: Mapping[str, int]) -> tuple[Properties, bytes]:
    """Return the record that ends a history: the name of the set-up, how often each id may be in both queues."""
    return marker(_END), json.dumps({"setup": name, "both": both}).encode()


def through(name: str) -> Properties:
    """Return the marker in the partition's own queue."""
    return marker(_THROUGH + name)


def marker(what: str) -> Properties:
    """Return a mark of the bridge's among messages."""
    return Properties(headers={MARKER: what}, delivery_mode=_PERSISTENT)


def _read_end(body: bytes) -> tuple[str, dict[str, int]] | None:
    try:
        match json.loads(body):
            case {"setup": str(name), "both": {**both}}:
                return name, {str(key): times for key, times in both.items() if isinstance(times, int)}
    except ValueError:
        pass
    return None
