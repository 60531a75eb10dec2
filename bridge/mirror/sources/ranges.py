"""Which offsets a batch covers: the planner of every source. Pure; `range_source.py` drives it.

An offset of such a source is one JSON object, by log: `[begin, next, end]`, or `[begin, next, end, start, stop]` if
that plan found `[start, stop)` gone. `begin` is where the log was first planned to begin, so that the ranges between
two offsets follow from the two alone. `end` is where the log ended then. `stop` null: the log itself is gone. Keys are
sorted, because Spark compares the text: the same offset with another order of keys gave endless empty batches.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from bridge.mirror.offsets import Gap, Ranges

MINIMUM: Final = 2_000
"""Offsets below which a range is not split: opening it in one more task costs more than reading it."""


class Position(NamedTuple):
    """How far one log is planned."""

    begin: int
    next: int
    end: int
    """Where the log ended when this was planned; more than `next` if the batch was limited."""
    lost: tuple[int, int | None] | None = None


class Split(NamedTuple):
    """What one task reads of one log."""

    log: str
    start: int
    end: int


Offset = Mapping[str, Position]


def to_json(offset: Offset) -> dict[str, list[int | None]]:
    """Return what Spark keeps of an offset."""
    return {log: [*position[:3], *(position.lost or ())] for log, position in sorted(offset.items())}


def from_json(fields: Mapping[str, Sequence[Any]]) -> dict[str, Position]:
    """Return what `to_json` was given."""
    return {
        log: Position(begin, next_, end, (lost[0], lost[1]) if lost else None)
        for log, (begin, next_, end, *lost) in fields.items()
    }


def read(text: str | None) -> dict[str, Position]:
    """Return an offset as Spark's checkpoint and progress hold it; None is the one before the first."""
    return from_json(json.loads(text) or {}) if text else {}  # Spark's progress writes null for the first


def moved(before: Offset, after: Offset) -> Ranges:
    """Return the ranges between two offsets, gaps included."""
    known = existing(before)
    new = {log: position for log, position in after.items() if position != before.get(log)}
    starts = {log: known[log].next if log in known else position.begin for log, position in new.items()}
    return {log: (starts[log], position.next) for log, position in new.items() if position.next > starts[log]}


def gaps(before: Offset, after: Offset) -> list[Gap]:
    """Return the gaps found by the plan that led to `after`. A log that is gone is none if it was read to its end."""
    new = ((log, position) for log, position in after.items() if position != before.get(log))
    return [
        Gap(log, *position.lost)
        for log, position in new
        if position.lost is not None and (not ended(position) or position.end > position.next)
    ]


def plan(
    before: Offset, bounds: Ranges, start: Mapping[str, int], limit: int | None, *, lost_unread: bool = False
) -> dict[str, Position]:
    """Return the next offset, from the first offset kept and the next one of every log that there is.

    At most `limit` offsets further, shared out so that the shortest backlogs come first and no log waits forever.
    It never goes back: a log that ends before its place stays where it is. A log that is new while others are known
    was made meanwhile, so its beginning is 0; else it begins as `start` says, or with the oldest there is. With
    `lost_unread` a log that is gone always is a gap: it is taken to have held more than the last plan saw.
    """
    positions = existing(before)
    after = {
        log: p._replace(lost=(p.next, None), end=max(p.end, p.next + lost_unread))
        for log, p in positions.items()
        if log not in bounds
    }
    backlog: dict[str, int] = {}
    for log, (first, end) in bounds.items():
        begin = start.get(log, 0 if before else first)
        position = positions.get(log) or Position(begin, begin, begin)
        lost = (position.next, first) if first > position.next else None
        reached = max(position.next, first)
        after[log] = Position(position.begin, reached, max(end, reached), lost)
        backlog[log] = max(end - reached, 0)
    for log, share in _shares(backlog, limit).items():
        position = after[log]
        after[log] = position._replace(next=position.next + share)
    return after if _has_news(before, after) else dict(before)


def existing(offset: Offset) -> dict[str, Position]:
    """Leave out the logs that were found gone: one that comes again under the same name is a new one."""
    return {log: position for log, position in offset.items() if not ended(position)}


def ended(position: Position) -> bool:
    """Whether the log was found gone."""
    return position.lost is not None and position.lost[1] is None


def _has_news(before: Offset, after: Offset) -> bool:
    """Whether a batch follows: another text would be one. A log without anything yet joins the next batch."""
    known = existing(before)
    return any(
        ended(position) or position.next > (known[log].next if log in known else position.begin)
        for log, position in after.items()
    )


def _shares(backlog: Mapping[str, int], limit: int | None) -> dict[str, int]:
    if limit is None or sum(backlog.values()) <= limit:
        return dict(backlog)
    shares = {}
    left = limit
    waiting = [log for log in sorted(backlog, key=lambda log: (backlog[log], log)) if backlog[log]]
    for position, log in enumerate(waiting):
        shares[log] = min(backlog[log], -(-left // (len(waiting) - position)))
        left -= shares[log]
    return shares


def capped(bounds: Ranges, target: Ranges) -> Ranges:
    """Return the bounds as if nothing had come after `target` was taken."""
    return {log: (first, min(end, target[log][1])) for log, (first, end) in bounds.items() if log in target}


def split(ranges: Ranges, tasks: int, minimum: int = MINIMUM) -> list[tuple[Split, ...]]:
    """Share ranges out among at most `tasks` (>= 1) tasks of nearly the same number of offsets.

    Many logs in one task: a task costs some milliseconds even when it has next to nothing to read.
    """
    total = sum(end - start for start, end in ranges.values())
    size = max(-(-total // tasks), minimum)
    splits: list[tuple[Split, ...]] = []
    current: list[Split] = []
    left = size
    for log, (start, end) in sorted(ranges.items()):
        at = start
        while at < end:
            stop = min(end, at + left)
            current.append(Split(log, at, stop))
            left -= stop - at
            at = stop
            if not left:
                splits.append(tuple(current))
                current, left = [], size
    return [*splits, tuple(current)] if current else splits


def describe(losses: Iterable[Gap]) -> str:
    """Describe gaps for people: the first ten."""
    names = [
        f"{gap.log} from {gap.start} on" if gap.end is None else f"{gap.log} from {gap.start} to {gap.end - 1}"
        for gap in losses
    ]
    return "; ".join(names[:10]) + (f"; and {len(names) - 10} more" if len(names) > 10 else "")  # noqa: PLR2004
