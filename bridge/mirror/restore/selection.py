"""Which rows to restore, and in which order they come."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from bridge.mirror import read
from bridge.mirror.restore.revived import Row, to_row
from bridge.mirror.schema import MESSAGE, Area
from bridge.mirror.sink.files import Files

_PART_BYTES: Final = 32 << 20
_PART_ROWS: Final = 100_000
"""What one part holds at most, about: a part is brought to this process as a whole."""


_ORDER: Final = ("began", "log", "offset")


class Selection(NamedTuple):
    """What is asked for. Times in ms since 1970: from the first on, before the second."""

    area: Area = "data"
    destinations: tuple[str, ...] = ()
    message_ids: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None


class Amount(NamedTuple):
    """How much there is of one destination. Times in ms since 1970."""

    destination: str
    rows: int
    bytes: int
    first: int
    last: int


def select(spark: SparkSession, files: Files, selection: Selection, reached: Mapping[str, int]) -> DataFrame:
    """Return what is asked for and not done yet: `reached` is the next offset by log."""
    found = read.rows(spark, files, selection.area)
    if selection.destinations:
        found = found.where(F.col("destination").isin(*selection.destinations))
    if selection.message_ids:
        found = found.where(F.col("message_id").isin(*selection.message_ids))
    if selection.start is not None:  # by the folder too, so that no other is opened
        found = found.where((F.col("date") >= _date(selection.start)) & (read.stored() >= _moment(selection.start)))
    if selection.end is not None:
        found = found.where((F.col("date") <= _date(selection.end)) & (read.stored() < _moment(selection.end)))
    if reached:
        done = F.broadcast(spark.createDataFrame(list(reached.items()), "of string, next bigint"))
        behind = (F.col("log") == F.col("of")) & (F.col("offset") < F.col("next"))
        found = found.join(done, behind, "left_anti")
    return found


def amounts(rows: DataFrame) -> list[Amount]:
    """Count, by destination."""
    stored = F.unix_millis(read.stored())
    counted = rows.groupBy("destination").agg(
        F.count("*"), F.coalesce(F.sum("body_size"), F.lit(0)), F.min(stored), F.max(stored)
    )
    return [Amount(*row) for row in counted.orderBy("destination").collect()]


def in_order(rows: DataFrame, amount: list[Amount]) -> Iterator[Row]:
    """Yield the rows, log by log, each in the order of its offsets: so the order of a key is kept.

    The log that begins first comes first: where a log had several lives, the earlier is restored before the later.
    """
    parts = 1 + sum(a.bytes for a in amount) // _PART_BYTES + sum(a.rows for a in amount) // _PART_ROWS
    ordered = _with_order(rows).repartitionByRange(parts, *_ORDER).sortWithinPartitions(*_ORDER)
    return (to_row(row.asDict()) for row in ordered.select(*_columns()).toLocalIterator())


def first(rows: DataFrame, count: int) -> list[Row]:
    """Return the first rows of that order."""
    ordered = _with_order(rows).orderBy(*_ORDER).limit(count)
    return [to_row(row.asDict()) for row in ordered.select(*_columns()).collect()]


def _with_order(rows: DataFrame) -> DataFrame:
    return rows.join(F.broadcast(rows.groupBy("log").agg(F.min(read.stored()).alias("began"))), "log")


def _columns() -> list[Column | str]:
    times = {column.name for column in MESSAGE if column.kind == "timestamp"}
    named = (column.name for column in MESSAGE)
    # as numbers: PySpark would make local times of them
    return [
        F.unix_millis(name).alias(name) if name in times else name for name in (*named, "destination", "log", "offset")
    ]


def _moment(milliseconds: int) -> Column:
    return F.timestamp_millis(F.lit(milliseconds))


def _date(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d}"
