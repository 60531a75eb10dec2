"""How long a message waits so that it is not early, nor before one that was sent first and is due first. Pure.

On the ladder only messages with the same delay pass each other never: they are in the same queues. Two with 999 and
1000 ms are in different ones at the end and arrive as chance has it. So a message waits a little longer if that
brings it onto the path of the one before it, or far enough behind it.
"""

from typing import Final, NamedTuple

APART: Final = 20
"""Milliseconds by which two that wait in different queues arrive apart, so that the order is kept: measured on an idle
machine, a path of three rungs is late by 5 to 21 ms."""
LATE: Final = 60
"""Milliseconds that a message waits longer for the sake of order, and no more."""
_TAILS: Final = 4096


class _Sent(NamedTuple):
    due: int
    wait: int
    arrives: int


class Pace:
    """Knows the last message of each partition of each destination, up to some thousands of them."""

    def __init__(self) -> None:
        self._last: dict[str, _Sent] = {}

    def wait(self, tail: str, due: int, now: int) -> int:
        """Return how long the next one to `tail` waits, ms: until `due` at least (ms since 1970), and at least 1."""
        # one more: the broker counts in whole ms, and so may be ahead of us by a part of one
        needed = max(due - now, 0) + 1
        last = self._last.get(tail)
        wait = needed
        if last is not None and due >= last.due:
            if 0 <= last.wait - needed <= LATE:
                wait = last.wait
            elif needed < (behind := last.arrives + APART - now) <= needed + LATE:
                wait = behind
        elif len(self._last) >= _TAILS:
            self._last.clear()
        self._last[tail] = _Sent(due, wait, now + wait)
        return wait
