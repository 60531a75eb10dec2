"""Where a delayed record waits: a ladder of topics, in each of which every record stays equally long.

So the records of a level become interesting in the order in which they lie there, and whoever forwards them looks at
the first of each partition only. Pure: times are milliseconds since 1970 and come from the caller.

A record enters the level with the longest dwell that leaves `SPARE` of what remains, then the next smaller ones. Each
dwell is eight times the one below, so a level is entered at most 7 times, the highest 15 times for 366 days, `due`
once: at most 65 topics on the way, however late a forwarder is.
"""

from typing import Final, NamedTuple


class Level(NamedTuple):
    """One delay topic."""

    name: str
    """For `names.Own.delay`."""
    dwell: int
    """How long a record stays, ms; 0: until it is due."""


DUE: Final = Level("due", 0)
"""The last stretch, below two seconds: records lie there in no order of time."""
SPARE: Final = 500
"""What a dwell leaves before a record is due, ms. Records of one key that are due together may come over different
levels; so they meet before they are due, and go in the order in which they were published."""
_SHORTEST: Final = 1000
LEVELS: Final = (*(Level(f"{8**power}s", _SHORTEST * 8**power) for power in reversed(range(8))), DUE)
"""From the longest dwell to none."""


def first_hop(due: int, now: int) -> Level:
    """Return the level a record enters: the longest dwell that ends `SPARE` before it is due."""
    remaining = due - now
    for level in LEVELS:
        if level.dwell + SPARE <= remaining:
            return level
    return DUE


def next_hop(due: int, now: int, hold: int, *, strict: bool) -> Level | None:
    """Return where a record goes now; None: to its destination.

    Strict: only once it is due. Else as soon as at most `hold` ms remain, which the bridge's window waits out.
    """
    if due - now <= (0 if strict else hold):
        return None
    return first_hop(due, now)


def wake(level: Level, appended: int, due: int) -> int:
    """Return when a record that lies in a level since `appended` has to be looked at again."""
    return min(due, appended + level.dwell) if level.dwell else due
