"""A mirror made by hand, in the layout and with the manifests of a real one, for tests of what reads mirrors."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from bridge.message import Message
from bridge.mirror import layout
from bridge.mirror.manifest import File, Gap, Manifest, Ranges, to_json
from bridge.mirror.rows import Rows
from bridge.mirror.schema import ARROW, FILE, SCHEMA_VERSION

QUERY: Final = "5b6c3d1e-8a11-4b8e-9f0a-2f6c1d7e4a90"
NOON: Final = 1_763_726_400_000
"""2025-11-21 12:00 UTC."""

_ESCAPED: Final = set("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(1, 32)}
"""What Spark writes as `%XX` in the name of a folder."""
_SCHEMA: Final = pa.schema([pa.field(column.name, ARROW[column.kind]) for column in FILE])


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


def make_mirror(out: Path, batches: Iterable[Batch], *, backend: str = "kafka") -> list[Manifest]:
    """Write files and manifests as a job would have."""
    made = []
    for number, batch in enumerate(batches):
        key = layout.batch_key(QUERY, number)
        adds = tuple(_write(out, f"{QUERY[:8]}-{number}-{n}", *part) for n, part in enumerate(_parts(batch, backend)))
        ranges = _ranges(batch.rows) if batch.ranges is None else batch.ranges
        manifest = Manifest(key, batch.mirrored, ranges, tuple(batch.gaps), adds)
        place = out / layout.manifest(key)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(to_json(manifest))
        made.append(manifest)
    return made


def _ranges(rows: Mapping[tuple[str, int], object]) -> dict[str, tuple[int, int]]:
    logs: dict[str, list[int]] = {}
    for log, offset in rows:
        logs.setdefault(log, []).append(offset)
    return {log: (min(offsets), max(offsets) + 1) for log, offsets in logs.items()}


def _parts(batch: Batch, backend: str) -> list[tuple[str, pa.Table]]:
    rows = Rows(backend)
    for (log, offset), what in batch.rows.items():
        if isinstance(what, Bad):
            rows.add_bad(what.error, what.raw, what.destination, log, offset)
        else:
            rows.add(what, log, offset)
    if not batch.rows:
        return []
    table = pa.Table.from_batches([rows.take()])
    count = len(table)
    table = table.append_column("mirrored_timestamp", pa.array([batch.mirrored * 1000] * count, pa.int64()))
    table = table.append_column("schema_version", pa.array([SCHEMA_VERSION] * count, pa.int32()))
    folders: dict[str, list[int]] = {}
    for at, (area, destination, stored) in enumerate(
        zip(*(table[name].to_pylist() for name in ("area", "destination", "store_timestamp")), strict=True)
    ):
        moment = stored or datetime.fromtimestamp(batch.mirrored / 1000, UTC)
        folders.setdefault(f"{area}/{_folder(destination, moment)}", []).append(at)
    bare = table.select(_SCHEMA.names).cast(_SCHEMA)
    return [(folder, bare.take(at)) for folder, at in folders.items()]


def _folder(destination: str, moment: datetime) -> str:
    escaped = "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in destination)
    return f"destination={escaped}/date={moment:%Y-%m-%d}/hour={moment:%H}"


def _write(out: Path, name: str, folder: str, table: pa.Table) -> File:
    path = out / folder / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return File(f"{folder}/{name}.parquet", len(table), path.stat().st_size)
