"""What a forwarder holds in memory of the delay topics: the next to wake, and no more than it has to. Pure.

The records of a level wake in the order in which they lie there, so of a partition whose last record held wakes in a
week nothing more is read until then: a million messages that wait for a year cost the memory of a few.
"""

from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from adapters.kafka.delay.schedule import DUE, Level, wake
from adapters.kafka.delay.waiting import Waiting
from adapters.kafka.headers import STORED
from adapters.kafka.progress import SPAN_MAX, LogReplaced, Progress
from adapters.kafka.record import Commit, Part, Record

AHEAD: Final = 2000
"""Records that wake within this time, ms, are read before they do: four times as long as a fetch may be under way."""
RECORDS_MAX: Final = 2000
"""Held of one partition."""
BYTES_MAX: Final = 16 * 1024 * 1024
"""Held of all partitions; each of them may nevertheless hold what one fetch brings."""


class Shelf:
    """One partition of a delay topic."""

    def __init__(self, part: Part, level: Level, committed: Commit | None, reached: int = 0) -> None:
        self.part = part
        self.level = level
        self.progress = Progress(committed)
        self.held = 0
        self.last_wake = 0
        """Of the records held."""
        self.reached = reached
        """Behind the last record that was ever read of it."""
        self.read_again: int | None = None
        """When to go back to the first open record, because some were put off; ms since 1970."""

    def lags(self, offset: int) -> bool:
        """Whether an open record lies so far back that it soon keeps the partition from being read any further."""
        return offset < self.reached - SPAN_MAX // 2

    def put_off(self, until: int) -> None:
        """Note that a record which is not held any more has to be read again then."""
        self.read_again = until if self.read_again is None else min(self.read_again, until)


class Held(NamedTuple):
    """A record that waits; in the order in which records are looked at."""

    wake: int
    due: int
    stored: int
    """When it was published: of two records for one moment the older goes first, whichever way they came."""
    number: int
    """Of its arrival, so that records are never compared beyond it."""
    record: Record
    shelf: Shelf
    waiting: Waiting | None
    """None: nobody knows where it should go."""


class Holding:
    """All shelves, and one heap of what lies on them. Times are milliseconds since 1970."""

    def __init__(self, ahead: int) -> None:
        """`ahead`: how long before it is due a record of the last stretch is looked at, ms."""
        self._ahead = ahead
        self.shelves: dict[Part, Shelf] = {}
        self._heap: list[Held] = []
        self._bytes = 0
        self._number = 0

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, shelf: Shelf) -> None:
        """Hold a partition from now on, from its committed state on, in the place of what was held of it."""
        self.drop(shelf.part)
        self.shelves[shelf.part] = shelf

    def drop(self, part: Part) -> None:
        """Forget a partition and every record of it."""
        shelf = self.shelves.pop(part, None)
        if shelf is not None and shelf.held:
            self._heap = [held for held in self._heap if held.shelf is not shelf]
            heapify(self._heap)
            self._bytes = sum(size(held.record) for held in self._heap)

    def add(self, record: Record, waiting: Waiting | None) -> None:
        """Take in a record of a partition that is held, unless it is settled already."""
        shelf = self.shelves[Part(record.topic, record.partition)]
        try:
            new = shelf.progress.fetched(record.offset)
        except LogReplaced:
            shelf = Shelf(shelf.part, shelf.level, None)
            self.put(shelf)
            new = shelf.progress.fetched(record.offset)
        shelf.reached = max(shelf.reached, record.offset + 1)
        if new is not None:
            self._number += 1
            due = 0 if waiting is None else waiting.due
            at = wake(shelf.level, record.timestamp, due - self._ahead if shelf.level is DUE else due)
            self._push(Held(at, due, _stored(record), self._number, record, shelf, waiting))

    def put_back(self, held: Held) -> None:
        """Take in again what `take` returned."""
        self._push(held)

    def next_wake(self) -> int | None:
        """When there is something to do: a record to look at, or to read again."""
        times = [shelf.read_again for shelf in self.shelves.values() if shelf.read_again is not None]
        if self._heap:
            times.append(self._heap[0].wake)
        return min(times, default=None)

    def take(self, now: int, records: int, bytes_: int) -> list[Held]:
        """Take what is awake, the first due first, up to so many records and bytes (but one at least)."""
        heap, taken = self._heap, list[Held]()
        while heap and heap[0].wake <= now and len(taken) < records and bytes_ > 0:
            held = heappop(heap)
            taken.append(held)
            bytes_ -= size(held.record)
            self._bytes -= size(held.record)
            held.shelf.held -= 1
        for shelf in {held.shelf for held in taken}:
            if not shelf.held:
                shelf.last_wake = 0
        taken.sort(key=lambda held: held[1:4])
        return taken

    def to_read_again(self, now: int) -> list[Shelf]:
        """Return the partitions whose open records are to be read again now."""
        return [shelf for shelf in self.shelves.values() if shelf.read_again is not None and shelf.read_again <= now]

    def hungry(self, shelf: Shelf, now: int) -> bool:
        """Whether more of a partition is to be read now."""
        if shelf.held >= RECORDS_MAX or shelf.progress.span >= SPAN_MAX:
            return False
        return not shelf.held or (shelf.last_wake <= now + AHEAD and self._bytes < BYTES_MAX)

    def _push(self, held: Held) -> None:
        heappush(self._heap, held)
        self._bytes += size(held.record)
        held.shelf.held += 1
        held.shelf.last_wake = max(held.shelf.last_wake, held.wake)


def size(record: Record) -> int:
    """Return about what a record takes in memory, in bytes."""
    return 500 + len(record.value or b"") + sum(len(value) for _, value in record.headers)


def _stored(record: Record) -> int:
    for name, value in reversed(record.headers):
        if name == STORED:
            return int(value) if value.isdigit() and len(value) < 20 else 0  # noqa: PLR2004 - digits of a 64-bit number
    return 0
