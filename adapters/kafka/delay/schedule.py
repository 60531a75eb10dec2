"""The delay topics and their records: in a topic of one level every record stays equally long.

It waits until it is to be forwarded: when it is due, or `Options.forwarded_early` before that. So the records of a
level wake in the order of their offsets, and the forwarder looks at the first of each partition only. Pure: times are
milliseconds since 1970 and come from the caller.

A record enters the level with the longest dwell that leaves `SPARE` of what remains, then the next smaller ones. Each
dwell is eight times the one below, so a level is entered at most 7 times, the highest 15 times for 366 days, `due`
once: at most 65 topics on the way, however late a forwarder is.

The destination and the times of a record travel in its headers.
"""

from contextlib import suppress
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from adapters.kafka.consume.settled_ranges import SPAN_MAX, LogReplaced, SettledRanges
from adapters.kafka.mapping import AGAIN, DUE_AT, FIRST, PARTITION, STORED, TOPIC, Commit, Outgoing, Part, Record
from adapters.kafka.names import Own


class Level(NamedTuple):
    """One delay topic."""

    name: str
    """For `names.Own.delay`."""
    dwell: int
    """How long a record stays, ms; 0: until it is forwarded."""


DUE: Final = Level("due", 0)
"""The last level, below two seconds: its records are in no order of time."""
SPARE: Final = 500
"""Time that is left after a dwell before a record is forwarded, ms. Records of one key that are due together may come
over different levels; so they meet in the last one, and go in the order in which they were published."""
_SHORTEST: Final = 1000
LEVELS: Final = (*(Level(f"{8**power}s", _SHORTEST * 8**power) for power in reversed(range(8))), DUE)
"""From the longest dwell to none."""


def topics_of(prefix: str) -> dict[Level, str]:
    """Return the delay topics under a prefix. The last one is created last: if it is there, all are."""
    own = Own(prefix)
    return {level: own.delay(level.name) for level in LEVELS}


def first_hop(goal: int, now: int) -> Level:
    """Return the level a record enters: the longest dwell that ends `SPARE` before it is to be forwarded."""
    remaining = goal - now
    for level in LEVELS:
        if level.dwell + SPARE <= remaining:
            return level
    return DUE


def next_hop(goal: int, now: int) -> Level | None:
    """Return where a record goes now; None: to its destination."""
    return first_hop(goal, now) if goal > now else None


def wake(level: Level, appended: int, goal: int) -> int:
    """Return when a record that lies in a level since `appended` has to be looked at again.

    In the last stretch that is when it is forwarded, unless the clock was set back meanwhile: then it has to leave.
    """
    return min(goal, appended + (level.dwell or _SHORTEST + SPARE))


_OWN: Final = frozenset((DUE_AT, TOPIC, PARTITION, AGAIN, FIRST))
_DIGITS_MAX: Final = 19


class Waiting(NamedTuple):
    """The headers of a record of a delay topic. Times are milliseconds since 1970."""

    final: Part
    due: int
    again: int = 0
    """When to try again to forward it; 0: it was not tried yet."""


def to_delayed(outgoing: Outgoing, due: int, part: Part) -> Outgoing:
    """Turn a record for its destination into one for a partition of a delay topic.

    Its storeTimestamp goes into a header, as the record's own timestamp will be when it is forwarded.
    """
    headers = [
        *outgoing.headers,
        (STORED, b"%d" % outgoing.timestamp),
        (DUE_AT, b"%d" % due),
        (TOPIC, outgoing.topic.encode()),
        (PARTITION, b"%d" % outgoing.partition),
    ]
    return Outgoing(part.topic, part.partition, outgoing.timestamp, outgoing.key, outgoing.value, headers)


def waiting_of(record: Record) -> Waiting | None:
    """Read the destination and the due time of a record of a delay topic; None: the bridge did not write it."""
    found = dict(record.headers)
    due, topic, partition, again = (found.get(name, b"") for name in (DUE_AT, TOPIC, PARTITION, AGAIN))
    if not (_is_number(due) and _is_number(partition) and topic):
        return None
    try:
        return Waiting(Part(topic.decode(), int(partition)), int(due), int(again) if _is_number(again) else 0)
    except UnicodeDecodeError:
        return None


def stored_at(record: Record) -> int:
    """Return when the message was published, ms since 1970; 0: the record does not say."""
    value = next((value for name, value in reversed(record.headers) if name == STORED), b"")
    return int(value) if _is_number(value) else 0


def first_place(record: Record) -> tuple[Part, int]:
    """Return the partition of a delay topic where a record was stored first, and its offset there."""
    value = next((value for name, value in record.headers if name == FIRST), b"")
    with suppress(ValueError):  # no header, or not the bridge's
        topic, partition, offset = value.decode().split()
        return Part(topic, int(partition)), int(offset)
    return Part(record.topic, record.partition), record.offset


def onward(record: Record, part: Part, now: int, again: int = 0) -> Outgoing:
    """Move a record to a partition of a delay topic; `now` becomes its timestamp, from which it stays there."""
    headers = [header for header in record.headers if header[0] != AGAIN]
    if again:
        headers.append((AGAIN, b"%d" % again))
    if all(name != FIRST for name, _ in headers):
        headers.append((FIRST, b"%s %d %d" % (record.topic.encode(), record.partition, record.offset)))
    return Outgoing(part.topic, part.partition, now, record.key, record.value or b"", headers)


def from_delayed(record: Record, final: Part, now: int) -> Outgoing:
    """Turn a record of a delay topic into the one for its destination; `now` becomes its timestamp."""
    headers = [header for header in record.headers if header[0] not in _OWN]
    return Outgoing(final.topic, final.partition, now, record.key, record.value or b"", headers)


def _is_number(raw: bytes) -> bool:
    return raw.isdigit() and len(raw) <= _DIGITS_MAX


AHEAD: Final = 2000
"""Records that wake within this time, ms, are read in advance."""
RECORDS_MAX: Final = 2000
"""Open records of one partition."""
BYTES_MAX: Final = 16 * 1024 * 1024
"""Open records of all partitions; each partition may nevertheless have the records of one fetch."""


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

    def lags(self, offset: int) -> bool:
        """Whether an open record is so far back that the partition could soon not be read any further."""
        return offset < self.progress.next - SPAN_MAX // 2


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
        """Hold a partition from its commit on, instead of what was held of it."""
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
        """Compute again when records wake: they were appended at times that are in the future now."""
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
    """Return about how many bytes a record takes in memory."""
    return 500 + len(record.value or b"") + sum(len(value) for _, value in record.headers)
