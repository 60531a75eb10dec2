"""The progress of a group in one partition: settled offsets, attempts of the others, and the commit of both.

A commit has room for a bitmap of `SPAN_MAX` offsets, or for the runs between two hundred unsettled ones however far
apart. So one message that no consumer handles does not stop its partition until a million offsets lie behind it: they
are fetched once more, and skipped, after a restart (half a minute).
"""

from typing import Final

from adapters.kafka.consume.commit_metadata import decode, encode
from adapters.kafka.mapping import Commit
from adapters.range_set import RangeSet

SPAN_MAX: Final = 20_000
"""Limit of `SettledRanges.span`: fetching pauses there. 3,000 records more, which were on their way, still fit."""
_SPARSE: Final = 100
"""With less than one unsettled offset in so many, runs take less room than a bitmap."""
_FAR: Final = 50
"""Offsets that are fetched again and skipped at the cost of one in a bitmap."""


class LogReplaced(Exception):
    """An offset came again: the topic was deleted and created again, and nothing known is true of its records.

    The owner continues with `SettledRanges(None)`, and takes no outcome of older deliveries for the new records.
    A new log that has grown beyond the old position before the first check looks like a gap.
    """


class SettledRanges:
    """One held partition. Every step costs the same however much is open, but for a log step in the number of gaps.

    Offsets that were skipped by the fetch (compacted away, aborted, markers of transactions) count as settled.
    """

    __slots__ = ("_attempts", "_known_to", "_low", "_open", "_settled", "next")

    def __init__(self, committed: Commit | None) -> None:
        self._low = -1
        """-1: nothing is known yet."""
        self.next = 0
        """The position after the last fetched record."""
        self._open = 0
        """Fetched and not settled."""
        self._settled = RangeSet()
        """Above `_low`, which is never in it; also of offsets that will be fetched again after a restart."""
        self._attempts: dict[int, int] = {}
        """Of unsettled offsets; no entry: never handed out."""
        self._known_to = 0
        """Attempts of offsets below are known from before a restart: they may have been compacted away since."""
        if committed is not None:
            self._low = self.next = committed.offset
            self._settled, self._attempts = decode(committed.metadata, committed.offset)
            self._known_to = max(self._attempts, default=-1) + 1

    @property
    def low(self) -> int | None:
        """The first unsettled offset, else the position after what is known; None: nothing is known yet."""
        return None if self._low < 0 else self._low

    @property
    def span(self) -> int:
        """How far the fetch is ahead of `low`, in offsets of a bitmap; if few are unsettled, far ones count less."""
        ahead = self.next - self._low
        return max(min(ahead, self._open * _SPARSE), ahead // _FAR, 0)

    def lag(self, end: int) -> int:
        """Return how many offsets before `end` are not settled, as far as that is known."""
        return max(0, end - self._low - len(self._settled)) if self._low >= 0 else end

    def fetched(self, offset: int) -> int | None:
        """Note a fetched record: how often it was handed out before, None if it is settled. Raises `LogReplaced`."""
        if self._low < 0:
            self._low = self.next = offset
        if offset != self.next:
            self._skip(offset)
        self.next = offset + 1
        if offset < self._low or offset in self._settled:
            return None
        self._open += 1
        return self._attempts.get(offset, 0)

    def attempt(self, offset: int, attempts: int) -> None:
        """Remember how often an unsettled record was handed out."""
        if not self._is_open(offset):
            return
        if attempts:
            self._attempts[offset] = attempts
        else:
            self._attempts.pop(offset, None)

    def settle(self, offset: int) -> None:
        """Settle a record; harmless if it is settled already, or was never fetched."""
        if not self._is_open(offset):
            return
        self._attempts.pop(offset, None)
        self._open -= 1
        if offset == self._low:
            self._advance(offset + 1)
        else:
            self._settled.add(offset)

    def commit(self) -> Commit | None:
        """Return the commit to write now: the same as before if nothing has happened. None: nothing is known yet."""
        if self._low < 0:
            return None
        return Commit(self._low, encode(self._low, self._settled, self._attempts))

    def _is_open(self, offset: int) -> bool:
        return self._low <= offset < self.next and offset not in self._settled

    def _skip(self, offset: int) -> None:
        """Count the offsets that the fetch left out as settled."""
        start = self.next
        if offset < start:
            raise LogReplaced(offset, start)
        if start < self._known_to:
            for removed in [known for known in self._attempts if start <= known < offset]:
                del self._attempts[removed]
        if self._low < start:
            self._settled.add_range(start, offset)
        elif self._low < offset:
            self._advance(offset)

    def _advance(self, low: int) -> None:
        """Let `low` be this offset, or the first one after it that is not settled."""
        settled = self._settled
        if settled:
            low = settled.past(low)
            settled.discard_below(low)
        self._low = low
