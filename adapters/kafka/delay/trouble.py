"""What cannot be written now, and how carefully it is tried again: so that one bad destination holds up no other. Pure.

A transaction fails as a whole, and often nobody says for which record. So what was in one that failed is tried again
destination by destination, and where single records are refused, in ever smaller parts, until it is clear which ones.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from adapters.kafka.record import Part

FIRST_PAUSE: Final = 5_000
"""Milliseconds until what could not be written is tried again; then twice as long, and so on."""
_LAST_PAUSE: Final = 60_000
_FORGET: Final = 10 * _LAST_PAUSE
TOGETHER: Final = 500
"""Records in one transaction while nothing is wrong."""


class Place(NamedTuple):
    """Where a single record lies."""

    part: Part
    offset: int


Subject = str | Place
"""A topic that nothing can be written to, or one record."""


class _Pause(NamedTuple):
    until: int
    length: int


class Trouble:
    """Times are milliseconds since 1970."""

    def __init__(self) -> None:
        self._pauses: dict[Subject, _Pause] = {}
        self._limits: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._pauses)

    def until(self, subject: Subject) -> int:
        """Until when something is not to be tried; 0: nothing is known against it."""
        pause = self._pauses.get(subject)
        return 0 if pause is None else pause.until

    def put_off(self, subject: Subject, now: int) -> bool:
        """Let it wait. Whether it is the first time, so that a person is told once."""
        earlier = self._pauses.get(subject)
        length = FIRST_PAUSE if earlier is None else min(2 * earlier.length, _LAST_PAUSE)
        self._pauses[subject] = _Pause(now + length, length)
        return earlier is None

    def limit(self, topic: str) -> int | None:
        """How many records of a topic to try together, and with no other topic's; None: it needs no care."""
        return self._limits.get(topic)

    def suspect(self, topics: Collection[str], limit: int) -> None:
        """Take care with topics: one of them, or a record for one of them, let a transaction fail."""
        for topic in topics:
            self._limits[topic] = max(1, min(limit, self._limits.get(topic, limit)))

    def succeeded(self, topic: str, now: int) -> bool:
        """Note that records were written to a topic. Whether it could not be written before."""
        limit = self._limits.pop(topic, None)
        if limit is not None and 2 * limit < TOGETHER:
            self._limits[topic] = 2 * limit
        for subject, pause in list(self._pauses.items()):
            if pause.until + _FORGET < now:
                del self._pauses[subject]
        return self._pauses.pop(topic, None) is not None

    def settled(self, place: Place) -> None:
        """Forget a record that was written or dropped."""
        self._pauses.pop(place, None)
