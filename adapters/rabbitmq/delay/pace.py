"""How long a message waits in delay levels so that those of one key keep their order. Pure.

The levels count in units of 100 ms, and each takes some milliseconds. So a message leaves them up to 120 ms before it
is due, and the engine holds it until then. Messages that wait equally long stay behind one another: they are in the
same queues. Two that wait 900 and 1000 ms are in different ones, and arrive as chance has it. So a message that would
arrive close to the one before it, of its key, waits longer: as long as that one did, or until some time after it.
"""

from typing import Final, NamedTuple

from adapters.rabbitmq.delay.levels import LONGEST, UNIT

APART: Final = 20
"""Milliseconds by which a path through the levels is late: 4 to 17 were measured on 3.10.8 on an idle machine."""
LATE: Final = 1000
"""Milliseconds that a message waits longer for the sake of order, and no more. It takes a burst of one key for one
moment: such messages arrive as quickly as they were sent."""
_KEYS: Final = 4096

KeyQueue = tuple[str, str]
"""A destination's partition, and a key."""


class _Sent(NamedTuple):
    due: int
    wait: int
    arrives: int


class Pace:
    """The last message of each key, up to some thousands of them."""

    def __init__(self) -> None:
        self._last: dict[KeyQueue, _Sent] = {}

    def wait(self, key_queue: KeyQueue | None, due: int, now: int) -> int:
        """Return how many ms, a multiple of `UNIT`, a message waits that the engine holds until `due`.

        `key_queue` is None if it has no key.
        """
        needed = min(max(due - now - APART, 0) // UNIT * UNIT, LONGEST)
        if key_queue is None:
            return needed
        last = self._last.get(key_queue)
        wait = needed
        if last is not None and due >= last.due and now + needed < last.arrives + APART:
            behind = _units(last.arrives + APART - now)
            longer = last.wait if needed <= last.wait < behind else behind
            if longer <= needed + LATE:
                wait = longer
        elif last is None and len(self._last) >= _KEYS:
            self._last.clear()
        self._last[key_queue] = _Sent(due, wait, now + wait)
        return wait


def not_before(due: int, now: int) -> int:
    """Return how many ms, a multiple of `UNIT`, a message waits that must not arrive before `due`."""
    # one more: the broker counts in whole ms, and so may be ahead of us by a part of one
    return min(_units(due - now + 1), LONGEST)


def _units(wait: int) -> int:
    return -(-max(wait, 0) // UNIT) * UNIT
