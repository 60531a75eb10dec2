"""A second mirror's commit to a table, at a moment that a test chooses. Spark's workers import this module."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake
from pyspark.sql import DataFrame

from bridge.mirror.offsets import Record, to_json
from bridge.mirror.sink import APPLICATION
from bridge.mirror.table import Table


def commit(out: str, record: Record) -> None:
    table = Table.require(out).delta
    properties = CommitProperties(
        custom_metadata={"userMetadata": to_json(record._replace(query="another"))},
        app_transactions=[Transaction(APPLICATION, record.sequence)],
    )
    write_deltalake(table, table.to_pyarrow_table().slice(0, 0), mode="append", commit_properties=properties)


def committing_first(frame: DataFrame, out: str, record: Record) -> DataFrame:
    """Let the other job commit when the first rows are read: this one has seen the table's version then."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with suppress(FileExistsError):
            Path(out, "committed").touch(exist_ok=False)
            commit(out, record)
        yield from batches

    return frame.mapInArrow(rows, frame.schema)
