"""Which offsets a batch covers: the planner of every source. Pure; `range_source.py` drives it.

An offset of such a source is one JSON object, by log: `[begin, next]`, or `[begin, next, start, end]` where that plan
found `[start, end)` gone. `begin` is where the log was first planned to begin, so that the ranges between two offsets
follow from the two alone. `end` null: the log itself is gone. Keys are sorted, because Spark compares the text: the
same offset with another order of keys gave endless empty batches.
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
    lost: tuple[int, int | None] | None = None


class Split(NamedTuple):
    """What one task reads of one log."""

    log: str
    start: int
    end: int


Offset = Mapping[str, Position]


def to_json(offset: Offset) -> dict[str, list[int | None]]:
    """Return what Spark keeps of an offset."""
    return {log: [position.begin, position.next, *(position.lost or ())] for log, position in sorted(offset.items())}


def from_json(fields: Mapping[str, Sequence[Any]]) -> dict[str, Position]:
    """Return what `to_json` was given."""
    return {
        log: Position(begin, end, (lost[0], lost[1]) if lost else None) for log, (begin, end, *lost) in fields.items()
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
    """Return the gaps found by the plan that led to `after`."""
    new = (log for log, position in after.items() if position != before.get(log))
    return [Gap(log, *lost) for log in new if (lost := after[log].lost) is not None]


def plan(before: Offset, bounds: Ranges, start: Mapping[str, int], limit: int | None) -> dict[str, Position]:
    """Return the next offset, from the first offset kept and the next one of every log that there is.

    At most `limit` offsets further, shared out so that the shortest backlogs come first and no log waits forever.
    It never goes back: a log that ends before its place stays where it is. A log that is new while others are known
    was made meanwhile, so its beginning is 0; else it begins as `start` says, or with the oldest there is.
    """
    positions = existing(before)
    after = {log: Position(p.begin, p.next, (p.next, None)) for log, p in positions.items() if log not in bounds}
    backlog: dict[str, int] = {}
    for log, (first, end) in bounds.items():
        begin = start.get(log, 0 if before else first)
        position = positions.get(log) or Position(begin, begin)
        lost = (position.next, first) if first > position.next else None
        position = Position(position.begin, max(position.next, first), lost)
        # a log without anything yet is left out: another text would be another batch
        if log in positions or position.next > position.begin or end > position.next:
            after[log] = position
            backlog[log] = max(end - position.next, 0)
    for log, share in _shares(backlog, limit).items():
        position = after[log]
        after[log] = position._replace(next=position.next + share)
    return _kept_as_is(before, after)


def existing(offset: Offset) -> dict[str, Position]:
    """Leave out the logs that were found gone: one that comes again under the same name is a new one."""
    return {log: position for log, position in offset.items() if not ended(position)}


def ended(position: Position) -> bool:
    """Whether the log was found gone."""
    return position.lost is not None and position.lost[1] is None


def _kept_as_is(before: Offset, after: dict[str, Position]) -> dict[str, Position]:
    """Keep what was reported of a gap until there is something else to report: without news the text is the same."""
    news = any(
        log not in before or position.next != before[log].next or ended(position) for log, position in after.items()
    )
    return after if news else dict(before)


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
