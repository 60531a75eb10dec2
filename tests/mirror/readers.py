"""What four readers see of a mirror: the same rows in the same form in each."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession

from bridge.mirror.schema import COLUMNS
from bridge.mirror.table import MESSAGES, NAMES, Name, Table, spark_path

Rows = list[tuple[Any, ...]]  # of the values of the columns
_ALL: Final = list(COLUMNS)


def by_delta_rs(out: Path | str, name: Name = MESSAGES, columns: list[str] = _ALL) -> Rows:
    """Read with pyarrow, through delta-rs."""
    return _sorted(
        tuple(row.values()) for row in Table.require(str(out), name).delta.to_pyarrow_table(columns=columns).to_pylist()
    )


def by_duckdb(out: Path | str, name: Name = MESSAGES, columns: list[str] = _ALL) -> Rows:
    """Read with DuckDB."""
    names = ", ".join(f'"{column}"' for column in columns)
    with duckdb.connect() as connection:
        connection.register("rows", Table.require(str(out), name).dataset())
        connection.execute("SET TimeZone = 'UTC'")
        return _sorted(connection.execute(f"SELECT {names} FROM rows").fetchall())  # noqa: S608 - ours


def by_pandas(out: Path | str, name: Name = MESSAGES, columns: list[str] = _ALL) -> Rows:
    """Read with pandas."""
    frame = Table.require(str(out), name).delta.to_pandas(columns=columns)
    schema = Table.require(str(out), name).dataset().schema
    return _sorted(
        tuple(row.values())
        for row in pa.Table.from_pandas(frame, pa.schema([schema.field(column) for column in columns])).to_pylist()
    )


def by_spark(spark: SparkSession, out: Path | str, name: Name = MESSAGES, columns: list[str] = _ALL) -> Rows:
    """Read with Spark."""
    frame = spark.read.format("delta").load(spark_path(str(out), name)).select(*(f"`{c}`" for c in columns))
    return _sorted(tuple(row.values()) for row in frame.toArrow().to_pylist())


def places(out: Path | str) -> list[tuple[str, int]]:
    """Return log and offset of every row of both tables."""
    return sorted(row for name in NAMES for row in by_delta_rs(out, name, ["log", "offset"]))


def _sorted(rows: Iterable[tuple[Any, ...]]) -> Rows:
    return sorted((tuple(_plain(value) for value in row) for row in rows), key=repr)


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a reader makes of a cell
    if isinstance(value, Mapping):
        return tuple(sorted(value.items()))
    if isinstance(value, list):
        return tuple(sorted(value))
    return value.timestamp() if isinstance(value, datetime) else value
