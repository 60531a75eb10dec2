"""One partition's log: append at the end, look up by offset, drop anywhere."""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from sys import getsizeof
from typing import Any, Final

from adapters.runs import Runs
from bridge.message import Message

_OVERHEAD: Final = 512
"""Bytes a stored message takes beyond what `footprint` counts one by one: the message's own tuple, the headers of its
numbers, its dict of properties, its place in the columns below, and what malloc rounds up. Measured by
`test_footprint_is_not_below_what_python_takes`."""
_COMPACT: Final = 64
"""Dropped messages that may pile up before the columns are rewritten, if they are not half of them anyway."""

Record = tuple[Any, ...]
"""A message as it is kept: its fields, with the properties as one tuple of their names and then their values.

Tuples of strings and numbers are the one thing the garbage collector stops visiting. With 1 million messages kept, a
full collection, which stops the loop, takes 0.05 s; with named tuples it took 1.0 s.
"""
BODY: Final = Message._fields.index("body")
PROPERTIES: Final = Message._fields.index("properties")


def pack(message: Message) -> Record:
    """Turn a message into what is kept."""
    fields: list[Any] = list(message)
    properties = message.properties
    fields[PROPERTIES] = (*properties, *properties.values()) if properties else ()
    return tuple(fields)


def unpack(record: Record) -> Message:
    """Turn what is kept into the message it was."""
    fields = list(record)
    flat = record[PROPERTIES]
    half = len(flat) // 2
    fields[PROPERTIES] = dict(zip(flat[:half], flat[half:], strict=True)) if flat else {}
    return Message._make(fields)


def footprint(record: Record) -> int:
    """Bytes that keeping this message costs, an estimate from above."""
    size: int = _OVERHEAD + len(record[BODY])
    for value in record:
        if value.__class__ is str:
            size += getsizeof(value)
    for text in record[PROPERTIES]:
        size += getsizeof(text)
    return size


class Partition:
    """Messages by offset. Offsets grow by one and are never given twice; dropped ones leave holes.

    Columns side by side instead of one object per message: 36 bytes a message instead of about 170, and one object
    fewer for the garbage collector to visit.
    """

    __slots__ = ("_dead", "_head", "acks", "end", "messages", "number", "offsets", "reserved", "sequences", "spare",
                 "stored", "unsure", "voids")  # fmt: skip

    def __init__(self, number: int) -> None:
        self.number = number
        self.end = 0
        """The offset after the last message appended."""
        self.reserved = 0
        """The offset to give next; ahead of `end` while messages wait for the journal."""
        self.offsets = array("q")
        self.sequences = array("q")
        """The order of storing over the whole backend, and the message's row in the journal."""
        self.stored = array("q")
        """When each was appended, ms since 1970."""
        self.acks = array("I")
        """How many groups have settled it."""
        self.messages: list[Record | None] = []
        self.spare = Runs()
        """Offsets kept that every group has settled."""
        self.voids = Runs()
        """Offsets given to messages that were then refused: nobody's."""
        self.unsure: int | None = None
        """From here on no offset is in the journal: after a crash they may be given again. None: all are."""
        self._head = 0
        self._dead = 0

    def __len__(self) -> int:
        return len(self.messages) - self._dead

    @property
    def first(self) -> int:
        """The oldest offset kept, `end` when there is none."""
        return self.offsets[self._head] if self._head < len(self.offsets) else self.end

    @property
    def known(self) -> int:
        """The offset after the last message that is there after a restart, where anything is."""
        return self.end if self.unsure is None else self.unsure

    def reserve(self) -> int:
        """Give the next offset to a message on its way."""
        offset = self.reserved
        self.reserved = offset + 1
        return offset

    def append(self, record: Record, offset: int, sequence: int, now: int) -> None:
        """Keep a message; offsets only grow."""
        self.end = offset + 1
        self.offsets.append(offset)
        self.sequences.append(sequence)
        self.stored.append(now)
        self.acks.append(0)
        self.messages.append(record)

    def index(self, offset: int) -> int:
        """Index of the first column whose offset is `offset` or more; it may hold a dropped message."""
        offsets = self.offsets
        if not offsets:
            return 0
        guess = offset - offsets[0]  # right while there are no holes, which is nearly always
        if 0 <= guess < len(offsets) and offsets[guess] == offset:
            return guess
        return bisect_left(offsets, offset)

    def find(self, offset: int) -> int | None:
        """Index of the message kept under this offset."""
        index = self.index(offset)
        if index < len(self.offsets) and self.offsets[index] == offset and self.messages[index] is not None:
            return index
        return None

    def following(self, offset: int) -> int:
        """Return the first offset kept from `offset` on, `end` when there is none."""
        index = max(self.index(offset), self._head)
        messages = self.messages
        while index < len(messages):
            if messages[index] is not None:
                return self.offsets[index]
            index += 1
        return max(offset, self.end)

    def kept(self) -> Iterator[tuple[int, int]]:
        """Index and offset of every message kept, oldest first."""
        for index in range(self._head, len(self.messages)):
            if self.messages[index] is not None:
                yield index, self.offsets[index]

    def drop(self, index: int) -> Record:
        """Let go of a message kept, and return it. Indexes stay as they are until `compact`."""
        message = self.messages[index]
        assert message is not None  # noqa: S101 - callers look before they drop
        self.messages[index] = None
        self._dead += 1
        if index == self._head:
            while self._head < len(self.messages) and self.messages[self._head] is None:
                self._head += 1
        return message

    def settle_all(self) -> None:
        """Count one more group that is done with everything kept: one that starts after it."""
        self.acks = array("I", [acks + 1 for acks in self.acks])

    def compact(self) -> None:
        """Rewrite the columns without the dropped once those are the larger half: constant cost per drop."""
        if self._dead <= _COMPACT or self._dead * 2 < len(self.messages):
            return
        live = [index for index, message in enumerate(self.messages) if message is not None]
        for name in ("offsets", "sequences", "stored", "acks"):
            column: array[int] = getattr(self, name)
            setattr(self, name, array(column.typecode, [column[index] for index in live]))
        self.messages = [self.messages[index] for index in live]
        self._head = self._dead = 0
