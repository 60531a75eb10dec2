"""How long a message waits so that it is not early, and not before one of its key that is due before it. Pure.

On the ladder only messages that wait equally long stay behind one another: they are in the same queues. Two with 999
and 1000 ms are in different ones in the end, and arrive as chance has it. So a message that would arrive close to the
one before it, of the same key, waits a little longer: as long as that one did, or until some time after it.
"""

from typing import Final, NamedTuple

APART: Final = 20
"""Milliseconds between the arrivals of two that wait in different queues: measured on 3.10.8, a path is late by 4 to 17
ms on an idle machine."""
LATE: Final = 1000
"""Milliseconds that a message waits longer for the sake of order, and no more. It takes a burst of one key for one
moment: such messages arrive as quickly as they were sent."""
_LANES: Final = 4096

Lane = tuple[str, str]
"""A destination's partition, and a key."""


class _Sent(NamedTuple):
    due: int
    wait: int
    arrives: int


class Pace:
    """Knows the last message of each key, up to some thousands of them."""

    def __init__(self) -> None:
        self._last: dict[Lane, _Sent] = {}

    def wait(self, lane: Lane | None, due: int, now: int) -> int:
        """Return how long the next one waits: until `due` at least, and 1 ms at least. None: it has no key."""
        # one more: the broker counts in whole ms, and so may be ahead of us by a part of one
        needed = max(due - now, 0) + 1
        if lane is None:
            return needed
        last = self._last.get(lane)
        wait = needed
        if last is not None and due >= last.due and now + needed < last.arrives + APART:
            behind = last.arrives + APART - now
            longer = last.wait if needed <= last.wait < behind else behind
            if longer <= needed + LATE:
                wait = longer
        elif last is None and len(self._last) >= _LANES:
            self._last.clear()
        self._last[lane] = _Sent(due, wait, now + wait)
        return wait
