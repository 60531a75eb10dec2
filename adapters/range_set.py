"""A set of whole numbers, stored as ranges."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class RangeSet:
    """A set of offsets whose size depends on the number of its gaps, not of its members.

    A million messages settled above one unsettled message are one range.
    """

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __iter__(self) -> Iterator[range]:
        return map(range, self._starts, self._ends)

    def __contains__(self, number: int) -> bool:
        return self.past(number) != number

    def __len__(self) -> int:
        """Return the number of members, not of ranges."""
        return sum(self._ends) - sum(self._starts)

    @property
    def first(self) -> int:
        """The smallest member; there must be one."""
        return self._starts[0]

    def bounds(self) -> Iterator[tuple[int, int]]:
        """Yield the start and the end (exclusive) of each range: a third of the time that iterating `range`s takes."""
        return zip(self._starts, self._ends, strict=True)

    def past(self, number: int) -> int:
        """Return the first number from `number` on that is not in the set."""
        starts = self._starts
        if not starts or number < starts[0]:
            return number
        return max(number, self._ends[bisect_right(starts, number) - 1])

    def add(self, number: int) -> None:
        """Add a number, joining the ranges it touches."""
        starts, ends = self._starts, self._ends
        at = bisect_right(starts, number)
        if at and number <= ends[at - 1]:
            if number < ends[at - 1]:
                return
            at -= 1
            ends[at] = number + 1
        else:
            starts.insert(at, number)
            ends.insert(at, number + 1)
        if at + 1 < len(starts) and starts[at + 1] == number + 1:
            ends[at] = ends.pop(at + 1)
            del starts[at + 1]

    def add_range(self, start: int, stop: int) -> None:
        """Add all numbers from `start` to before `stop`; there must be at least one."""
        starts, ends = self._starts, self._ends
        left, right = bisect_left(ends, start), bisect_right(starts, stop)  # the ranges it touches
        if left < right:
            start, stop = min(start, starts[left]), max(stop, ends[right - 1])
        starts[left:right], ends[left:right] = [start], [stop]

    def discard_below(self, number: int) -> None:
        """Remove everything smaller than `number`."""
        starts, ends = self._starts, self._ends
        if not starts or starts[0] >= number:
            return
        below = bisect_left(starts, number)
        if ends[below - 1] > number:
            below -= 1
            starts[below] = number
        del starts[:below], ends[:below]
