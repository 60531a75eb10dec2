"""Upkeep of the tables, through delta-rs: compaction of closed hours, retention, removal of old files. Needs no JVM.

Each change is one commit, made beside a running job: Delta's log orders them, and a change that conflicts with another
is tried again. Every commit repeats the newest `Record` of the offsets, so that Delta, which deletes old commits from
its log, never deletes the last one that has it.
"""

import json
from collections.abc import Callable, Collection, Iterator
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar

from deltalake import ColumnProperties, CommitProperties, DeltaTable, WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError

from bridge.errors import CannotStart
from bridge.mirror import query
from bridge.mirror.offsets import to_json
from bridge.mirror.query import connect, one_of, quoted
from bridge.mirror.schema import AREAS, Area
from bridge.mirror.table import HOUR, MESSAGES, NAMES, File, Hour, Name, Table, one_line

RETENTION: Final = timedelta(days=7)
"""How long files that no longer belong to the table are kept: for readers and for `query --as-of`."""
T = TypeVar("T")
_GROUP_ROWS: Final = 65_536
_TRIES: Final = 5
_WRITER: Final = WriterProperties(
    compression="ZSTD",
    compression_level=3,
    max_row_group_size=_GROUP_ROWS,
    column_properties={
        "message_id": ColumnProperties(dictionary_enabled=False),  # each value occurs once
        "body": ColumnProperties(dictionary_enabled=False),
    },
)


class Compacted(NamedTuple):
    """One hour after its compaction."""

    hour: Hour
    rows: int
    removed: int
    removed_bytes: int
    added: int
    added_bytes: int


class Rule(NamedTuple):
    """Which rows `prune` deletes."""

    keep: timedelta
    areas: Collection[Area] = AREAS
    destinations: Collection[str] = ()
    """Empty: all."""
    today: bool = False
    """Whether hours of the current day (UTC) may be deleted too."""


class Pruned(NamedTuple):
    """What a change deletes of one hour."""

    hour: Hour
    rows: int


def compact(out: str, closed: datetime, target: int) -> Iterator[Compacted]:
    """Compact the hours that ended by `closed`, the oldest first, into files of at most about `target` bytes.

    An hour is rewritten, sorted by destination, if it has two or more files smaller than half of `target`.
    """
    for name in NAMES:
        for hour, files in Table.require(out, name).hours().items():
            small = [file for file in files if file.bytes < target // 2]
            if hour.ended(closed) and len(small) > 1:
                yield _compact(out, hour, files, target)


def due(out: str, rule: Rule, now: datetime) -> Iterator[Pruned]:
    """Yield what `prune` would delete, hour by hour, the oldest first."""
    for name in NAMES:
        condition = _condition(name, rule)
        if condition is None:
            continue
        for hour, rows in _rows(out, name, condition).items():
            if rows and hour.ended(now - rule.keep) and (rule.today or hour.date < f"{now:%Y-%m-%d}"):
                yield Pruned(hour, rows)


def prune(out: str, rule: Rule, now: datetime) -> Iterator[Pruned]:
    """Delete the rows that are old enough, hour by hour, and yield what was deleted.

    Their offsets stay recorded, so they are not mirrored again. Their files are removed by `vacuum`.
    """
    for going in list(due(out, rule, now)):
        _delete(out, going.hour, f"{_condition(going.hour.table, rule)}")
        yield going


def vacuum(out: str, retention: timedelta = RETENTION) -> int:
    """Remove files that left the tables longer than `retention` ago, and what killed writers left behind.

    Returns how many. Versions older than that can no longer be read.
    """
    hours = int(retention / HOUR)

    def remove(table: DeltaTable, metadata: CommitProperties) -> list[str]:
        return table.vacuum(
            hours, dry_run=False, enforce_retention_duration=False, full=True, commit_properties=metadata
        )

    return sum(len(_change(out, name, remove)) for name in NAMES)


def _compact(out: str, hour: Hour, files: list[File], target: int) -> Compacted:
    def sort(table: DeltaTable, metadata: CommitProperties) -> dict[str, Any]:
        return table.optimize.z_order(
            ["destination"],
            partition_filters=[("date", "=", hour.date), ("hour", "=", hour.hour)],
            target_size=target,
            writer_properties=_WRITER,
            commit_properties=metadata,
        )

    done = _change(out, hour.table, sort)
    removed, added = (json.loads(done[name])["totalSize"] for name in ("filesRemoved", "filesAdded"))
    rows = sum(file.rows for file in files)
    return Compacted(hour, rows, done["numFilesRemoved"], removed, done["numFilesAdded"], added)


def _delete(out: str, hour: Hour, condition: str) -> None:
    where = f"date = {quoted(hour.date)} AND hour = {quoted(hour.hour)} AND {condition}"
    _change(out, hour.table, lambda table, metadata: table.delete(where, _WRITER, commit_properties=metadata))


def _change(out: str, name: Name, change: Callable[[DeltaTable, CommitProperties], T]) -> T:
    """Make a change; again if another commit came in between. Raises `CannotStart`."""
    tries = 0
    while True:
        table, tries = Table.require(out, name), tries + 1
        record = table.record()
        metadata = CommitProperties(custom_metadata=None if record is None else {"userMetadata": to_json(record)})
        try:
            return change(table.delta, metadata)
        except DeltaError as error:
            if tries == _TRIES or not isinstance(error, CommitFailedError):
                raise CannotStart(f"{name}: the table could not be changed: {one_line(error)}") from None


def _condition(name: Name, rule: Rule) -> str | None:
    """Return which rows of a table the rule means, as SQL; None: none of them."""
    areas = query.AREAS if name == MESSAGES else {"quarantine": "true"}
    chosen = [sql for area, sql in areas.items() if area in rule.areas]
    if not chosen:
        return None
    area = chosen[0] if len(chosen) == 1 else "true"
    return f"{area} AND {one_of('destination', rule.destinations)}" if rule.destinations else area


def _rows(out: str, name: Name, condition: str) -> dict[Hour, int]:
    if condition == "true":
        return {hour: sum(file.rows for file in files) for hour, files in Table.require(out, name).hours().items()}
    with connect(out) as connection:
        counts = f"SELECT date, hour, count(*) FROM {name} WHERE {condition} GROUP BY ALL ORDER BY ALL"  # noqa: S608
        return {Hour(name, date, hour): rows for date, hour, rows in connection.execute(counts).fetchall()}
