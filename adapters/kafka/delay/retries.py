"""When to try again what cannot be forwarded, and how carefully: one bad destination holds up no other. Pure."""

from typing import Final, NamedTuple

from adapters.kafka.record import Part

FIRST_PAUSE: Final = 5_000
"""Milliseconds until a refused topic or record is tried again; then twice as long, and so on."""
LAST_PAUSE: Final = 60_000
SHORT_PAUSE: Final = 1_000
"""The same while Kafka does not answer, or says that the same may soon succeed; always as long."""
_FORGET: Final = 10 * LAST_PAUSE
IN_FLIGHT_MAX: Final = 64
"""Records for one topic that are sent and not yet committed; a kill may double them."""


class Place(NamedTuple):
    """The offset of one record."""

    part: Part
    offset: int


Subject = str | Place
"""A topic, or one record."""


class _Pause(NamedTuple):
    until: int
    length: int


class Retries:
    """Times are milliseconds since 1970."""

    def __init__(self) -> None:
        self._pauses: dict[Subject, _Pause] = {}
        self._limits: dict[str, int] = {}

    @property
    def refused(self) -> int:
        """Topics and records that cannot be written, not for an outage."""
        return sum(pause.length > SHORT_PAUSE for pause in self._pauses.values())

    def until(self, subject: Subject) -> int:
        """Until when a topic or a record is not to be tried; 0: it can be tried."""
        pause = self._pauses.get(subject)
        return 0 if pause is None else pause.until

    def refuse(self, subject: Subject, now: int) -> bool:
        """Try it later, after a pause that grows. Returns whether it was not refused before."""
        earlier = self._pauses.get(subject)
        known = earlier is not None and earlier.length > SHORT_PAUSE
        length = min(2 * earlier.length, LAST_PAUSE) if earlier is not None and known else FIRST_PAUSE
        self._pauses[subject] = _Pause(now + length, length)
        self._suspect(subject)
        return not known

    def wait(self, topic: str, now: int) -> None:
        """Try it soon: it is not known to be refused."""
        earlier = self._pauses.get(topic)
        length = SHORT_PAUSE if earlier is None else earlier.length
        self._pauses[topic] = _Pause(now + SHORT_PAUSE, length)
        self._suspect(topic)

    def limit(self, topic: str) -> int:
        """Return how many records of a topic may be in flight."""
        return self._limits.get(topic, IN_FLIGHT_MAX)

    def succeeded(self, topic: str, now: int) -> bool:
        """Note that a record was written to a topic. Returns whether the topic was refused before."""
        if (limit := self._limits.pop(topic, None)) is not None and 2 * limit < IN_FLIGHT_MAX:
            self._limits[topic] = 2 * limit
        if not self._pauses:
            return False
        for subject, pause in list(self._pauses.items()):
            if pause.until + _FORGET < now:
                del self._pauses[subject]
        ended = self._pauses.pop(topic, None)
        return ended is not None and ended.length > SHORT_PAUSE

    def settled(self, place: Place) -> None:
        """Forget a record that was written, moved or dropped."""
        self._pauses.pop(place, None)

    def _suspect(self, subject: Subject) -> None:
        if isinstance(subject, str):
            self._limits[subject] = 1
