"""Observations of `mirror verify`, by DuckDB: the rows of the tables, beside their logs and the recorded offsets."""

from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfileobj
from tempfile import NamedTemporaryFile
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds

from bridge.errors import CannotStart
from bridge.mirror.offsets import Ranges, Record
from bridge.mirror.query import connect, quoted
from bridge.mirror.table import MESSAGES, NAMES, QUARANTINE, Name, Table
from bridge.mirror.verify import FileObservation, Ledger, LedgerEntry, Observations, Span

_AT_ONCE: Final = 8
"""Threads for the files: each reads a footer, on an object store by requests."""
_ROWS: Final = f'SELECT log, "offset" FROM {MESSAGES} UNION ALL SELECT log, "offset" FROM {QUARANTINE}'  # noqa: S608 - ours


def gather(out: str, bounds: Callable[[], Ranges] | None, ledger: str | None, names: int | None) -> Observations:
    """Look at everything; `names`: at most so many messages of the ledger by name, None: all that are wrong.

    The job may run meanwhile. Raises `CannotStart`, and what `bounds` raises.
    """
    before = (Table.require(out).record() or Record()).next  # first: what the backend keeps only grows
    kept = None if bounds is None else _current_bounds(bounds, before)
    files = [found for name in NAMES for found in _files(out, name)]
    with connect(out) as connection:
        after = Table.require(out).record() or Record()
        return Observations(
            files=files,
            doubled=_spans(connection, f'SELECT log, "offset" FROM ({_ROWS}) GROUP BY ALL HAVING count(*) > 1'),  # noqa: S608 - ours
            uncovered=_uncovered(connection, after.covered),
            covered=after.covered,
            gaps=after.gaps,
            before=before,
            bounds=kept,
            ledger=None if ledger is None else _reconcile(connection, ledger, names),
        )


def _current_bounds(bounds: Callable[[], Ranges], reached: Mapping[str, int]) -> Ranges:
    """Ask again if a log seems shorter than the mirror: the end that RabbitMQ reports may be too early."""
    found = bounds()
    if all(end >= reached.get(log, 0) for log, (_, end) in found.items()):
        return found
    return {log: (first, max(end, found.get(log, (0, 0))[1])) for log, (first, end) in bounds().items()}


def _files(out: str, name: Name) -> Iterator[FileObservation]:
    table = Table.require(out, name)
    dataset = table.dataset()
    expected = {file.path: file for file in table.files()}
    sizes = {found.path: found.size for found in dataset.filesystem.get_file_info(list(expected))}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for path, rows in pool.map(_counted, dataset.get_fragments()):
            file = expected[path]
            yield FileObservation(f"{name}/{path}", file.rows, file.bytes, sizes.get(path), rows)


def _counted(fragment: pds.Fragment) -> tuple[str, int | None]:
    """Return the rows of a file by its footer; None: it cannot be read."""
    try:
        return fragment.path, fragment.count_rows()
    except (OSError, pa.ArrowException):
        return fragment.path, None


def _uncovered(connection: duckdb.DuckDBPyConnection, covered: Ranges) -> dict[str, Span]:
    connection.execute('CREATE TABLE covered (log VARCHAR, "start" BIGINT, stop BIGINT)')
    if covered:
        connection.executemany("INSERT INTO covered VALUES (?, ?, ?)", [(log, *pair) for log, pair in covered.items()])
    within = 'FROM covered AS c WHERE c.log = r.log AND r."offset" >= c."start" AND r."offset" < c.stop'
    return _spans(connection, f"SELECT * FROM ({_ROWS}) AS r WHERE NOT EXISTS ({within})")  # noqa: S608 - ours


def _spans(connection: duckdb.DuckDBPyConnection, rows: str) -> dict[str, Span]:
    spans = f'SELECT log, count(*), min("offset"), max("offset") FROM ({rows}) GROUP BY log'  # noqa: S608 - ours
    try:
        found = connection.execute(spans).fetchall()
    except duckdb.Error:  # a file that cannot be read; `_files` reports which
        return {}
    return {log or "(no log)": Span(count, first, last) for log, count, first, last in found}


def _reconcile(connection: duckdb.DuckDBPyConnection, ledger: str, names: int | None) -> Ledger | None:
    """Compare a producer's ledger with the messages: each confirmed message exactly once.

    Returns None if a file of the messages cannot be read. Raises `CannotStart` for what is no ledger.
    """
    connection.register("confirmed", _confirmed(ledger))
    dead = "ends_with(m.destination, '.dlq')"
    entry = f"""
        CREATE TABLE reconciled AS
        SELECT c.*, (count(m.message_id))::BIGINT AS copies FROM confirmed AS c
        LEFT JOIN (SELECT message_id, destination FROM {MESSAGES}) AS m ON m.message_id = c.message_id
        AND CASE WHEN c.destination IS NULL THEN NOT {dead} ELSE m.destination = c.destination END
        GROUP BY ALL
    """  # noqa: S608 - ours; a line that names no destination means the message, not its dead letter
    try:
        connection.execute(entry)
    except duckdb.Error:  # `_files` reports the file
        return None
    sums = "SELECT coalesce(sum(confirmed), 0)::BIGINT, count_if(copies < confirmed), count_if(copies > confirmed)"
    total, missing, doubled = connection.execute(f"{sums} FROM reconciled").fetchone() or (0, 0, 0)
    limit = "" if names is None else f"LIMIT {names}"
    named = [
        LedgerEntry(*row)
        for wrong in ("copies < confirmed", "copies > confirmed")
        for row in connection.execute(
            f"SELECT message_id, destination, confirmed, copies FROM reconciled WHERE {wrong} ORDER BY ALL {limit}"  # noqa: S608
        ).fetchall()
    ]
    return Ledger(total, missing, doubled, named)


def _confirmed(ledger: str) -> pa.Table:
    """Return how often each message was confirmed."""
    if not Path(ledger).exists():
        raise CannotStart(f"ledger: there is no file {ledger}.")
    fields = "{'messageId': 'VARCHAR', 'destination': 'VARCHAR'}"
    options = f"format = 'newline_delimited', ignore_errors = true, columns = {fields}"
    counted = "SELECT messageId AS message_id, destination, count(*) AS confirmed"
    try:
        with duckdb.connect() as connection, _without_mark(ledger) as readable:
            rows = connection.sql(f"{counted} FROM read_json({quoted(readable)}, {options}) GROUP BY ALL")
            confirmed: pa.Table = rows.to_arrow_table()
    except duckdb.Error as error:
        raise CannotStart(f"ledger: {ledger} cannot be read: {error}") from None
    if bad := pc.sum(confirmed.filter(pc.field("message_id").is_null())["confirmed"]).as_py():
        raise CannotStart(f"ledger: {bad} lines of {ledger} are no JSON object with a messageId.")
    return confirmed


@contextmanager
def _without_mark(ledger: str) -> Iterator[str]:
    """Return the path of a file without a byte order mark, which DuckDB takes for text of the first line."""
    with Path(ledger).open("rb") as file:
        if file.read(len(BOM_UTF8)) != BOM_UTF8:
            yield ledger
            return
        with NamedTemporaryFile(suffix=".ndjson") as copy:
            copyfileobj(file, copy)
            copy.flush()
            yield copy.name
