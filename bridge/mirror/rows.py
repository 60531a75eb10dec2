"""Messages to rows: gathered one by one, handed on as one Arrow batch. Pure; the same for every source.

Nothing that is added makes a batch fail: what no reader of Parquet could show is a row in quarantine.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from bridge.engine.destination_names import is_dead_letter
from bridge.message import Message
from bridge.mirror.schema import SOURCE, TIME_MAX, TIMES

BATCH_ROWS: Final = 1000
"""Rows worth one Arrow batch; 5,000 were not faster."""
BATCH_BYTES: Final = 16 << 20
"""Bytes of bodies that end a batch before it has its rows: one batch is held by the reader, the JVM and the writer."""

_MICROS: Final = 1000


class _Row(NamedTuple):
    message: Message
    log: str
    offset: int
    error: str | None


class Rows:
    """Gathers rows of one backend."""

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

    def add(self, message: Message, log: str, offset: int) -> None:
        """Add a message, with its position in the backend."""
        self._rows.append(_Row(message, log, offset, None))
        self._bytes += len(message.body)

    def add_bad(self, error: str, raw: bytes, destination: str, log: str, offset: int) -> None:
        """Add a record that could not be read: a row in quarantine with the raw bytes."""
        self._rows.append(_Row(Message(destination, raw), log, offset, error))
        self._bytes += len(raw)

    def take(self) -> pa.RecordBatch:
        """Return all rows, of the columns `schema.SOURCE`, and clear them."""
        rows, self._rows, self._bytes = self._rows, [], 0
        try:
            return self._batch(rows)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):  # one of them; UnicodeError is a ValueError
            return self._batch([self._judged(row) for row in rows])

    def _judged(self, row: _Row) -> _Row:
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
        columns["properties"] = tuple(list(value.items()) for value in columns["properties"])
        _, logs, offsets, errors = zip(*rows, strict=True) if rows else ((),) * 4
        of_position = {"backend": [self._backend] * len(rows), "log": logs, "offset": offsets, "error": errors}
        areas, sizes = list(map(_area, rows)), list(map(len, columns["body"]))
        return pa.RecordBatch.from_pydict(columns | of_position | {"area": areas, "body_size": sizes}, schema=SOURCE)


def _area(row: _Row) -> str:
    if row.error is not None:
        return "quarantine"
    return "dead-letters" if is_dead_letter(row.message.destination) else "data"


def _micros(milliseconds: int) -> int:
    if not 0 <= milliseconds <= TIME_MAX:
        raise ValueError(f"{milliseconds} ms since 1970 is not a time that a Parquet file can hold")
    return milliseconds * _MICROS
