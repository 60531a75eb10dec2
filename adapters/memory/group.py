"""One group of one destination: the messages that it has fetched and settled, and its subscription."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Sequence

from adapters.base import Delivery
from adapters.memory.partition import Partition
from adapters.memory.record import Record, unpack
from adapters.range_set import RangeSet
from bridge.message import Message


class Cursor:
    """One group's position in one partition."""

    __slots__ = ("_released", "attempts", "committed_offset", "next", "partition", "settled")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.committed_offset = partition.first
        """The lowest offset that is neither settled nor dropped."""
        self.settled = RangeSet()
        """Settled offsets above `committed_offset`."""
        self.next = self.committed_offset
        """The next offset to fetch."""
        self.attempts: dict[int, int] = {}
        """Earlier deliveries of unsettled messages, as far as they are known."""
        self._released: list[int] = []
        """Offsets released and not fetched again, ascending."""

    def has_settled(self, offset: int) -> bool:
        """Return whether this group has settled an offset."""
        return offset < self.committed_offset or offset in self.settled

    def settle(self, offset: int) -> bool:
        """Settle an offset. False: it was settled before, or no message ever had it."""
        in_order = offset == self.committed_offset and not self.settled  # as most are
        if offset >= self.partition.end or (not in_order and self.has_settled(offset)):
            return False
        self.attempts.pop(offset, None)
        if in_order:
            self.committed_offset = self.partition.next_kept(offset + 1)
            return True
        self.settled.add(offset)
        # above `committed_offset` if a failed commit left a gap
        if offset == self.partition.next_kept(self.committed_offset):
            self.advance()
        return True

    def advance(self) -> None:
        """Move `committed_offset` past settled and dropped offsets."""
        offset, next_kept, past = self.committed_offset, self.partition.next_kept, self.settled.past
        while True:
            offset = past(kept) if (kept := next_kept(offset)) < self.partition.end else kept
            if offset == kept:
                break
        self.committed_offset = offset
        self.settled.discard_below(offset)

    def unsettled_ranges(self, end: int) -> list[tuple[int, int]]:
        """Return the ranges of offsets before `end`, as start and end (exclusive), that this group has not settled."""
        starts = [self.committed_offset, *(stop for _, stop in self.settled.bounds())]
        stops = [*(start for start, _ in self.settled.bounds()), end]
        return [(start, stop) for start, stop in zip(starts, stops, strict=True) if start < stop]

    def skip_all(self) -> None:
        """Settle every message that is stored now."""
        self.committed_offset = self.next = self.partition.end
        self.settled.discard_below(self.partition.end)
        self.attempts.clear()
        self._released.clear()

    def trim(self) -> None:
        """Forget messages that were dropped unsettled."""
        self.advance()
        for offset in [offset for offset in self.attempts if offset < self.committed_offset]:
            del self.attempts[offset]

    def count(self, offset: int, attempts: int) -> None:
        """Remember how often an unsettled message was delivered."""
        if offset < self.partition.end and not self.has_settled(offset):
            self.attempts[offset] = attempts

    def release(self, offset: int, attempts: int) -> None:
        """Make a fetched message available again, before newer ones."""
        self.count(offset, attempts)
        released = self._released
        at = bisect_left(released, offset)
        if offset < self.next and released[at : at + 1] != [offset]:
            insort(released, offset)

    def rewind(self) -> None:
        """Make every unsettled message available again."""
        self.next = self.committed_offset
        self._released.clear()

    def available(self) -> Iterator[tuple[int, Record]]:
        """Yield offset and record of each message to fetch; call `take` with them before asking for the next ones."""
        partition, released, past = self.partition, self._released, self.settled.past
        offsets, messages = partition.offsets, partition.messages
        while released:
            index = partition.find(released[0])
            record = None if index is None or self.has_settled(released[0]) else messages[index]
            if record is None:
                del released[0]
            else:
                yield released[0], record
        index = partition.next_index(max(self.next, self.committed_offset))
        while index is not None and index < len(offsets):
            offset, record = offsets[index], messages[index]
            if (unsettled := past(offset)) > offset:
                index = partition.next_index(unsettled)
                continue
            if record is not None:
                yield offset, record
            index += 1
        self.next = partition.end

    def take(self, offset: int, message: Message) -> Delivery:
        """Return the delivery of a message that `available` has found, and move on."""
        if self._released:
            del self._released[0]
        else:
            self.next = offset + 1
        return Delivery(message, self.partition.number, offset, self.attempts.get(offset, 0))

    def find(self, offset: int) -> Record | None:
        """Return the record of a fetched message; None: it was settled or dropped."""
        index = self.partition.find(offset)
        return None if index is None or self.has_settled(offset) else self.partition.messages[index]

    def unsettled(self) -> int:
        """Return about how many stored messages are not settled; holes above `committed_offset` count too."""
        return max(0, min(len(self.partition), self.partition.end - self.committed_offset - len(self.settled)))


class StoredGroup:
    """One group of one destination: a cursor for each partition."""

    __slots__ = ("_next_partition", "cursors", "destination", "forgotten", "idle_since", "name", "number", "subscribed")

    def __init__(self, name: str, destination: str, number: int, partitions: Sequence[Partition], now: int) -> None:
        self.name = name
        self.destination = destination
        self.number = number
        """Unique in the backend and never used again."""
        self.cursors = [Cursor(partition) for partition in partitions]
        self.subscribed = False
        """Whether it has a subscription."""
        self.idle_since = now
        """Since when it has no subscription, ms since 1970."""
        self.forgotten = False
        """Whether the log has removed it; a closed subscription may still refer to it."""
        self._next_partition = 0

    def unsettled_ranges(self, ends: Sequence[int]) -> Iterator[tuple[Partition, int, int]]:
        """Yield the ranges of offsets before each partition's end that this group has not settled."""
        for cursor, end in zip(self.cursors, ends, strict=True):
            for start, stop in cursor.unsettled_ranges(end):
                yield cursor.partition, start, stop

    def skip_all(self) -> None:
        """Settle every message that is stored now."""
        for cursor in self.cursors:
            cursor.skip_all()

    def rewind(self) -> None:
        """Make every unsettled message available again."""
        for cursor in self.cursors:
            cursor.rewind()

    def fetch(self, limit: int, max_bytes: int) -> list[Delivery]:
        """Take available messages, one from each partition in turn; an empty list if there is none."""
        found: list[Delivery] = []
        available = deque([(cursor, cursor.available()) for cursor in self.cursors])
        available.rotate(-self._next_partition)
        while available and len(found) < limit:
            cursor, following = available[0]
            if (stored := next(following, None)) is None:
                available.popleft()
                continue
            offset, message = stored[0], unpack(stored[1])
            max_bytes -= message.size
            if found and max_bytes < 0:
                break
            found.append(cursor.take(offset, message))
            available.rotate(-1)
        if available:
            self._next_partition = available[0][0].partition.number
        return found

    def fetch_again(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Return deliveries with their messages; those that were settled or dropped are left out."""
        found = [(each, self.cursors[each.partition].find(each.position)) for each in deliveries]
        return [each._replace(message=unpack(record)) for each, record in found if record is not None]
