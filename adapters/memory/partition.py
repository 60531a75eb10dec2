"""One partition's log: append at the end, look up by offset, drop anywhere; and its list of records."""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from adapters.memory.record import Record
from adapters.range_set import RangeSet

BLOCK: Final = 1024
"""Records of one block."""

_Block = list[Record | None] | tuple[Record | None, ...]


class RecordList:
    """A list of records that may be dropped, which leaves None.

    A full collection visits every element of a list, and stops the event loop meanwhile: 10 ms for 400,000 records. It
    stops visiting a tuple that holds only records, so each block becomes a tuple when it is full: 0.01 ms.
    """

    __slots__ = ("_blocks", "_last")

    def __init__(self) -> None:
        self._last: list[Record | None] = []
        self._blocks: list[_Block] = [self._last]

    def __len__(self) -> int:
        return (len(self._blocks) - 1) * BLOCK + len(self._last)

    def __getitem__(self, index: int) -> Record | None:
        """`index` is not negative. Raises IndexError."""
        return self._blocks[index // BLOCK][index % BLOCK]

    def __iter__(self) -> Iterator[Record | None]:
        for block in self._blocks:
            yield from block

    def append(self, record: Record) -> None:
        """Add a record."""
        last = self._last
        last.append(record)
        if len(last) == BLOCK:
            self._blocks[-1] = tuple(last)
            self._last = []
            self._blocks.append(self._last)

    def drop(self, index: int) -> None:
        """Replace a record by None."""
        number = index // BLOCK
        block = self._blocks[number]
        if isinstance(block, tuple):
            block = self._blocks[number] = list(block)
        block[index % BLOCK] = None


_COMPACT: Final = 64
"""Dropped messages that may pile up before the columns are rewritten, even if they are half of all."""
_STEP: Final = 2048
"""Messages that one call of `compact` visits, about 1 ms: more than are dropped before it, so it reaches the end."""


class Partition:
    """Messages by offset. Offsets grow by one and are never used twice; dropped messages leave holes.

    Columns side by side instead of one object per message: 36 bytes a message instead of about 170, and one object
    fewer for the garbage collector to visit.
    """

    __slots__ = ("_compacted", "_copied", "_dropped", "_head", "acks", "end", "messages", "number", "offsets",
                 "removed_groups", "reserved", "sequences", "settled_by_all", "stored", "unrecorded_from",
                 "unused")  # fmt: skip

    def __init__(self, number: int) -> None:
        self.number = number
        self.end = 0
        """The offset after the last message appended."""
        self.reserved = 0
        """The next offset to reserve; ahead of `end` while messages wait for the journal."""
        self.offsets = array("q")
        self.sequences = array("q")
        """Position in the storing order of the whole backend, and the message's row in the journal."""
        self.stored = array("q")
        """When each message was appended, ms since 1970."""
        self.acks = array("I")
        """How many groups have settled each message, `removed_groups` included; too low while they are counted."""
        self.removed_groups = 0
        """Groups that were removed. They count as groups that have settled every message, also those to come: so the
        count of a message never has to fall."""
        self.messages = RecordList()
        """None: dropped."""
        self.settled_by_all = RangeSet()
        """Offsets of stored messages that every group has settled."""
        self.unused = RangeSet()
        """Offsets reserved for messages that were then refused: no message has them."""
        self.unrecorded_from: int | None = None
        """No offset from this one on is in the journal: after a crash they may be reserved again. None: all are."""
        self._head = 0
        """Index of the oldest message stored."""
        self._dropped = 0
        self._compacted: Partition | None = None
        """The columns that `compact` writes: the messages kept of those before the index `_copied`."""
        self._copied = 0

    def __len__(self) -> int:
        return len(self.messages) - self._dropped

    @property
    def first(self) -> int:
        """The oldest offset stored, `end` if there is none."""
        return self.offsets[self._head] if self._head < len(self.offsets) else self.end

    @property
    def recorded_end(self) -> int:
        """The end of the offsets that keep their messages over a restart."""
        return self.end if self.unrecorded_from is None else self.unrecorded_from

    @property
    def oldest(self) -> int | None:
        """When the oldest message stored was appended, ms since 1970; None if there is none."""
        return self.stored[self._head] if self._head < len(self.stored) else None

    def reserve(self) -> int:
        """Reserve the next offset for a message that will be appended."""
        offset = self.reserved
        self.reserved = offset + 1
        return offset

    def append(self, record: Record, offset: int, sequence: int, now: int) -> None:
        """Store a message; offsets only grow."""
        self.end = offset + 1
        self.offsets.append(offset)
        self.sequences.append(sequence)
        self.stored.append(now)
        self.acks.append(self.removed_groups)
        self.messages.append(record)

    def count_ack(self, index: int) -> int:
        """Count that one more group has settled a message; return how many have."""
        self.acks[index] = acks = self.acks[index] + 1
        if self._compacted is not None and index < self._copied:
            self._compacted.count_ack(self._compacted.index(self.offsets[index]))
        return acks

    def index(self, offset: int) -> int:
        """Return the first index whose offset is `offset` or more; its message may have been dropped."""
        offsets = self.offsets
        if not offsets:
            return 0
        guess = offset - offsets[0]  # right while there are no holes, which is nearly always
        if 0 <= guess < len(offsets) and offsets[guess] == offset:
            return guess
        return bisect_left(offsets, offset)

    def find(self, offset: int) -> int | None:
        """Return the index of the message with this offset; None if it is not stored."""
        index = self.index(offset)
        if index < len(self.offsets) and self.offsets[index] == offset and self.messages[index] is not None:
            return index
        return None

    def next_kept(self, offset: int) -> int:
        """Return the first offset stored from `offset` on, `end` if there is none."""
        index = self.next_index(offset)
        return max(offset, self.end) if index is None else self.offsets[index]

    def next_index(self, offset: int) -> int | None:
        """Return the index of the first message stored from `offset` on, None if there is none."""
        index, messages, end = self.index(offset), self.messages, len(self.offsets)
        if index < end and messages[index] is not None:  # nearly always
            return index
        index = max(index, self._head)
        while index < end:
            if messages[index] is not None:
                return index
            index += 1
        return None

    def kept(self) -> Iterator[tuple[int, int]]:
        """Yield index and offset of every message stored, oldest first."""
        for index in range(self._head, len(self.messages)):
            if self.messages[index] is not None:
                yield index, self.offsets[index]

    def drop(self, index: int) -> Record:
        """Drop a stored message and return it. Indexes stay valid until `compact`."""
        message = self.messages[index]
        assert message is not None  # noqa: S101 - callers check before they drop
        self.messages.drop(index)
        self._dropped += 1
        if index == self._head:
            while self._head < len(self.messages) and self.messages[self._head] is None:
                self._head += 1
        if self._compacted is not None and index < self._copied:
            self._compacted.drop(self._compacted.index(self.offsets[index]))
        return message

    def compact(self) -> None:
        """Rewrite the columns without dropped messages once those are the larger half; call it after each few drops.

        Each call does a part of it, so that no one waits for all messages.
        """
        if self._compacted is None:
            if self._dropped <= _COMPACT or self._dropped * 2 < len(self.messages):
                return
            self._compacted, self._copied = Partition(self.number), 0
        compacted, messages = self._compacted, self.messages
        start = max(self._copied, self._head)
        self._copied = min(start + _STEP, len(messages))
        for index in range(start, self._copied):
            record = messages[index]
            if record is not None:
                compacted.removed_groups = self.acks[index]
                compacted.append(record, self.offsets[index], self.sequences[index], self.stored[index])
        if self._copied == len(messages):
            self.offsets, self.sequences, self.stored = compacted.offsets, compacted.sequences, compacted.stored
            self.acks, self.messages = compacted.acks, compacted.messages
            self._head = compacted.index(compacted.first)
            self._dropped = len(compacted.messages) - len(compacted)
            self._compacted = None
