"""What plain readers see of a mirror: the same rows in the same form, whoever reads them."""

import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from glob import escape
from pathlib import Path
from typing import Any, Final

import duckdb
import pandas as pd
import pyarrow as pa
from pyspark.sql import SparkSession

from bridge.mirror.read import reader
from bridge.mirror.schema import FILE, PATH, READ_DDL

COLUMNS: Final = [*(column.name for column in FILE), *PATH]

Rows = list[tuple[Any, ...]]  # of the values of `COLUMNS`


def parquet(out: Path, area: str = "data") -> list[Path]:
    """Return the files."""
    return sorted((out / area).rglob("*.parquet"))


def by_duckdb(out: Path, area: str = "data") -> Rows:
    """Read by a plain glob, as anybody would."""
    names = ", ".join(f'"{name}"' for name in COLUMNS)
    types = "{'destination': 'VARCHAR', 'date': 'VARCHAR', 'hour': 'VARCHAR'}"
    files = f"read_parquet('{escape(str(out))}/{area}/**', hive_partitioning = true, hive_types = {types})"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return _sorted(connection.execute(f"SELECT {names} FROM {files}").fetchall())  # noqa: S608 - ours


def by_pandas(out: Path, area: str = "data") -> Rows:
    """Read the folder; pandas makes categories of what stands in the path."""
    frame = pd.read_parquet(os.fspath(out / area), dtype_backend="pyarrow").astype(dict.fromkeys(PATH, str))
    frame["hour"] = frame["hour"].str.zfill(2)  # and numbers of those categories that look so
    return _sorted(tuple(row.values()) for row in pa.Table.from_pandas(frame[COLUMNS]).to_pylist())


def by_spark(spark: SparkSession, out: Path, area: str = "data") -> Rows:
    """Read by the explicit schema."""
    frame = reader(spark).schema(READ_DDL).parquet(f"{out}/{area}").select(*COLUMNS)
    return _sorted(tuple(row.values()) for row in frame.toArrow().to_pylist())


def _sorted(rows: Iterable[tuple[Any, ...]]) -> Rows:
    return sorted((tuple(_plain(value) for value in row) for row in rows), key=repr)


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a reader makes of a cell
    if isinstance(value, Mapping):
        return tuple(sorted(value.items()))
    if isinstance(value, list):
        return tuple(sorted(value))
    return value.timestamp() if isinstance(value, datetime) else value
