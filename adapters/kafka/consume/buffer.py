"""Records of one destination that have arrived for one group and were not fetched yet. Pure: times are passed in."""

from collections import Counter, deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from adapters.base import Delivery
from adapters.kafka.consume.settled_ranges import SPAN_MAX, SettledRanges
from adapters.kafka.mapping import Commit, Part, Record, from_record
from adapters.kafka.names import handle

RECORDS_MAX: Final = 500
"""Records of one partition that wait to be fetched; above it the partition is paused, below half of it resumed."""
PART_BYTES_MAX: Final = 1 << 20
"""The same in bytes."""
BYTES_MAX: Final = 4 << 20
"""Of all partitions, with what is held until it is due. Four times as much, here and in what the libraries fetch ahead,
took 15 MiB more of a bridge with one busy group, and no message came sooner."""
_OVERHEAD: Final = 420
"""Bytes that a record takes in memory beside key and value: 100 bytes took 520, and with five headers 1,517."""
_HEADER: Final = 170
"""Bytes that a header takes beside its name and value."""
_TURNS: Final = (1, 0, 2)
"""Lanes in the order in which they are served: high, normal, low."""


class Item(NamedTuple):
    """A record, and how often it was handed out before. The record stays raw: a Message takes three times the room."""

    record: Record
    attempts: int
    size: int


class PartitionBuffer:
    """One partition while it is held."""

    __slots__ = ("bytes", "due", "handle", "lane", "part", "progress", "queued", "waiting")

    def __init__(self, part: Part, lane: int, stay: int, committed: Commit | None) -> None:
        self.part = part
        self.lane = lane
        self.handle = handle(lane, part.partition, stay)
        self.progress = SettledRanges(committed)
        self.waiting: deque[Item] = deque()
        self.due: deque[Item] = deque()
        """Delayed records that are due now: they go first."""
        self.bytes = 0
        """Of `waiting` and `due`."""
        self.queued = False
        """Whether it has a place among the turns of its lane."""

    @property
    def stalled(self) -> bool:
        """Whether so much lies beyond the first message that is not settled that the commit could not hold more."""
        return self.progress.span > SPAN_MAX


class Buffer:
    """The partitions that are held: the highest lane first, partitions of a lane in turn, each in order of offsets."""

    def __init__(self, topics: Sequence[str]) -> None:
        """`topics` by the number of their lane; the first one is named as the destination."""
        self.held: dict[Part, PartitionBuffer] = {}
        self.bytes = 0
        self._destination = topics[0]
        self._lanes = {topic: lane for lane, topic in enumerate(topics)}
        self._by_handle: dict[int, PartitionBuffer] = {}
        self._stays: Counter[Part] = Counter()
        """How often a partition was held. Its handle is another one each time, so that the outcome of a delivery of an
        earlier stay is not taken for that of a record with the same offset: the topic may have been created again."""
        self._turns: list[deque[PartitionBuffer]] = [deque() for _ in topics]
        self._order = [self._turns[lane] for lane in _TURNS if lane < len(topics)]
        self._delayed: list[tuple[int, tuple[int, int], PartitionBuffer, Item]] = []
        self._sequence = 0

    @property
    def delayed(self) -> int:
        """Records that are held until they are due."""
        return len(self._delayed)

    @property
    def next_due(self) -> int | None:
        """When the first of them is due, ms since 1970."""
        return self._delayed[0][0] if self._delayed else None

    def find(self, number: int) -> PartitionBuffer | None:
        """Return the partition with this handle, if it is held."""
        return self._by_handle.get(number)

    def hold(self, part: Part, committed: Commit | None) -> PartitionBuffer:
        """Hold a partition from the group's commit on, instead of what was held of it; None: from its oldest record."""
        self.drop(part)
        held = self.held[part] = PartitionBuffer(part, self._lanes[part.topic], self._stays[part], committed)
        self._stays[part] += 1
        self._by_handle[held.handle] = held
        return held

    def drop(self, part: Part) -> PartitionBuffer | None:
        """Forget a partition and everything of it."""
        held = self.held.pop(part, None)
        if held is None:
            return None
        del self._by_handle[held.handle]
        self.bytes -= held.bytes
        if held.queued:
            self._turns[held.lane].remove(held)
        if any(entry[2] is held for entry in self._delayed):
            self.bytes -= sum(entry[3].size for entry in self._delayed if entry[2] is held)
            self._delayed = [entry for entry in self._delayed if entry[2] is not held]
            heapify(self._delayed)
        return held

    def add(self, held: PartitionBuffer, record: Record) -> None:
        """Queue a record, unless it is settled already. Raises `LogReplaced`."""
        attempts = held.progress.fetched(record.offset)
        if attempts is None:
            return
        item = Item(record, attempts, _size(record))
        held.waiting.append(item)
        held.bytes += item.size
        self.bytes += item.size
        self._queue(held)

    def take(self, limit: int, max_bytes: int, wall: int) -> list[Delivery]:
        """Return the next deliveries: at most `limit`; of at most `max_bytes`, unless there is only one."""
        while self._delayed and self._delayed[0][0] <= wall:
            _, _, held, item = heappop(self._delayed)
            held.due.append(item)
            held.bytes += item.size
            self._queue(held)
        found: list[Delivery] = []
        for turns in self._order:
            while turns and len(found) < limit:
                held = turns[0]
                queue = held.due or held.waiting
                if not queue:
                    held.queued = False
                    turns.popleft()
                    continue
                item = queue[0]
                record = item.record
                if found and item.size > max_bytes:
                    return found
                turns.rotate(-1)
                queue.popleft()
                held.bytes -= item.size
                message = from_record(record, self._destination)
                if message.delay_time and message.due > wall:
                    self._sequence += 1
                    # due together: in the order of publication, as forwarded ones may have come over different levels
                    order = (message.store_timestamp or 0, self._sequence)
                    heappush(self._delayed, (message.due, order, held, item))
                    continue
                self.bytes -= item.size
                max_bytes -= item.size
                found.append(Delivery(message, held.handle, record.offset, item.attempts))
        return found

    def crowded(self, held: PartitionBuffer, limits: float = 1) -> bool:
        """Whether nothing more of a partition should come for now, or, with half of the limits, for a paused one."""
        if len(held.waiting) > RECORDS_MAX * limits or held.bytes > PART_BYTES_MAX * limits:
            return True
        return self.bytes > BYTES_MAX * limits or held.stalled

    def _queue(self, held: PartitionBuffer) -> None:
        if not held.queued:
            held.queued = True
            self._turns[held.lane].append(held)


def _size(record: Record) -> int:
    size = _OVERHEAD + len(record.value or b"") + len(record.key or b"")
    for name, value in record.headers:
        size += len(name) + len(value) + _HEADER
    return size
