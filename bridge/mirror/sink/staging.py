"""A batch written into its staging folder: by the tasks themselves on a local disk, else by Spark's own writer."""

import time
from functools import partial
from typing import Final
from uuid import uuid4

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from bridge.mirror import layout
from bridge.mirror.manifest import File
from bridge.mirror.schema import FILE, PATH, SCHEMA_VERSION
from bridge.mirror.sink.files import Files, each
from bridge.mirror.sink.publish import AREA
from bridge.mirror.sink.writing import REPEATING, WRITTEN_DDL, write

SPREAD: Final = 50
"""Folders in a batch from which on each destination goes to one task: a file costs milliseconds, a shuffle seconds."""
NAME_BYTES: Final = 255 - len("destination=")
"""What a folder's name may hold beside the column's, on every filesystem; Kafka's topics may be longer."""
_OPTIONS: Final = {
    "compression": "zstd",
    "parquet.compression.codec.zstd.level": "1",  # 113,000 messages/s; level 3: 102,000, and 3 % smaller
    "parquet.enable.dictionary": "false",
    **{f"parquet.enable.dictionary#{column}": "true" for column in REPEATING},
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "mapreduce.fileoutputcommitter.algorithm.version": "2",  # staging is thrown away if a task fails half way
}


def stage(rows: DataFrame, files: Files, key: str, *, spread: bool = False) -> list[File]:
    """Write rows of `schema.SOURCE_DDL` into the staging folder of `key` and return the files as they will be named.

    `spread`: gather each destination in one task. Raises `OSError`, and what Spark raises.
    """
    stamped = _stamped(rows)
    if spread:
        stamped = stamped.repartition("destination")
    if files.folder is None:
        return _by_spark(stamped, files, layout.staging(key), _file_name(key))
    return _by_tasks(stamped, files, layout.staging(key), _file_name(key))


def _by_tasks(stamped: DataFrame, files: Files, staging: str, name: str) -> list[File]:
    written = stamped.mapInArrow(partial(write, f"{files.folder}/{staging}", name), WRITTEN_DDL).collect()
    files.sync(f"{staging}/{path}" for path, _, _ in written)
    return [File(path.removeprefix(AREA), rows, size) for path, rows, size in written]


def _by_spark(stamped: DataFrame, files: Files, staging: str, name: str) -> list[File]:
    writer = stamped.write.options(**_OPTIONS, **{"mapreduce.output.basename": name}).partitionBy("area", *PATH)
    writer.parquet(files.path(staging).toString())
    return _counted(files, staging, name)


def _file_name(key: str) -> str:
    """The random part tells this attempt's files from those that the workers of a killed one may still write."""
    query, _, batch = key.partition("/")
    return f"{query[:8]}-{batch}-{uuid4().hex[:8]}"


def _stamped(rows: DataFrame) -> DataFrame:
    now = F.timestamp_millis(F.lit(int(time.time() * 1000)))
    when = F.coalesce("store_timestamp", now)
    stamps = {
        "mirrored_timestamp": now,
        "schema_version": F.lit(SCHEMA_VERSION),
        "destination": _name(F.col("destination")),
        "date": F.to_date(when).cast("string"),
        "hour": F.lpad(F.hour(when).cast("string"), 2, "0"),
    }
    return rows.withColumns(stamps).select("area", *PATH, *(f"`{column.name}`" for column in FILE))


def _name(destination: Column) -> Column:
    """The log tells the whole name of what is cut here."""
    cut = F.concat(
        F.substring(destination, 1, NAME_BYTES // 4), F.lit("."), F.substring(F.sha2(destination, 256), 1, 12)
    )
    return F.when(F.octet_length(destination) > NAME_BYTES, cut).otherwise(destination)


def _counted(files: Files, folder: str, name: str) -> list[File]:
    """The footers say how many rows there are: no second job, and true whatever the source gave."""
    staged = [(path, size) for path, size in files.list(folder) if path.rpartition("/")[2].startswith(name)]
    files.sync(path for path, _ in staged)
    counts = each(lambda one: files.footer_rows(one[0]), staged)
    names = (path.removeprefix(f"{folder}/").removeprefix(AREA) for path, _ in staged)
    return [File(name, rows, size) for name, rows, (_, size) in zip(names, counts, staged, strict=True)]
