"""A set of whole numbers kept as runs."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class Runs:
    """A set of offsets whose size follows its gaps and not its members.

    What a group has settled out of order is one long run above one stuck message, not a million members.
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
        """Members, not runs."""
        return sum(self._ends) - sum(self._starts)

    @property
    def first(self) -> int:
        """The smallest member; there must be one."""
        return self._starts[0]

    def bounds(self) -> Iterator[tuple[int, int]]:
        """First member of each run and the number after its last one: a third of the time that ranges take."""
        return zip(self._starts, self._ends, strict=True)

    def past(self, number: int) -> int:
        """Return the first number from `number` on that is not in the set."""
        starts = self._starts
        if not starts or number < starts[0]:
            return number
        return max(number, self._ends[bisect_right(starts, number) - 1])

    def add(self, number: int) -> None:
        """Put a number in, joining the runs it touches."""
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

    def add_run(self, start: int, stop: int) -> None:
        """Put in all numbers from `start` up to, not including, `stop`; there is at least one."""
        starts, ends = self._starts, self._ends
        left, right = bisect_left(ends, start), bisect_right(starts, stop)  # the runs it touches
        if left < right:
            start, stop = min(start, starts[left]), max(stop, ends[right - 1])
        starts[left:right], ends[left:right] = [start], [stop]

    def discard_below(self, number: int) -> None:
        """Take out everything smaller than `number`."""
        starts, ends = self._starts, self._ends
        if not starts or starts[0] >= number:
            return
        gone = bisect_left(starts, number)
        if ends[gone - 1] > number:
            gone -= 1
            starts[gone] = number
        del starts[:gone], ends[:gone]
