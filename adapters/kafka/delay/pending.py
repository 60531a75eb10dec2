"""Delayed records in memory: those to wake next, and no more than necessary. Pure.

The records of a level wake in the order of their offsets. So while the last record held of a partition is far from its
time, nothing more of the partition is read: a million messages that wait for a year take the memory of a few.
"""

from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from adapters.kafka.consume.settled_ranges import SPAN_MAX, LogReplaced, SettledRanges
from adapters.kafka.delay.schedule import Level, Waiting, stored_at, wake
from adapters.kafka.record import Commit, Part, Record

AHEAD: Final = 2000
"""Records that wake within this time, ms, are read in advance."""
RECORDS_MAX: Final = 2000
"""Open records of one partition."""
BYTES_MAX: Final = 16 * 1024 * 1024
"""Open records of all partitions; each partition may nevertheless have what one fetch brings."""


class DelayPartition:
    """One partition of a delay topic."""

    def __init__(self, part: Part, level: Level, committed: Commit | None) -> None:
        self.part = part
        self.level = level
        self.progress = SettledRanges(committed)
        self.open = 0
        """Records in memory: waiting, or being forwarded."""
        self.leaving = 0
        """Of the open records, those that go to a delay topic again to make room."""
        self.last_wake = 0
        """Of the open records, ms since 1970."""
        self.paused = False
        self._reached = 0

    def reached(self, offset: int) -> None:
        """Note that a record has been read."""
        self._reached = max(self._reached, offset + 1)

    def lags(self, offset: int) -> bool:
        """Whether an open record is so far back that the partition could soon not be read any further."""
        return offset < self._reached - SPAN_MAX // 2


class Pending(NamedTuple):
    """A record that waits; in the order in which records are looked at."""

    wake: int
    due: int
    stored: int
    """When it was published: of two records that are due together the older one goes first."""
    number: int
    """Of its arrival, so that records are never compared beyond it."""
    record: Record
    partition: DelayPartition
    waiting: Waiting | None
    """None: the destination is unknown, because the bridge did not write the record."""


class PendingDelays:
    """All partitions that are held, and a heap of their records. Times are milliseconds since 1970."""

    def __init__(self, ahead: int) -> None:
        """`ahead`: how long before it is due a record is forwarded, ms."""
        self._ahead = ahead
        self.partitions: dict[Part, DelayPartition] = {}
        self._heap: list[Pending] = []
        self._bytes = 0
        self._number = 0

    def __len__(self) -> int:
        return sum(partition.open for partition in self.partitions.values())

    def hold(self, part: Part, level: Level, committed: Commit | None) -> DelayPartition:
        """Hold a partition from its committed state on, instead of what was held of it."""
        self.drop(part)
        partition = self.partitions[part] = DelayPartition(part, level, committed)
        return partition

    def drop(self, part: Part) -> None:
        """Forget a partition and every record of it."""
        partition = self.partitions.pop(part, None)
        if partition is None:
            return
        for pending in self._heap:
            if pending.partition is partition:
                self.close(pending)
        self._heap = [pending for pending in self._heap if pending.partition is not partition]
        heapify(self._heap)

    def add(self, record: Record, waiting: Waiting | None, now: int) -> None:
        """Take in a record of a partition that is held, unless it is settled already."""
        partition = self.partitions[Part(record.topic, record.partition)]
        try:
            attempts = partition.progress.fetched(record.offset)
        except LogReplaced:
            paused = partition.paused
            partition = self.hold(partition.part, partition.level, None)
            partition.paused = paused
            attempts = partition.progress.fetched(record.offset)
        partition.reached(record.offset)
        if attempts is None:
            return
        self._number += 1
        due = 0 if waiting is None else waiting.due
        pending = Pending(0, due, stored_at(record), self._number, record, partition, waiting)
        self._bytes += size(record)
        partition.open += 1
        self._push(pending._replace(wake=self._wake(pending, now)))

    def put_back(self, pending: Pending, until: int) -> None:
        """Keep a record that `take` returned, until the given time."""
        self._push(pending._replace(wake=until))

    def close(self, pending: Pending) -> None:
        """Forget a record that `take` returned."""
        pending.partition.open -= 1
        self._bytes -= size(pending.record)
        if not pending.partition.open:
            pending.partition.last_wake = 0

    def take(self, now: int) -> list[Pending]:
        """Return the records that are awake, the first due first; each is open until `close` or `put_back`."""
        heap, taken = self._heap, list[Pending]()
        while heap and heap[0].wake <= now:
            taken.append(heappop(heap))
        taken.sort(key=lambda pending: pending[1:4])
        return taken

    def next_event(self, now: int) -> int | None:
        """Return when the next record wakes, or a paused partition is to be read again; None: nothing is to come."""
        times = [at for each in self.partitions.values() if each.paused and (at := each.last_wake - AHEAD) > now]
        if self._heap:
            times.append(self._heap[0].wake)
        return min(times, default=None)

    def wanted(self, partition: DelayPartition, now: int) -> bool:
        """Whether more of a partition is to be read now."""
        if partition.open >= RECORDS_MAX or partition.progress.span >= SPAN_MAX:
            return False
        return not partition.open or (partition.last_wake <= now + AHEAD and self._bytes < BYTES_MAX)

    def clock_set_back(self, now: int) -> None:
        """Compute anew when records wake: they were appended at times that are in the future now."""
        for partition in self.partitions.values():
            partition.last_wake = 0
        waiting, self._heap = self._heap, []
        for pending in waiting:
            self._push(pending._replace(wake=self._wake(pending, now)))

    def _wake(self, pending: Pending, now: int) -> int:
        again = 0 if pending.waiting is None else pending.waiting.again
        goal = max(pending.due - self._ahead, again)
        return wake(pending.partition.level, min(pending.record.timestamp, now), goal)

    def _push(self, pending: Pending) -> None:
        heappush(self._heap, pending)
        pending.partition.last_wake = max(pending.partition.last_wake, pending.wake)


def size(record: Record) -> int:
    """Return about what a record takes in memory, in bytes."""
    return 500 + len(record.value or b"") + sum(len(value) for _, value in record.headers)
