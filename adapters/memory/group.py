"""What one group has read of one destination."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence

from adapters.base import Delivery
from adapters.memory.partition import BODY, Partition, Record, unpack
from adapters.runs import Runs


class Cursor:
    """One group's place in one partition."""

    __slots__ = ("_released", "attempts", "low", "next", "partition", "settled")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.low = partition.first
        """The lowest offset that is neither settled nor dropped."""
        self.settled = Runs()
        """Settled offsets above it."""
        self.next = self.low
        """Where fetching goes on."""
        self.attempts: dict[int, int] = {}
        """How often an unsettled message was handed out before, where that is known."""
        self._released: list[int] = []
        """Given back and not fetched again, ascending."""

    def has_settled(self, offset: int) -> bool:
        """Whether this group is done with the offset."""
        return offset < self.low or offset in self.settled

    def settle(self, offset: int) -> bool:
        """Be done with an offset; False when it was so before, or is nothing that was ever there."""
        if offset >= self.partition.end or self.has_settled(offset):
            return False
        self.attempts.pop(offset, None)
        if not self.settled and offset == self.low:  # in order, as most are
            self.low = self.partition.following(offset + 1)
            return True
        self.settled.add(offset)
        if offset == self.partition.following(self.low):  # beyond `low` where a failed commit left a gap
            self.advance()
        return True

    def advance(self) -> None:
        """Move `low` past what is settled or dropped."""
        low, following, past = self.low, self.partition.following, self.settled.past
        while True:
            low = past(kept) if (kept := following(low)) < self.partition.end else kept
            if low == kept:
                break
        self.low = low
        self.settled.discard_below(low)

    def trim(self) -> None:
        """Forget what was dropped unsettled."""
        self.advance()
        for offset in [offset for offset in self.attempts if offset < self.low]:
            del self.attempts[offset]

    def count(self, offset: int, attempts: int) -> None:
        """Remember how often an unsettled message was handed out."""
        if offset < self.partition.end and not self.has_settled(offset):
            self.attempts[offset] = attempts

    def release(self, offset: int, attempts: int) -> None:
        """Let a fetched message be fetched again, before newer ones."""
        self.count(offset, attempts)
        released = self._released
        at = bisect_left(released, offset)
        if offset < self.next and released[at : at + 1] != [offset]:
            insort(released, offset)

    def rewind(self) -> None:
        """Let everything unsettled be fetched again."""
        self.next = self.low
        self._released.clear()

    def peek(self) -> int | None:
        """Index of the message to fetch next, None when there is none."""
        partition, released = self.partition, self._released
        while released:
            index = partition.find(released[0])
            if index is not None and not self.has_settled(released[0]):
                return index
            del released[0]
        offset = max(self.next, self.low)
        while offset < partition.end:
            offset = partition.following(offset)
            past = self.settled.past(offset)
            if past == offset:
                break
            offset = past
        self.next = offset
        return partition.find(offset)

    def take(self, index: int, record: Record) -> Delivery:
        """Hand out what `peek` found."""
        offset = self.partition.offsets[index]
        if self._released:
            del self._released[0]
        else:
            self.next = offset + 1
        return Delivery(unpack(record), self.partition.number, offset, self.attempts.get(offset, 0))

    def unsettled(self) -> int:
        """About how many kept messages this group holds back; holes count as settled only below `low`."""
        return max(0, min(len(self.partition), self.partition.end - self.low - len(self.settled)))


class Group:
    """One group of one destination: a cursor for each partition."""

    __slots__ = ("_turn", "cursors", "destination", "forgotten", "idle_since", "live", "name", "number")

    def __init__(self, name: str, destination: str, number: int, partitions: Sequence[Partition], now: int) -> None:
        self.name = name
        self.destination = destination
        self.number = number
        """Unique in the backend and never given again."""
        self.cursors = [Cursor(partition) for partition in partitions]
        self.live = False
        """Whether it has a subscription."""
        self.idle_since = now
        """Since when it has none, ms."""
        self.forgotten = False
        """Whether the log let go of it; a subscription that was closed may still hold it."""
        self._turn = 0

    def skip(self) -> None:
        """Be done with everything that is there."""
        for cursor in self.cursors:
            cursor.low = cursor.next = cursor.partition.end

    def rewind(self) -> None:
        """Let everything unsettled be fetched again."""
        for cursor in self.cursors:
            cursor.rewind()

    def fetch(self, limit: int, max_bytes: int) -> list[Delivery]:
        """Take what is ready, one message from each partition in turn; empty when there is nothing."""
        found: list[Delivery] = []
        cursors = self.cursors
        turns = deque(cursors)
        turns.rotate(-self._turn)
        while turns and len(found) < limit:
            cursor = turns[0]
            index = cursor.peek()
            if index is None:
                turns.popleft()
                continue
            record = cursor.partition.messages[index]
            assert record is not None  # noqa: S101 - peek only finds what is kept
            max_bytes -= len(record[BODY])
            if found and max_bytes < 0:
                break
            found.append(cursor.take(index, record))
            turns.rotate(-1)
        if turns:
            self._turn = turns[0].partition.number
        return found
