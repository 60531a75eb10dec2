"""The columns of the mirror, one table: what a row holds, in Parquet, in Arrow and in Spark.

Frozen: every column is nullable and as wide as it will ever need to be, and columns are only ever added, with a new
`SCHEMA_VERSION`. Readers of an older version go on to work.
"""

from typing import Final, Literal, NamedTuple

import pyarrow as pa

from bridge.message import FIELDS, Field, Message

SCHEMA_VERSION: Final = 1

Kind = Literal["string", "bigint", "int", "timestamp", "binary", "map"]
Area = Literal["data", "dead-letters", "quarantine"]
"""What a row is: a message, a dead letter (the copy of one that could not be delivered), or an unreadable record."""
AREAS: Final[tuple[Area, ...]] = ("data", "dead-letters", "quarantine")

ARROW: Final[dict[Kind, pa.DataType]] = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "binary": pa.binary(),
    "map": pa.map_(pa.string(), pa.string()),
}
SPARK: Final[dict[Kind, str]] = {
    **{kind: kind for kind in ("string", "bigint", "int", "timestamp", "binary")},
    "map": "map<string,string>",
}

TIME_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: the last one that every reader of a Parquet timestamp can show."""


class Column(NamedTuple):
    """One column."""

    name: str
    kind: Kind
    says: str
    """For docs/mirror-schema.md."""


def _kind(field: Field) -> Kind:
    is_time = field.name in {"bornTimestamp", "storeTimestamp"}
    return "string" if field.maximum is None else "timestamp" if is_time else "bigint"


MESSAGE: Final = (
    *(Column(field.attribute, _kind(field), field.name) for field in FIELDS if field.name != "destination"),
    Column("content_type", "string", "media type of the body, as its producer named it"),
    Column("traceparent", "string", "W3C trace context"),
    Column("tracestate", "string", "W3C trace context"),
    Column("properties", "map", "properties of the message"),
    Column("body", "binary", "the body, as it was stored"),
)
"""What comes from a `Message`, by the names of its attributes."""
TIMES: Final = tuple(column.name for column in MESSAGE if column.kind == "timestamp")

POSITION: Final = (
    Column("body_size", "bigint", "bytes of the body"),
    Column("backend", "string", "kafka, rabbitmq or memory"),
    Column("log", "string", "the log that `offset` counts in; unique for each time it is created"),
    Column("offset", "bigint", "position in that log"),
    Column("error", "string", "in quarantine: the reason; else null"),
)
"""What the source adds."""

PARTITION: Final = ("date", "hour")
"""Columns by which the tables are partitioned: `date=2026-11-21/hour=07`, of store_timestamp in UTC."""

_DESTINATION: Final = Column("destination", "string", "destination")
_SOURCE: Final = (Column("area", "string", "what the row is"), _DESTINATION, *MESSAGE, *POSITION)

SOURCE: Final = pa.schema([(column.name, ARROW[column.kind]) for column in _SOURCE])
"""What every source gives, as Arrow."""
SOURCE_DDL: Final = ", ".join(f"`{column.name}` {SPARK[column.kind]}" for column in _SOURCE)
"""The same for Spark."""

TABLE: Final = (
    _DESTINATION,
    *MESSAGE,
    *POSITION,
    Column("mirrored_timestamp", "timestamp", "when the batch was written"),
    Column("schema_version", "int", "of this table"),
    Column("date", "string", "day of `store_timestamp`, or of `mirrored_timestamp` without one: `2026-11-21`, in UTC"),
    Column("hour", "string", "its hour: `00` to `23`"),
)
"""What a row of a table holds, in this order."""
COLUMNS: Final = tuple(column.name for column in TABLE)

STATISTICS: Final = ("destination", "message_id", "partition", "store_timestamp", "log", "offset", "mirrored_timestamp")
"""Columns whose least and greatest value the log holds for each file: by them readers skip files."""

assert {c.name for c in MESSAGE} | {"destination"} == set(Message._fields)  # noqa: S101 - the table is whole
