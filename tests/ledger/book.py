"""The bookkeeping: what was sent and answered, what was delivered and acknowledged, in the order in which it was seen.

Pure, without a clock: every event takes the next number, so "before" is one comparison.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum


class Answer(Enum):
    """A producer's record of one attempt."""

    STORED = "stored"
    NOT_STORED = "not stored"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Attempt:
    """One request to store a message."""

    answer: Answer = Answer.UNKNOWN
    """As long as there is none it is unknown."""


@dataclass(slots=True)
class Sent:
    """One message, as its producer sees it."""

    key: str | None
    sequence: int
    """Its place among the messages of its key, which are sent one after another: each until it is stored."""
    body: bytes
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def stored(self) -> bool:
        """Whether some attempt was answered so."""
        return any(attempt.answer is Answer.STORED for attempt in self.attempts)

    @property
    def copies(self) -> int:
        """How many copies of it there may be: one for each attempt that did not certainly fail."""
        return sum(attempt.answer is not Answer.NOT_STORED for attempt in self.attempts)


@dataclass(slots=True)
class Handed:
    """One delivery, as its consumer sees it. Times are numbers of events."""

    name: str
    body: bytes
    count: int
    """The deliveryCount that it said."""
    by: str
    """Which life of which bridge delivered it."""
    at: int
    asked: int | None = None
    """When its acknowledgement was first sent."""
    done: int | None = None
    """When that was answered: it is settled."""


class Book:
    """Everything that producers and consumers have seen."""

    def __init__(self) -> None:
        self.sent: dict[str, Sent] = {}
        """By messageId."""
        self.handed: defaultdict[str, list[Handed]] = defaultdict(list)
        """By group, in the order of arrival."""
        self.stored = 0
        """Messages of which an attempt was answered stored."""
        self._events = 0

    def attempt(self, name: str, key: str | None, sequence: int, body: bytes) -> Attempt:
        """Note that a message is about to be sent, for the first time or again."""
        sent = self.sent.setdefault(name, Sent(key, sequence, body))
        sent.attempts.append(Attempt())
        return sent.attempts[-1]

    def answered(self, attempt: Attempt, answer: Answer) -> None:
        """Note what became of an attempt. A message is not sent again once it is stored."""
        attempt.answer = answer
        self.stored += answer is Answer.STORED

    def deliver(self, group: str, name: str, body: bytes, count: int, by: str) -> Handed:
        """Note a delivery."""
        handed = Handed(name, body, count, by, self._next())
        self.handed[group].append(handed)
        return handed

    def ask(self, handed: Handed) -> None:
        """Note that an acknowledgement is about to be sent."""
        if handed.asked is None:
            handed.asked = self._next()

    def finish(self, handed: Handed) -> None:
        """Note that it was answered: done."""
        if handed.done is None:
            handed.done = self._next()

    def outstanding(self, group: str) -> set[str]:
        """Return what is stored and still has to reach a group, or to be acknowledged by it."""
        asked = {handed.name for handed in self.handed[group] if handed.asked is not None}
        return {name for name, sent in self.sent.items() if sent.stored and name not in asked}

    def _next(self) -> int:
        self._events += 1
        return self._events
