"""A mirror made by hand, in the tables and with the commits of a real one, for tests of what reads mirrors."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, write_deltalake

from bridge.message import Message
from bridge.mirror.offsets import Gap, Ranges, Record, to_json
from bridge.mirror.schema import COLUMNS, PARTITION, SCHEMA_VERSION, Rows
from bridge.mirror.table import MESSAGES, QUARANTINE, Table, create, location, storage_options

QUERY: Final = "5b6c3d1e-8a11-4b8e-9f0a-2f6c1d7e4a90"
NOON: Final = 1_763_726_400_000
"""2025-11-21 12:00 UTC."""


class Bad(NamedTuple):
    """A record that could not be read."""

    error: str
    raw: bytes
    destination: str


class Batch(NamedTuple):
    """One batch of a mirror: where its rows lie, by log and offset."""

    rows: Mapping[tuple[str, int], Message | Bad]
    ranges: Ranges | None = None
    """None: from the first to the last offset of each log."""
    gaps: Sequence[Gap] = ()
    mirrored: int = NOON + 60_000


def message(number: int, destination: str = "orders", **fields: object) -> Message:
    """Return a message, one second later than the one before it."""
    born = NOON + number * 1000
    made = Message(
        destination,
        f"body {number}".encode(),
        message_id=f"{destination}-{number}",
        born_timestamp=born,
        store_timestamp=born + 5,
    )
    return made._replace(**fields)  # type: ignore[arg-type]  # by name, as the test has them


def some(count: int, destination: str = "orders", first: int = 0) -> dict[tuple[str, int], Message | Bad]:
    """Return rows of one log, with the offsets from `first` on."""
    return {(f"{destination}/0", n): message(n, destination) for n in range(first, first + count)}


def make_mirror(out: Path | str, batches: Iterable[Batch], *, backend: str = "kafka") -> Record:
    """Commit the batches as a job would have, after those that are there."""
    create(str(out))
    record = Table.require(str(out)).record() or Record(QUERY, -1)
    for batch in batches:
        ranges = _ranges(batch.rows) if batch.ranges is None else batch.ranges
        record = record.after(QUERY, record.batch + 1, batch.mirrored, ranges, batch.gaps)
        table = _table(batch, backend)
        bad = pc.is_valid(table["error"])
        _append(out, MESSAGES, table.filter(pc.invert(bad)), record)
        if pc.any(bad).as_py():
            _append(out, QUARANTINE, table.filter(bad), record)
    return record


def _ranges(rows: Mapping[tuple[str, int], object]) -> dict[str, tuple[int, int]]:
    logs: dict[str, list[int]] = {}
    for log, offset in rows:
        logs.setdefault(log, []).append(offset)
    return {log: (min(offsets), max(offsets) + 1) for log, offsets in logs.items()}


def _table(batch: Batch, backend: str) -> pa.Table:
    rows = Rows(backend)
    for (log, offset), what in batch.rows.items():
        if isinstance(what, Bad):
            rows.add_bad(what.error, what.raw, what.destination, log, offset)
        else:
            rows.add(what, log, offset)
    table = pa.Table.from_batches([rows.take()])
    mirrored = datetime.fromtimestamp(batch.mirrored / 1000, UTC)
    added = {
        "mirrored_timestamp": pa.array([mirrored] * len(table), pa.timestamp("us", tz="UTC")),
        "schema_version": pa.array([SCHEMA_VERSION] * len(table), pa.int32()),
        PARTITION: pa.array([f"{mirrored:%Y-%m-%d}"] * len(table), pa.string()),
    }
    for name, column in added.items():
        table = table.append_column(name, column)
    return table.select(COLUMNS)


def _append(out: Path | str, name: str, table: pa.Table, record: Record) -> None:
    place = location(str(out), MESSAGES if name == MESSAGES else QUARANTINE)
    metadata = CommitProperties(custom_metadata={"userMetadata": to_json(record)})
    write_deltalake(
        place,
        table,
        mode="append",
        partition_by=[PARTITION],
        commit_properties=metadata,
        storage_options=storage_options(),
    )
