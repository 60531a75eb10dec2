"""SQL over a mirror with DuckDB, reading only: DuckDB gets the tables' rows as views and can open nothing itself."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import duckdb
import pyarrow.dataset as pds

from adapters.base import DEAD_LETTER_SUFFIX
from bridge.errors import CannotStart
from bridge.mirror.schema import Area
from bridge.mirror.table import MESSAGES, QUARANTINE, Table, shown

DEAD_LETTER: Final = f"ends_with(destination, '{DEAD_LETTER_SUFFIX}')"
"""Whether a row is the copy of a message that could not be delivered, as SQL."""
AREAS: Final[Mapping[Area, str]] = {"data": f"NOT {DEAD_LETTER}", "dead-letters": DEAD_LETTER}
"""The areas of the table of messages, as SQL."""

Row = tuple[Any, ...]  # of whatever the query selects


class Result(NamedTuple):
    """The rows that a query returns."""

    columns: list[str]
    rows: Iterator[Row]


@contextmanager
def run_query(
    out: str, sql: str, values: Mapping[str, str] | None = None, as_of: int | datetime | None = None
) -> Iterator[Result]:
    """Run one statement over the views of `connect`; `values` stand in it as `$name`.

    `as_of`: a version of the table of messages, or a time. Raises `CannotStart` if there is no mirror or the
    statement is wrong; so may the iteration over rows.
    """
    with connect(out, as_of) as connection:
        connection.execute("SET lock_configuration = true")
        connection.execute(sql, dict(values or {}))
        columns = [column[0] for column in connection.description or ()]
        yield Result(columns, iter(connection.fetchone, None))


@contextmanager
def connect(out: str, as_of: int | datetime | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a DuckDB with the views `messages`, `dead_letters`, which are also messages, and `quarantine`.

    It can read no file and reach no network. Raises `CannotStart`, also for what DuckDB raises in the block: a
    statement is wrong, or a file is missing.
    """
    if as_of is None:
        quarantine = Table.require(out, QUARANTINE)  # first: its rows are covered by the offsets of the other table
        messages = Table.require(out)
    else:
        messages = Table.require(out, as_of=as_of)
        when = datetime.fromtimestamp(messages.time / 1000, UTC)
        if isinstance(as_of, datetime) and when > as_of:
            raise CannotStart(f"{shown(out)} has no version of {as_of}: the oldest is of {when}.")
        quarantine = Table.require(out, QUARANTINE, when if isinstance(as_of, int) else as_of)
    with sandbox({MESSAGES: messages.dataset(), QUARANTINE: quarantine.dataset()}) as connection:
        connection.execute(f"CREATE VIEW dead_letters AS FROM {MESSAGES} WHERE {DEAD_LETTER}")
        yield connection


@contextmanager
def sandbox(tables: Mapping[str, pds.Dataset]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a DuckDB that has only these tables, and no access to files or the network. Raises `CannotStart`."""
    try:
        with TemporaryDirectory(prefix="oms-query-") as spill, duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("SET python_enable_replacements = false")  # a name in SQL is no variable of this program
            connection.execute(f"SET temp_directory = {quoted(spill)}")
            connection.execute("SET enable_external_access = false")
            for name, rows in tables.items():
                connection.register(name, rows)
            yield connection
    except duckdb.Error as error:
        raise CannotStart(f"The query failed: {error}") from None


def one_of(column: str, texts: Iterable[str]) -> str:
    """Return the condition that a column holds one of the texts, as SQL."""
    return f"{column} IN ({', '.join(map(quoted, texts))})"


def quoted(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"
