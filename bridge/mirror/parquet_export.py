"""Closed hours as plain Parquet, for readers without Delta: `<out>/parquet/date=…/hour=…/<after>.parquet`.

A file holds the messages of one hour that were mirrored after the time in its name (ms since 1970), up to the time in
its metadata; rows that come late are further files, and the chain says what is exported. A file appears at once and
whole: a killed export leaves nothing, and the next one goes on. Batches have increasing times, so no row is left out.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.fs
import pyarrow.parquet as pq

from bridge.errors import CannotStart
from bridge.mirror.schema import PARTITION
from bridge.mirror.table import Hour, Table, location, store

FOLDER: Final = "parquet"
_UPTO: Final = b"oms-mirrored-upto"
"""Key in a file's metadata: the time up to which its messages were mirrored, ms since 1970."""
CLOSED_AFTER: Final = timedelta(hours=1)
"""From the end of an hour until `mirror run --export` takes it; also the default of `mirror export --after`."""
_EVERY: Final = 60.0
"""Seconds between two exports of `mirror run --export`."""
_LAST_FILE: Final = 30.0
"""Seconds that its last export has to end; the next run repeats one that is cut short."""
_GROUP_ROWS: Final = 65_536

_log = logging.getLogger("bridge.mirror")


class Exported(NamedTuple):
    """One file."""

    path: str
    """Relative to the mirror."""
    rows: int


def export(out: str, closed: datetime) -> Iterator[Exported]:
    """Export hours that ended by `closed`, the oldest first; only one export may run. Raises `CannotStart`."""
    table = Table.require(out)
    place = store(location(out, ""))
    for hour, files in table.hours().items():
        if not hour.ended(closed):
            continue
        folder = f"{FOLDER}/date={hour.date}/hour={hour.hour}"
        upto = max(round(file.mirrored.timestamp() * 1000) for file in files)
        after = _exported(place, folder)
        if upto > after:
            path = f"{folder}/{after:013d}.parquet"
            try:
                yield Exported(path, _write(table, hour, after, upto, place, path))
            except pa.ArrowException as error:  # a damaged file; one that is missing is an OSError
                raise CannotStart(f"{hour.path} cannot be exported: {error}") from None


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


def _exported(place: pyarrow.fs.FileSystem, folder: str) -> int:
    """Return the time up to which an hour is exported; 0: not at all."""
    found = place.get_file_info(pyarrow.fs.FileSelector(folder, allow_not_found=True))
    names = sorted(file.path for file in found if file.path.endswith(".parquet"))
    if not names:
        return 0
    with place.open_input_file(names[-1]) as newest:
        return int(pq.read_metadata(newest).metadata[_UPTO])


def _write(  # noqa: PLR0913, PLR0917 - which rows, and where to
    table: Table, hour: Hour, after: int, upto: int, place: pyarrow.fs.FileSystem, path: str
) -> int:
    dataset = table.dataset()
    mirrored = pds.field("mirrored_timestamp")
    rows = (mirrored > _moment(after)) & (mirrored <= _moment(upto))
    rows &= (pds.field("date") == hour.date) & (pds.field("hour") == hour.hour)
    columns = [name for name in dataset.schema.names if name not in PARTITION]  # these stand in the path
    scanner = dataset.scanner(columns=columns, filter=rows, batch_size=_GROUP_ROWS)
    schema = scanner.projected_schema.with_metadata({_UPTO: str(upto).encode()})
    count = 0
    stream = place.open_output_stream(path)  # closed only here: closing is what makes the file appear
    with pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        for batch in scanner.to_batches():
            if batch.num_rows:
                writer.write_batch(batch)
                count += batch.num_rows
    stream.close()
    return count


def _moment(milliseconds: int) -> pa.Scalar:
    return pa.scalar(milliseconds * 1000, pa.timestamp("us", tz="UTC"))
