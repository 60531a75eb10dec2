"""Where a delayed record waits: a ladder of topics, in each of which every record stays equally long.

It waits until it is to be forwarded: when it is due, or `Options.forwarded_early` before that.
So the records of a level wake in the order of their offsets, and the forwarder looks at
the first of each partition only. Pure: times are milliseconds since 1970 and come from the caller.

A record enters the level with the longest dwell that leaves `SPARE` of what remains, then the next smaller ones. Each
dwell is eight times the one below, so a level is entered at most 7 times, the highest 15 times for 366 days, `due`
once: at most 65 topics on the way, however late a forwarder is.

The destination and the times of a record travel in its headers.
"""

from contextlib import suppress
from typing import Final, NamedTuple

from adapters.kafka.headers import AGAIN, DUE_AT, FIRST, PARTITION, STORED, TOPIC
from adapters.kafka.record import Outgoing, Part, Record


class Level(NamedTuple):
    """One delay topic."""

    name: str
    """For `names.Own.delay`."""
    dwell: int
    """How long a record stays, ms; 0: until it is forwarded."""


DUE: Final = Level("due", 0)
"""The last stretch, below two seconds: records lie there in no order of time."""
SPARE: Final = 500
"""What a dwell leaves before a record is forwarded, ms. Records of one key that are due together may come over
different levels; so they meet in the last one, and go in the order in which they were published."""
_SHORTEST: Final = 1000
LEVELS: Final = (*(Level(f"{8**power}s", _SHORTEST * 8**power) for power in reversed(range(8))), DUE)
"""From the longest dwell to none."""


def first_hop(goal: int, now: int) -> Level:
    """Return the level a record enters: the longest dwell that ends `SPARE` before it is to be forwarded."""
    remaining = goal - now
    for level in LEVELS:
        if level.dwell + SPARE <= remaining:
            return level
    return DUE


def next_hop(goal: int, now: int) -> Level | None:
    """Return where a record goes now; None: to its destination."""
    return first_hop(goal, now) if goal > now else None


def wake(level: Level, appended: int, goal: int) -> int:
    """Return when a record that lies in a level since `appended` has to be looked at again.

    In the last stretch that is when it is forwarded, unless the clock was set back meanwhile: then it has to leave.
    """
    return min(goal, appended + (level.dwell or _SHORTEST + SPARE))


_OWN: Final = frozenset((DUE_AT, TOPIC, PARTITION, AGAIN, FIRST))
_DIGITS_MAX: Final = 19


class Waiting(NamedTuple):
    """What a record of a delay topic says about itself. Times are milliseconds since 1970."""

    final: Part
    due: int
    again: int = 0
    """When to try again what could not be forwarded; 0: it was not tried yet."""


def to_delayed(outgoing: Outgoing, due: int, part: Part) -> Outgoing:
    """Turn a record for its destination into one for a partition of a delay topic.

    Its storeTimestamp goes into a header, as the record's own timestamp will be when it is forwarded.
    """
    headers = [
        *outgoing.headers,
        (STORED, b"%d" % outgoing.timestamp),
        (DUE_AT, b"%d" % due),
        (TOPIC, outgoing.topic.encode()),
        (PARTITION, b"%d" % outgoing.partition),
    ]
    return Outgoing(part.topic, part.partition, outgoing.timestamp, outgoing.key, outgoing.value, headers)


def waiting_of(record: Record) -> Waiting | None:
    """Read where a record of a delay topic goes and when; None: the bridge did not write it."""
    found = dict(record.headers)
    due, topic, partition, again = (found.get(name, b"") for name in (DUE_AT, TOPIC, PARTITION, AGAIN))
    if not (_is_number(due) and _is_number(partition) and topic):
        return None
    try:
        return Waiting(Part(topic.decode(), int(partition)), int(due), int(again) if _is_number(again) else 0)
    except UnicodeDecodeError:
        return None


def stored_at(record: Record) -> int:
    """Return when the message was published, ms since 1970; 0: the record does not say."""
    value = next((value for name, value in reversed(record.headers) if name == STORED), b"")
    return int(value) if _is_number(value) else 0


def first_place(record: Record) -> tuple[Part, int]:
    """Return the partition of a delay topic where a record was stored first, and its offset there."""
    value = next((value for name, value in record.headers if name == FIRST), b"")
    with suppress(ValueError):  # no header, or not the bridge's
        topic, partition, offset = value.decode().split()
        return Part(topic, int(partition)), int(offset)
    return Part(record.topic, record.partition), record.offset


def onward(record: Record, part: Part, now: int, again: int = 0) -> Outgoing:
    """Move a record to a partition of a delay topic; `now` becomes its timestamp, from which it stays there."""
    headers = [header for header in record.headers if header[0] != AGAIN]
    if again:
        headers.append((AGAIN, b"%d" % again))
    if all(name != FIRST for name, _ in headers):
        headers.append((FIRST, b"%s %d %d" % (record.topic.encode(), record.partition, record.offset)))
    return Outgoing(part.topic, part.partition, now, record.key, record.value or b"", headers)


def from_delayed(record: Record, final: Part, now: int) -> Outgoing:
    """Turn a record of a delay topic into the one for its destination; `now` becomes its timestamp."""
    headers = [header for header in record.headers if header[0] not in _OWN]
    return Outgoing(final.topic, final.partition, now, record.key, record.value or b"", headers)


def _is_number(raw: bytes) -> bool:
    return raw.isdigit() and len(raw) <= _DIGITS_MAX
