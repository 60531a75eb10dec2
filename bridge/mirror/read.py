"""The mirror as Spark reads it: an area as a frame, whatever is or is not there."""

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from bridge.mirror.schema import READ_DDL, Area
from bridge.mirror.sink.files import Files
from bridge.settings import redact


def rows(spark: SparkSession, files: Files, area: Area) -> DataFrame:
    """Return the rows of an area with the columns `schema.READ_DDL`; none where there is no such folder yet."""
    if not files.exists(area):
        return spark.createDataFrame([], READ_DDL)
    return reader(spark).schema(READ_DDL).parquet(f"{files.out}/{area}")


def reader(spark: SparkSession) -> DataFrameReader:
    """Return what reads paths as they are: by itself Spark takes `[` or `*` in `--out` for a pattern."""
    return spark.read.option("__globPaths__", "false")


def shown(out: str) -> str:
    """Return a path without the secrets that some put into it: `s3a://key:secret@bucket`."""
    return redact(out) if "://" in out and "@" in out else out


def stored() -> Column:
    """Return the time that the folders of the mirror go by."""
    return F.coalesce("store_timestamp", "mirrored_timestamp")
