"""Upkeep of the tables, through delta-rs: compaction, retention, erasure, removal of old files. Needs no JVM.

Each change is one commit, made beside a running job: Delta's log orders them, and a change that conflicts with another
is tried again. Every commit repeats the newest `Record` of the offsets, so that Delta, which deletes old commits from
its log, never deletes the last one that has it.
"""

import json
from collections.abc import Callable, Collection, Iterator
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa
from deltalake import ColumnProperties, CommitProperties, DeltaTable, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from bridge.errors import CannotStart
from bridge.mirror import parquet_export, query
from bridge.mirror.parquet_export import Exported
from bridge.mirror.query import connect, one_of, quoted, sandbox
from bridge.mirror.schema import AREAS, PARTITION, Area
from bridge.mirror.table import MESSAGES, NAMES, Day, Name, Table, one_line

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
        "json": ColumnProperties(dictionary_enabled=False),
    },
)


class Compacted(NamedTuple):
    """One day after its compaction."""

    day: Day
    removed: int
    removed_bytes: int
    added: int
    added_bytes: int


class Rule(NamedTuple):
    """Which rows `prune` deletes."""

    keep: timedelta
    """Only of days that ended longer ago than this; zero: of all days, the current one too."""
    areas: Collection[Area] = AREAS
    destinations: Collection[str] = ()
    """Empty: all."""
    where: str | None = None
    """A condition in DuckDB's SQL; None: all."""


class Pruned(NamedTuple):
    """What a change deletes of one day."""

    day: Day
    rows: int


def compact(out: str, closed: datetime, target: int) -> Iterator[Compacted]:
    """Merge small files, day by day, the oldest first, into files of at most about `target` bytes.

    A day is left alone until it has two files smaller than half of `target` whose rows were mirrored by `closed`. The
    files of a day that has ended are rewritten, sorted by destination.
    """
    for name in NAMES:
        for day, files in Table.require(out, name).days().items():
            small = [file for file in files if file.bytes < target // 2 and file.mirrored <= closed]
            if len(small) > 1:
                yield _compact(out, day, target, sort=day.ended(closed))


def due(out: str, rule: Rule, now: datetime) -> Iterator[Pruned]:
    """Yield what `prune` would delete, day by day, the oldest first. Raises `CannotStart` for a wrong condition."""
    for name in NAMES:
        condition = _condition(name, rule)
        if condition is None:
            continue
        for day, rows in _rows(out, name, condition).items():
            if rows and (not rule.keep or day.ended(now - rule.keep)):
                yield Pruned(day, rows)


def prune(out: str, rule: Rule, now: datetime) -> Iterator[Pruned]:
    """Delete the rows that are old enough, day by day, and yield what was deleted.

    Their offsets stay recorded, so they are not mirrored again. Their files are removed by `vacuum`.
    """
    for going in list(due(out, rule, now)):
        _delete(out, going.day, f"{_condition(going.day.table, rule)}")
        yield going


def erase(out: str, rule: Rule, *, dry_run: bool) -> Iterator[Exported]:
    """Delete the rows of a rule from the files of `mirror export`, of all days; yield how many of each file."""
    condition = _condition(MESSAGES, rule)
    return iter(()) if condition is None else parquet_export.erase(out, condition, dry_run=dry_run)


def copies(out: str, rule: Rule) -> int:
    """Return how many messages that a rule does not mean are copies of those that it means.

    A dead letter has the id of its message; what `mirror restore` sent says where it comes from.
    """
    condition = _condition(MESSAGES, rule)
    if condition is None:
        return 0
    count = f"""
        WITH meant AS (SELECT message_id, log || '/' || "offset" AS place FROM {MESSAGES} WHERE {condition})
        SELECT count(*) FROM {MESSAGES} WHERE ({condition}) IS NOT TRUE AND (
            message_id IN (SELECT message_id FROM meant)
            OR properties['oms-restored-from'] IN (SELECT place FROM meant)
        )
    """  # noqa: S608 - an operator's own SQL
    with connect(out) as connection:
        [(number,)] = connection.execute(count).fetchall()
    return int(number)


def vacuum(out: str, *, now: bool = False) -> int:
    """Remove files that left the tables longer than seven days ago, and what killed writers left behind.

    With `now`, all that left the tables, at once, but not what killed writers left: a running job's files look the
    same. Returns how many. Versions that had these files can no longer be read.
    """
    retention = timedelta() if now else RETENTION

    def remove(table: DeltaTable, metadata: CommitProperties) -> list[str]:
        return table.vacuum(
            int(retention / timedelta(hours=1)),
            dry_run=False,
            enforce_retention_duration=False,
            full=not now,
            commit_properties=metadata,
        )

    return sum(len(_change(out, name, remove)) for name in NAMES)


def _compact(out: str, day: Day, target: int, *, sort: bool) -> Compacted:
    def rewrite(table: DeltaTable, metadata: CommitProperties) -> dict[str, Any]:
        options: dict[str, Any] = {
            "partition_filters": [(PARTITION, "=", day.date)],
            "target_size": target,
            "writer_properties": _WRITER,
            "commit_properties": metadata,
        }
        if sort:
            return table.optimize.z_order(["destination"], **options)
        return table.optimize.compact(**options)

    done = _change(out, day.table, rewrite)
    removed, added = (json.loads(done[name])["totalSize"] for name in ("filesRemoved", "filesAdded"))
    return Compacted(day, done["numFilesRemoved"], removed, done["numFilesAdded"], added)


def _delete(out: str, day: Day, condition: str) -> None:
    """Delete rows of one day. Batches that the job commits meanwhile are not concerned.

    The rows that stay are written by way of Arrow: `DeltaTable.delete` of 1.6.6 writes text as `string_view`, which
    pyarrow cannot filter (https://github.com/delta-io/delta-rs/issues/4579).
    """

    def delete(table: DeltaTable, metadata: CommitProperties) -> None:
        read = Table(table, day.table)
        newest = max((file.mirrored for file in read.days().get(day, ())), default=None)
        if newest is None:
            return  # another upkeep has deleted all of it
        rows = f"{PARTITION} = {quoted(day.date)} AND mirrored_timestamp <= {quoted(newest.isoformat())}"
        if condition == "true":
            table.delete(rows, _WRITER, commit_properties=metadata)
            return
        schema = pa.schema(table.schema().to_arrow())
        with sandbox({day.table: read.dataset()}) as connection:
            staying = f"SELECT * FROM {day.table} WHERE {rows} AND ({condition}) IS NOT TRUE"  # noqa: S608 - ours
            batches = connection.sql(staying).to_arrow_reader(_GROUP_ROWS)
            write_deltalake(
                table,
                pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in batches)),
                mode="overwrite",
                predicate=rows,
                writer_properties=_WRITER,
                commit_properties=metadata,
            )

    _change(out, day.table, delete)


def _change(out: str, name: Name, change: Callable[[DeltaTable, CommitProperties], T]) -> T:
    """Make a change; again if another commit came in between. Raises `CannotStart`."""
    tries = 0
    while True:
        table, tries = Table.require(out, name), tries + 1
        try:
            return change(table.delta, table.same_record())
        except DeltaError as error:
            if tries == _TRIES or not isinstance(error, CommitFailedError):
                raise CannotStart(f"{name}: the table could not be changed: {one_line(error)}") from None


def _condition(name: Name, rule: Rule) -> str | None:
    """Return which rows of a table the rule means, as SQL; None: none of them."""
    areas = query.AREAS if name == MESSAGES else {"quarantine": "true"}
    chosen = [sql for area, sql in areas.items() if area in rule.areas]
    if not chosen:
        return None
    conditions = [] if len(chosen) == len(areas) else chosen
    if rule.destinations:
        conditions.append(one_of("destination", rule.destinations))
    if rule.where is not None:
        conditions.append(f"({rule.where})")
    return " AND ".join(conditions) or "true"


def _rows(out: str, name: Name, condition: str) -> dict[Day, int]:
    if condition == "true":
        return {day: sum(file.rows for file in files) for day, files in Table.require(out, name).days().items()}
    with connect(out) as connection:
        counts = f"SELECT date, count(*) FROM {name} WHERE {condition} GROUP BY ALL ORDER BY ALL"  # noqa: S608
        return {Day(name, date): rows for date, rows in connection.execute(counts).fetchall()}
