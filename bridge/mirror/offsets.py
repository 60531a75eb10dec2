"""The record of offsets that each commit carries, to JSON and from JSON. Pure.

Every commit of a batch carries one `Record` as its metadata, which says where a new query has to begin. Most hold only
the logs that moved: `complete` puts the newest together from them, back to one that holds all logs.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

Ranges = Mapping[str, tuple[int, int]]
"""By log: the first offset, and the one after the last. A range may hold fewer messages than offsets."""

GAPS: Final = 1000
"""Gaps that a record holds at most: the newest ones."""
_VERSION: Final = 1


def backlog(bounds: Ranges, next_: Mapping[str, int]) -> dict[str, int]:
    """Return how many offsets each log is behind, without logs that are not; `next_` is where each is to go on."""
    behind = {log: end - max(first, next_.get(log, 0)) for log, (first, end) in bounds.items()}
    return {log: offsets for log, offsets in behind.items() if offsets > 0}


class Gap(NamedTuple):
    """Offsets that were gone before the mirror read them."""

    log: str
    start: int
    end: int | None
    """The first offset after the gap; None: the log was deleted, and its end is unknown."""


class Record(NamedTuple):
    """What the mirror holds after a batch."""

    query: str = ""
    """Id of the streaming query, from its checkpoint."""
    batch: int = -1
    """Number of the batch in that query; -1: before the first."""
    written: int = 0
    """When, ms since 1970."""
    covered: Ranges = MappingProxyType({})
    """By log, all that was read: from the first offset to the one after the last, gaps included."""
    gaps: tuple[Gap, ...] = ()
    """At most `GAPS`, the newest last."""
    sequence: int = 0
    """Number of the commit over all queries; 0: before the first."""
    is_whole: bool = True
    """Whether `covered` holds all logs; else only those of this batch."""

    @property
    def key(self) -> tuple[str, int, int, int]:
        """What no other record shares."""
        return self.query, self.batch, self.written, self.sequence

    @property
    def next(self) -> dict[str, int]:
        """By log, where a new query begins."""
        return {log: end for log, (_, end) in self.covered.items()}

    def overlap(self, ranges: Ranges) -> tuple[str, int, int] | None:
        """Return a log, and the range of a new batch that is held already."""
        for log, (start, end) in ranges.items():
            held = self.covered.get(log)
            if held and max(start, held[0]) < min(end, held[1]):
                return log, max(start, held[0]), min(end, held[1])
        return None

    def after(self, query: str, batch: int, written: int, ranges: Ranges, gaps: Sequence[Gap]) -> Self:
        """Return the record after one more batch."""
        covered = dict(self.covered)
        for log, (start, end) in ranges.items():
            covered[log] = (min(start, covered.get(log, (start, end))[0]), end)
        return type(self)(query, batch, written, covered, self._gaps_with(gaps), self.sequence + 1)

    def with_gaps(self, gaps: Sequence[Gap]) -> Self:
        """Return the record after the same batch, in which more gaps were found."""
        return self._replace(gaps=self._gaps_with(gaps), sequence=self.sequence + 1)

    def _gaps_with(self, gaps: Sequence[Gap]) -> tuple[Gap, ...]:
        return (*self.gaps, *gaps)[-GAPS:]


def complete(records: Iterable[Record]) -> Record | None:
    """Return the newest of some records, the newest first, with all logs; None: none of them is whole."""
    newest, covered = None, dict[str, tuple[int, int]]()
    for record in records:
        newest, covered = newest or record, {**record.covered, **covered}
        if record.is_whole:
            return newest._replace(covered=covered, is_whole=True)
    return None


def to_json(record: Record, logs: Collection[str] | None = None) -> str:
    """Write a record with some of its logs; None: with all."""
    covered = sorted((log, pair) for log, pair in record.covered.items() if logs is None or log in logs)
    fields = record._asdict() | {"covered": dict(covered), "is_whole": logs is None}
    return json.dumps({"oms-mirror": _VERSION, **fields}, separators=(",", ":"))


def from_json(text: str | None) -> Record | None:
    """Read a record; None: the text is the metadata of another program. Raises `ValueError` for a later version."""
    try:
        fields: Any = json.loads(text or "null")
        version = fields.pop("oms-mirror")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if version != _VERSION:
        raise ValueError("it was written by a later version of the mirror")
    covered = {log: (start, end) for log, (start, end) in fields["covered"].items()}
    return Record(**fields | {"covered": covered, "gaps": tuple(Gap(*gap) for gap in fields["gaps"])})
