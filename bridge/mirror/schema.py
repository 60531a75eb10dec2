"""The columns of the mirror, one table: what a row holds, in Parquet, in Arrow and in Spark.

Frozen: every column is nullable and as wide as it will ever need to be, and columns are only ever added, with a new
`SCHEMA_VERSION`. Readers that know an older version go on to work.
"""

from typing import Final, Literal, NamedTuple

import pyarrow as pa

from bridge.message import FIELDS, LONG_MAX, Message

SCHEMA_VERSION: Final = 1

Kind = Literal["string", "bigint", "int", "timestamp", "binary", "map"]
Area = Literal["data", "dead-letters", "quarantine"]
"""Where a row goes: a message, a dead letter (the copy of one that was buried), a record that could not be read."""

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
    """One column: `attribute` is that of `Message` where it comes from there."""

    name: str
    kind: Kind
    says: str
    """For docs/mirror-schema.md."""
    attribute: str | None = None


_TIMES: Final = ("bornTimestamp", "storeTimestamp")


def _of_message() -> tuple[Column, ...]:
    columns = []
    for field in FIELDS:
        if field.name == "destination":
            continue
        kind: Kind = "string" if field.maximum is None else "timestamp" if field.name in _TIMES else "bigint"
        columns.append(Column(field.attribute, kind, f"{field.name} of the message", field.attribute))
    return tuple(columns)


MESSAGE: Final = (
    *_of_message(),
    Column("content_type", "string", "media type of the body, as its producer named it", "content_type"),
    Column("traceparent", "string", "W3C trace context", "traceparent"),
    Column("tracestate", "string", "W3C trace context", "tracestate"),
    Column("properties", "map", "properties of the message", "properties"),
    Column("body", "binary", "the body, as it was stored", "body"),
)
"""What comes from a `Message`."""

POSITION: Final = (
    Column("body_size", "bigint", "bytes of the body"),
    Column("backend", "string", "kafka, rabbitmq or memory"),
    Column("log", "string", "the log that `offset` counts in; unique for each life of it"),
    Column("offset", "bigint", "place in that log"),
    Column("error", "string", "in quarantine: why; else null"),
)
"""What the source adds."""

STAMPS: Final = (
    Column("mirrored_timestamp", "timestamp", "when the batch was written"),
    Column("schema_version", "int", "of this table"),
)
"""What the sink adds."""

PATH: Final = ("destination", "date", "hour")
"""Columns that stand in the path: `destination=orders/date=2026-11-21/hour=07`, by store_timestamp in UTC."""

SOURCE: Final = pa.schema(
    [
        pa.field("area", pa.string()),
        pa.field("destination", pa.string()),
        *(pa.field(column.name, ARROW[column.kind]) for column in (*MESSAGE, *POSITION)),
    ]
)
"""What every source gives, as Arrow."""

SOURCE_DDL: Final = ", ".join(
    ["area string", "destination string", *(f"`{c.name}` {SPARK[c.kind]}" for c in (*MESSAGE, *POSITION))]
)
"""The same for Spark."""

FILE: Final = (*MESSAGE, *POSITION, *STAMPS)
"""What a file holds, in this order; `PATH` stands in its path."""

READ_DDL: Final = ", ".join(
    [*(f"`{c.name}` {SPARK[c.kind]}" for c in FILE), "destination string", "date string", "hour string"]
)
"""The explicit schema to read `data/` with: new columns are null in old files, none is dropped."""

assert {c.attribute for c in MESSAGE} | {"destination"} == set(Message._fields)  # noqa: S101 - the table is whole
assert LONG_MAX == 2**63 - 1  # noqa: S101 - what a bigint holds
