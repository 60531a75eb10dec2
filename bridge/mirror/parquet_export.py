"""What the mirror holds as plain Parquet, for readers without Delta: `<out>/parquet/date=…/<after>.parquet`.

A file holds the messages that were mirrored after the time in its name (ms since 1970), up to the time in its metadata,
on the day of its folder. The chain of files says what is exported. A file appears at once and whole: a killed export
leaves nothing, and the next one goes on. Batches have increasing times, so no row is left out.
"""

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.fs
import pyarrow.parquet as pq

from bridge.errors import CannotStart
from bridge.mirror.query import sandbox
from bridge.mirror.schema import PARTITION, TABLE_SCHEMA
from bridge.mirror.table import MESSAGES, Day, Table, location, store

FOLDER: Final = "parquet"
_UPTO: Final = b"oms-mirrored-upto"
"""Key in a file's metadata: the time up to which its messages were mirrored, ms since 1970."""
CLOSED_AFTER: Final = timedelta(hours=1)
"""From the end of an hour until `mirror run --export` takes what was mirrored in it; also the default of `mirror export
--after`."""
_EVERY: Final = 60.0
"""Seconds between two exports of `mirror run --export`."""
_LAST_FILE: Final = 30.0
"""Seconds that its last export has to end; the next run repeats one that is cut short."""
_GROUP_ROWS: Final = 65_536
_FILE_SCHEMA: Final = TABLE_SCHEMA.remove(TABLE_SCHEMA.get_field_index(PARTITION))
"""The partition stands in the path."""

_log = logging.getLogger("bridge.mirror")


class Exported(NamedTuple):
    """One file."""

    path: str
    """Relative to the mirror."""
    rows: int


def export(out: str, closed: datetime) -> Iterator[Exported]:
    """Export what was mirrored in the hours that ended by `closed`, the oldest first; only one export may run.

    Raises `CannotStart`.
    """
    table = Table.require(out)
    place = store(location(out, ""))
    ended = closed.replace(minute=0, second=0, microsecond=0)
    for day, files in table.days().items():
        upto = round(min(ended, max(file.mirrored for file in files)).timestamp() * 1000)
        folder = f"{FOLDER}/date={day.date}"
        after = _exported(place, folder)
        if upto > after:
            path = f"{folder}/{after:013d}.parquet"
            try:
                rows = _write(table, day, after, upto, place, path)
            except pa.ArrowException as error:  # a damaged file; one that is missing is an OSError
                raise CannotStart(f"{day.path} cannot be exported: {error}") from None
            if rows:
                yield Exported(path, rows)


@contextmanager
def exporting(out: str) -> Iterator[None]:
    """Export closed hours in a thread while the block runs: at once, and then every minute. A failure is logged."""
    over = threading.Event()

    def repeat() -> None:
        while not over.is_set():
            try:
                for file in export(out, datetime.now(UTC) - CLOSED_AFTER):
                    _log.info("messages of a closed hour are exported", extra=file._asdict())
                    if over.is_set():
                        return
            except Exception as error:  # noqa: BLE001 - of the table, its files and their store
                _log.warning("closed hours could not be exported; this is tried again", extra={"reason": str(error)})
            over.wait(_EVERY)

    thread = threading.Thread(target=repeat, name="oms-mirror-export", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_LAST_FILE)


def erase(out: str, condition: str, *, dry_run: bool) -> Iterator[Exported]:
    """Write the files anew that have rows for which a condition in SQL holds; yield how many rows of each go.

    A file without other rows stays, empty: its metadata says what was exported. Raises `CannotStart`.
    """
    place = store(location(out, ""))
    for path in _names(place, FOLDER):
        # with all columns, as a condition may name one that an older file lacks
        rows = pds.dataset(path, schema=TABLE_SCHEMA, filesystem=place, partitioning="hive")
        with sandbox({MESSAGES: rows}) as connection:
            matching = f"SELECT count(*) FROM {MESSAGES} WHERE {condition}"  # noqa: S608 - an operator's own SQL
            [(count,)] = connection.execute(matching).fetchall()
            if count and not dry_run:
                with place.open_input_file(path) as file:
                    schema = _FILE_SCHEMA.with_metadata(pq.read_schema(file).metadata)
                staying = f"SELECT * EXCLUDE ({PARTITION}) FROM {MESSAGES} WHERE ({condition}) IS NOT TRUE"  # noqa: S608
                batches = connection.sql(staying).to_arrow_reader(_GROUP_ROWS)
                _write_file(place, path, schema, (batch.cast(schema) for batch in batches))
        if count:
            yield Exported(path, count)


def _exported(place: pyarrow.fs.FileSystem, folder: str) -> int:
    """Return the time up to which a day is exported; 0: not at all."""
    names = _names(place, folder)
    if not names:
        return 0
    with place.open_input_file(names[-1]) as newest:
        return int(pq.read_metadata(newest).metadata[_UPTO])


def _names(place: pyarrow.fs.FileSystem, folder: str) -> list[str]:
    found = place.get_file_info(pyarrow.fs.FileSelector(folder, allow_not_found=True, recursive=True))
    return sorted(file.path for file in found if file.path.endswith(".parquet"))


def _write(  # noqa: PLR0913, PLR0917 - which rows, and where to
    table: Table, day: Day, after: int, upto: int, place: pyarrow.fs.FileSystem, path: str
) -> int:
    """Write a file, if it has a row; return how many."""
    dataset = table.dataset()
    mirrored = pds.field("mirrored_timestamp")
    rows = (mirrored > _moment(after)) & (mirrored <= _moment(upto)) & (pds.field(PARTITION) == day.date)
    columns = [name for name in dataset.schema.names if name != PARTITION]  # this one stands in the path
    scanner = dataset.scanner(columns=columns, filter=rows, batch_size=_GROUP_ROWS)
    schema = scanner.projected_schema.with_metadata({_UPTO: str(upto).encode()})
    batches = (batch for batch in scanner.to_batches() if batch.num_rows)
    first = next(batches, None)
    return 0 if first is None else _write_file(place, path, schema, chain((first,), batches))


def _write_file(place: pyarrow.fs.FileSystem, path: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    count = 0
    stream = place.open_output_stream(path)  # closed only here: closing is what makes the file appear
    with pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
    stream.close()
    return count


def _moment(milliseconds: int) -> pa.Scalar:
    return pa.scalar(milliseconds * 1000, pa.timestamp("us", tz="UTC"))
