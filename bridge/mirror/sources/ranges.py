"""Which offsets a batch covers: the planner of the sources that are written in Python. Pure; `reader.py` drives it.

An offset of such a source is one JSON object, by log: `[begin, next]`, or `[begin, next, start, end]` where that plan
found `[start, end)` gone. `begin` is where the log was first planned to begin, so that what lies between two offsets
is known from the two alone. `end` null: the log itself is gone. Keys are sorted, because Spark compares the text: the
same offset with another order of keys gave endless empty batches.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from bridge.mirror.offsets import Gap, Ranges

LEAST: Final = 2_000
"""Offsets below which a range is not split: opening it in one more task costs more than reading it."""


class Place(NamedTuple):
    """How far one log is planned."""

    begin: int
    next: int
    lost: tuple[int, int | None] | None = None


class Piece(NamedTuple):
    """What one task reads of one log."""

    log: str
    start: int
    end: int


Offset = Mapping[str, Place]


def to_json(offset: Offset) -> dict[str, list[int | None]]:
    """Return what Spark keeps of an offset."""
    return {log: [place.begin, place.next, *(place.lost or ())] for log, place in sorted(offset.items())}


def from_json(fields: Mapping[str, Sequence[Any]]) -> dict[str, Place]:
    """Return what `to_json` was given."""
    return {log: Place(begin, end, (lost[0], lost[1]) if lost else None) for log, (begin, end, *lost) in fields.items()}


def read(text: str | None) -> dict[str, Place]:
    """Return an offset as Spark's checkpoint and progress hold it; None is the one before the first."""
    return from_json(json.loads(text) or {}) if text else {}  # Spark's progress writes null for the first


def moved(before: Offset, after: Offset) -> Ranges:
    """Return what lies between two offsets, gaps included."""
    known = _living(before)
    new = {log: place for log, place in after.items() if place != before.get(log)}
    starts = {log: known[log].next if log in known else place.begin for log, place in new.items()}
    return {log: (starts[log], place.next) for log, place in new.items() if place.next > starts[log]}


def gaps(before: Offset, after: Offset) -> list[Gap]:
    """Return what the plan that led to `after` found gone."""
    new = (log for log, place in after.items() if place != before.get(log))
    return [Gap(log, *lost) for log in new if (lost := after[log].lost) is not None]


def plan(before: Offset, bounds: Ranges, start: Mapping[str, int], limit: int | None) -> dict[str, Place]:
    """Return the next offset, from the first offset kept and the next one of every log that there is.

    At most `limit` offsets further, shared out so that the shortest backlogs come first and no log waits forever.
    It never goes back: a log that ends before its place stays where it is. A log that is new while others are known
    was made meanwhile, so its beginning is 0; else it begins as `start` says, or with the oldest there is.
    """
    places = _living(before)
    after = {log: Place(p.begin, p.next, (p.next, None)) for log, p in places.items() if log not in bounds}
    backlog: dict[str, int] = {}
    for log, (first, end) in bounds.items():
        begin = start.get(log, 0 if before else first)
        place = places.get(log) or Place(begin, begin)
        lost = (place.next, first) if first > place.next else None
        place = Place(place.begin, max(place.next, first), lost)
        # a log without anything yet is left out: another text would be another batch
        if log in places or place.next > place.begin or end > place.next:
            after[log] = place
            backlog[log] = max(end - place.next, 0)
    for log, share in _shares(backlog, limit).items():
        place = after[log]
        after[log] = place._replace(next=place.next + share)
    return _kept_as_is(before, after)


def _living(offset: Offset) -> dict[str, Place]:
    """Leave out the logs that were found gone: one that comes again under the same name is a new one."""
    return {log: place for log, place in offset.items() if not _ended(place)}


def _ended(place: Place) -> bool:
    return place.lost is not None and place.lost[1] is None


def _kept_as_is(before: Offset, after: dict[str, Place]) -> dict[str, Place]:
    """Keep what was reported of a gap until there is something else to report: without news the text is the same."""
    news = any(log not in before or place.next != before[log].next or _ended(place) for log, place in after.items())
    return after if news else dict(before)


def _shares(backlog: Mapping[str, int], limit: int | None) -> dict[str, int]:
    if limit is None or sum(backlog.values()) <= limit:
        return dict(backlog)
    shares = {}
    left = limit
    waiting = [log for log in sorted(backlog, key=lambda log: (backlog[log], log)) if backlog[log]]
    for place, log in enumerate(waiting):
        shares[log] = min(backlog[log], -(-left // (len(waiting) - place)))
        left -= shares[log]
    return shares


def capped(bounds: Ranges, target: Ranges) -> Ranges:
    """Return the bounds as if nothing had come after `target` was taken."""
    return {log: (first, min(end, target[log][1])) for log, (first, end) in bounds.items() if log in target}


def split(ranges: Ranges, tasks: int, least: int = LEAST) -> list[tuple[Piece, ...]]:
    """Share ranges out among at most `tasks` (>= 1) tasks of nearly the same number of offsets.

    Many logs in one task: a task costs some milliseconds even when it has next to nothing to read.
    """
    total = sum(end - start for start, end in ranges.values())
    room = max(-(-total // tasks), least)
    pieces: list[tuple[Piece, ...]] = []
    mine: list[Piece] = []
    left = room
    for log, (start, end) in sorted(ranges.items()):
        at = start
        while at < end:
            upto = min(end, at + left)
            mine.append(Piece(log, at, upto))
            left -= upto - at
            at = upto
            if not left:
                pieces.append(tuple(mine))
                mine, left = [], room
    return [*pieces, tuple(mine)] if mine else pieces


def describe(losses: Iterable[Gap]) -> str:
    """Name what is gone, for people: the first ten."""
    names = [
        f"{gap.log} from {gap.start} on" if gap.end is None else f"{gap.log} from {gap.start} to {gap.end - 1}"
        for gap in losses
    ]
    return "; ".join(names[:10]) + (f"; and {len(names) - 10} more" if len(names) > 10 else "")  # noqa: PLR2004
