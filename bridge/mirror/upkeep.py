"""Upkeep of the tables, through delta-rs: compaction of closed hours, retention, removal of old files. Needs no JVM.

Each change is one commit, made beside a running job: Delta's log orders them, and a change that conflicts with another
is tried again. Every commit repeats the newest `Record` of the offsets, so that Delta, which deletes old commits from
its log, never deletes the last one that has it.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from deltalake import ColumnProperties, CommitProperties, WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError

from bridge.errors import CannotStart
from bridge.mirror.offsets import to_json
from bridge.mirror.query import DEAD_LETTER, connect, quoted
from bridge.mirror.schema import AREAS, Area
from bridge.mirror.table import HOUR, MESSAGES, NAMES, File, Name, Table, shown

RETENTION: Final = timedelta(days=7)
"""How long files that no longer belong to the table are kept: for readers and for `query --as-of`."""
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


class Hour(NamedTuple):
    """One partition of a table."""

    table: Name
    date: str
    hour: str

    @property
    def path(self) -> str:
        """Its folder, relative to the mirror."""
        return f"{self.table}/date={self.date}/hour={self.hour}"


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
        hours = _hours(out, name)
        for hour, files in sorted(hours.items()):
            small = [file for file in files if file.bytes < target // 2]
            if files[0].end <= closed and len(small) > 1:
                yield _compact(out, hour, files, target)


def due(out: str, rule: Rule, now: datetime) -> Iterator[Pruned]:
    """Yield what `prune` would delete, hour by hour, the oldest first."""
    for name in NAMES:
        condition = _condition(name, rule)
        if condition is None:
            continue
        rows = _rows(out, name, condition)
        for hour, files in sorted(_hours(out, name).items()):
            old = files[0].end <= now - rule.keep and (rule.today or hour.date < f"{now:%Y-%m-%d}")
            if old and rows.get(hour):
                yield Pruned(hour, rows[hour])


def prune(out: str, rule: Rule, now: datetime) -> Iterator[Pruned]:
    """Delete the rows that are old enough, hour by hour, and yield what was deleted.

    Their offsets stay recorded, so they are not mirrored again. Their files are removed by `vacuum`.
    """
    for going in list(due(out, rule, now)):
        condition = _condition(going.hour.table, rule)
        _change(out, going.hour.table, partial(_delete, predicate=f"{_where(going.hour)} AND {condition}"))
        yield going


def vacuum(out: str, retention: timedelta = RETENTION) -> int:
    """Remove files that left the tables longer than `retention` ago, and what killed writers left behind.

    Returns how many. Versions older than that can no longer be read.
    """
    hours = int(retention / HOUR)
    removed = 0
    for name in NAMES:
        if (table := Table.open(out, name)) is not None:
            paths = table.delta.vacuum(
                hours, dry_run=False, enforce_retention_duration=False, full=True, commit_properties=_metadata(table)
            )
            removed += len(paths)
    return removed


def _hours(out: str, name: Name) -> dict[Hour, list[File]]:
    found: defaultdict[Hour, list[File]] = defaultdict(list)
    table = Table.require(out) if name == MESSAGES else Table.open(out, name)
    for file in () if table is None else table.files():
        found[Hour(name, file.date, file.hour)].append(file)
    return found


def _compact(out: str, hour: Hour, files: list[File], target: int) -> Compacted:
    partition = [("date", "=", hour.date), ("hour", "=", hour.hour)]

    done = _change(out, hour.table, partial(_sort, partition=partition, target=target))
    removed, added = (json.loads(done[name])["totalSize"] for name in ("filesRemoved", "filesAdded"))
    rows = sum(file.rows for file in files)
    return Compacted(hour, rows, done["numFilesRemoved"], removed, done["numFilesAdded"], added)


def _sort(table: Table, partition: list[tuple[str, str, str]], target: int) -> dict[str, Any]:
    return table.delta.optimize.z_order(
        ["destination"],
        partition_filters=partition,
        target_size=target,
        writer_properties=_WRITER,
        commit_properties=_metadata(table),
    )


def _delete(table: Table, predicate: str) -> dict[str, Any]:
    return table.delta.delete(predicate, writer_properties=_WRITER, commit_properties=_metadata(table))


def _change(out: str, name: Name, change: Callable[[Table], dict[str, Any]]) -> dict[str, Any]:
    """Make a change; again if another commit came in between. Raises `CannotStart`."""
    for tried in range(1, _TRIES + 1):
        table = Table.open(out, name)
        if table is None:
            break
        try:
            return change(table)
        except CommitFailedError:
            if tried == _TRIES:
                raise
        except DeltaError as error:
            raise CannotStart(f"{name}: the table could not be changed: {error}") from None
    raise CannotStart(f"There is no table {name} in {shown(out)} any more.")


def _metadata(table: Table) -> CommitProperties:
    record = table.record()
    return CommitProperties(custom_metadata=None if record is None else {"userMetadata": to_json(record)})


def _condition(name: Name, rule: Rule) -> str | None:
    """Return which rows of a table the rule means, as SQL; None: none of them."""
    areas = {"data", "dead-letters"} if name == MESSAGES else {"quarantine"}
    chosen = areas.intersection(rule.areas)
    if not chosen:
        return None
    parts = ["true"]
    if chosen == {"data"}:
        parts.append(f"NOT {DEAD_LETTER}")
    if chosen == {"dead-letters"}:
        parts.append(DEAD_LETTER)
    if rule.destinations:
        parts.append(f"destination IN ({', '.join(quoted(destination) for destination in rule.destinations)})")
    return " AND ".join(parts)


def _where(hour: Hour) -> str:
    return f"date = {quoted(hour.date)} AND hour = {quoted(hour.hour)}"


def _rows(out: str, name: Name, condition: str) -> dict[Hour, int]:
    if condition == "true":
        return {hour: sum(file.rows for file in files) for hour, files in _hours(out, name).items()}
    with connect(out) as connection:
        counts = f"SELECT date, hour, count(*) FROM {name} WHERE {condition} GROUP BY ALL"  # noqa: S608 - quoted
        return {Hour(name, date, hour): rows for date, hour, rows in connection.execute(counts).fetchall()}
