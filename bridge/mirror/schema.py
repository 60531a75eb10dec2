"""The columns of the mirror, one table: what a row holds, in Parquet, in Arrow and in Spark; messages as rows of it.

Frozen: every column is nullable and as wide as it will ever need to be, and columns are only ever added, with a new
`SCHEMA_VERSION`. Readers of an older version go on to work.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa

from bridge.engine.destination_names import is_dead_letter
from bridge.message import FIELDS, Field, Message
from bridge.mirror.json_text import is_json, json_text
from bridge.mirror.offsets import Gap

SCHEMA_VERSION: Final = 2

Kind = Literal["string", "bigint", "int", "timestamp", "binary", "map"]
Area = Literal["data", "dead-letters", "quarantine"]
"""What a row is: a message, a dead letter (the copy of one that could not be delivered), or an unreadable record."""
AREAS: Final[tuple[Area, ...]] = ("data", "dead-letters", "quarantine")

GAP: Final = "gap"
"""What a row of a source is that is no row of a table: offsets that were gone when they were read."""

ARROW: Final[dict[Kind, pa.DataType]] = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "binary": pa.binary(),
    "map": pa.map_(pa.string(), pa.string()),
}
SPARK: Final[dict[Kind, str]] = {**{kind: kind for kind in ARROW}, "map": "map<string,string>"}

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
    Column("properties", "map", "properties of the message; null: a header of Kafka or RabbitMQ without a value"),
    Column("body", "binary", "the body, as it was stored; null: a tombstone of Kafka"),
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

JSON: Final = Column("json", "string", "the body as text, if its media type is JSON and it [parses](#json); else null")
"""Since version 2."""

PARTITION: Final = "date"
"""Column by which the tables are partitioned: `date=2026-11-21`, of mirrored_timestamp in UTC. By the time of storing,
a backlog of 200 days would be 200 files in each batch."""

_DESTINATION: Final = Column("destination", "string", "destination")
_SOURCE: Final = (
    Column("area", "string", "what the row is"),
    Column("gap_end", "bigint", "of a gap, the first offset after it; else null"),
    _DESTINATION,
    *MESSAGE,
    *POSITION,
    JSON,
)

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
    Column("date", "string", "day of `mirrored_timestamp` in UTC: `2026-11-21`"),
    JSON,
)
"""What a row of a table holds, in this order."""
COLUMNS: Final = tuple(column.name for column in TABLE)
TABLE_SCHEMA: Final = pa.schema([(column.name, ARROW[column.kind]) for column in TABLE])
"""The same as Arrow."""

STATISTICS: Final = ("destination", "message_id", "partition", "store_timestamp", "log", "offset", "mirrored_timestamp")
"""Columns whose least and greatest value the log holds for each file: by them readers skip files."""

assert {c.name for c in MESSAGE} | {"destination"} == set(Message._fields)  # noqa: S101 - the table is whole

BATCH_ROWS: Final = 1000
"""Rows worth one Arrow batch; 5,000 were not faster."""
BATCH_BYTES: Final = 16 << 20
"""Bytes of bodies and properties that end a batch before it has its rows.

One batch is held by the reader, the JVM and the writer."""


class _Row(NamedTuple):
    message: Message
    log: str
    offset: int
    error: str | None = None
    is_tombstone: bool = False
    nulls: Collection[str] = ()
    """Properties without a value."""
    gap_end: int | None = None


class Rows:
    """Gathers rows of one backend, handed on as one Arrow batch.

    Nothing that is added makes a batch fail. A time that no reader of Parquet could show is null, and the property
    `oms_<column>` has its number. A message with another value that cannot be shown is a row in quarantine.
    """

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._rows: list[_Row] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def full(self) -> bool:
        """Whether it is time to take the batch."""
        return len(self._rows) >= BATCH_ROWS or self._bytes >= BATCH_BYTES

    def add(
        self, message: Message, log: str, offset: int, *, is_tombstone: bool = False, nulls: Collection[str] = ()
    ) -> None:
        """Add a message, with its position in the backend.

        `is_tombstone`: it has no body, which is not the same as an empty one. `nulls`: properties without a value.
        """
        self._rows.append(_Row(message, log, offset, None, is_tombstone, nulls))
        self._bytes += len(message.body) * (1 + is_json(message.content_type))
        if message.properties:
            self._bytes += sum(len(name) + len(str(text)) for name, text in message.properties.items())

    def add_bad(self, error: str, raw: bytes, destination: str, log: str, offset: int) -> None:
        """Add a record that could not be read: a row in quarantine with the raw bytes."""
        self._rows.append(_Row(Message(destination, raw), log, offset, error))
        self._bytes += len(raw)

    def add_gap(self, error: str, destination: str, gap: Gap) -> None:
        """Add a gap that was found while a batch was read; its `end` is known."""
        self._rows.append(_Row(Message(destination), gap.log, gap.start, error, gap_end=gap.end))

    def take(self) -> pa.RecordBatch:
        """Return all rows, of the columns `schema.SOURCE`, and clear them."""
        rows, self._rows, self._bytes = self._rows, [], 0
        try:
            return self._batch(rows)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):  # one of them; UnicodeError is a ValueError
            return self._batch([self._readable(row) for row in rows])

    def _readable(self, row: _Row) -> _Row:
        row = _with_readable_times(row)
        try:
            self._batch([row])
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            body = row.message.body if isinstance(row.message.body, bytes) else b""
            readable = row.message.destination.encode("utf-8", "replace").decode()
            return _Row(Message(readable, body), row.log, row.offset, f"{type(error).__name__}: {error}")
        return row

    def _batch(self, rows: Sequence[_Row]) -> pa.RecordBatch:
        of_messages = zip(*(row.message for row in rows), strict=True)
        columns = dict(zip(Message._fields, of_messages, strict=False)) or dict.fromkeys(Message._fields, ())
        for name in TIMES:
            columns[name] = tuple(None if value is None else _micros(value) for value in columns[name])
        sizes = list(map(len, columns["body"]))
        columns["properties"] = tuple(
            [(name, None if name in row.nulls else text) for name, text in row.message.properties.items()]
            if row.nulls
            else list(row.message.properties.items())
            for row in rows
        )
        if any(row.is_tombstone for row in rows):
            columns["body"] = tuple(None if row.is_tombstone else row.message.body for row in rows)
        of_position = {
            "backend": [self._backend] * len(rows),
            "log": [row.log for row in rows],
            "offset": [row.offset for row in rows],
            "error": [row.error for row in rows],
            "gap_end": [row.gap_end for row in rows],
        }
        derived = {
            "area": list(map(_area, rows)),
            "body_size": sizes,
            "json": [json_text(row.message.content_type, row.message.body) for row in rows],
        }
        return pa.RecordBatch.from_pydict(columns | of_position | derived, schema=SOURCE)


def _area(row: _Row) -> str:
    if row.gap_end is not None:
        return GAP
    if row.error is not None:
        return "quarantine"
    return "dead-letters" if is_dead_letter(row.message.destination) else "data"


def _with_readable_times(row: _Row) -> _Row:
    message = row.message
    numbers = {name: getattr(message, name) for name in TIMES}
    unreadable = {name: number for name, number in numbers.items() if number is not None and not _is_time(number)}
    if not unreadable:
        return row
    kept = {f"oms_{name}": str(number) for name, number in unreadable.items()}
    times: dict[str, Any] = dict.fromkeys(unreadable)
    return row._replace(message=message._replace(**times, properties={**message.properties, **kept}))


def _is_time(milliseconds: int) -> bool:
    return 0 <= milliseconds <= TIME_MAX


def _micros(milliseconds: int) -> int:
    if not _is_time(milliseconds):
        raise ValueError(f"{milliseconds} ms since 1970 is not a time that a Parquet file can hold")
    return milliseconds * 1000
