"""Rows of a source as rows of the tables: with the time, the partition columns and an order."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from bridge.engine.names import DEAD_LETTER_SUFFIX
from bridge.mirror.schema import COLUMNS, PARTITION, SCHEMA_VERSION

ORDER: Final = (*PARTITION, "destination", "partition", "log", "offset")
"""How the rows of a file are sorted: a reader of one destination skips the row groups of the others."""


def stamped(rows: DataFrame, mirrored: int) -> DataFrame:
    """Add what the sink adds to rows of `schema.SOURCE_DDL`; `mirrored` is the batch's time, ms since 1970."""
    now = F.timestamp_millis(F.lit(mirrored))
    when = F.coalesce("store_timestamp", now)
    stamps = {
        "mirrored_timestamp": now,
        "schema_version": F.lit(SCHEMA_VERSION),
        "date": F.to_date(when).cast("string"),
        "hour": F.lpad(F.hour(when).cast("string"), 2, "0"),
    }
    return rows.withColumns(stamps).select(*(f"`{column}`" for column in COLUMNS))


def is_bad() -> Column:
    """Whether a row of a table could not be read as a message."""
    return F.col("error").isNotNull()


def is_dead_letter() -> Column:
    """Whether a row of a table is the copy of a message that could not be delivered."""
    return F.col("error").isNull() & F.endswith(F.col("destination"), F.lit(DEAD_LETTER_SUFFIX))
