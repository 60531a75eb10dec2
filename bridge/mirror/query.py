"""SQL over a mirror on this machine's disk, with DuckDB: reading only.

Two walls. DuckDB itself opens nothing outside the mirror. Inside it could still write, and a statement that begins
with SELECT may: `WITH c AS (COPY … TO 'data/x.parquet') SELECT 1` wrote its file under DuckDB 2.0. So a statement is
parsed first, and only what is known to read goes through.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from glob import escape
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import duckdb

from bridge.errors import CannotStart
from bridge.mirror.layout import CHECKPOINT, MANIFESTS
from bridge.mirror.schema import FILE, PATH, Area, Kind

VIEWS: Final[Mapping[str, Area]] = MappingProxyType(
    {"messages": "data", "dead_letters": "dead-letters", "quarantine": "quarantine"}
)
"""What a query selects from, and the area that it is."""

_TYPES: Final[Mapping[Kind, str]] = {
    "string": "VARCHAR",
    "bigint": "BIGINT",
    "int": "INTEGER",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "binary": "BLOB",
    "map": "MAP(VARCHAR, VARCHAR)",
}
_COLUMNS: Final = {c.name: _TYPES[c.kind] for c in FILE} | dict.fromkeys(PATH, "VARCHAR")

_NODES: Final = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_FUNCTIONS: Final = frozenset({"range", "generate_series", "unnest", "json_each", "json_tree", "repeat"})
"""Table functions that open nothing and run no text as SQL, as `query` does."""

_AT_ONCE: Final = 1000
_TRIES: Final = 5
_VANISHED: Final = ("No such file", "No files found")

Row = tuple[Any, ...]  # of whatever the query selects


class Answer(NamedTuple):
    """What a query found."""

    columns: list[str]
    rows: Iterator[Row]


@contextmanager
def ask(out: str, sql: str, values: Mapping[str, str] | None = None) -> Iterator[Answer]:
    """Run one SELECT over the views `VIEWS`; `values` stand in it as `$name`.

    Raises `CannotStart` for what is no mirror on this machine, no SELECT, or wrong; so may the iteration over rows.
    """
    root = _root(out)
    with TemporaryDirectory(prefix="oms-query-") as spill, duckdb.connect() as connection:
        try:
            _restrict(connection, root, spill)
            check(connection, sql)
            columns, first = _begin(connection, root, sql, values or {})
            yield Answer(columns, chain(first, _rest(connection)))
        except duckdb.Error as error:
            raise CannotStart(f"The query failed: {error}") from None


def check(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Raise `CannotStart` unless the text is one statement that only reads."""
    (text,) = connection.execute("SELECT json_serialize_sql($sql)", {"sql": sql}).fetchone() or ("{}",)
    parsed = json.loads(text)
    if parsed["error"]:
        raise CannotStart(f"The query is not a SELECT that can be read: {parsed['error_message']}")
    if len(parsed["statements"]) != 1:
        raise CannotStart("A query is one SELECT statement.")
    for refused in _refused(parsed):
        raise CannotStart(f"A query only reads the mirror, by its views {', '.join(VIEWS)}: {refused} is refused.")


def _refused(parsed: object) -> Iterator[str]:
    if isinstance(parsed, list):
        for item in parsed:
            yield from _refused(item)
    elif isinstance(parsed, dict):
        if "cte_map" in parsed and parsed.get("type") not in _NODES:  # every node of a query has a cte_map
            yield str(parsed.get("type")).removesuffix("_QUERY_NODE")
        if parsed.get("type") == "TABLE_FUNCTION":
            name = str(parsed["function"]["function_name"])
            if name.lower() not in _FUNCTIONS:
                yield f"{name}()"
        for item in parsed.values():
            yield from _refused(item)


def _root(out: str) -> Path:
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):(//[^/]*)?(?=/)", out)
    if scheme and scheme[1].lower() != "file":
        raise CannotStart(
            f"`query` reads a mirror on this machine's disk, not on {scheme[1]}://. "
            "Read it with Spark, by the schema of docs/mirror-schema.md."
        )
    root = Path(out[scheme.end() :] if scheme else out).absolute()
    if not any((root / name).is_dir() for name in (MANIFESTS, CHECKPOINT)):
        raise CannotStart(f"There is no mirror in {root}.")
    return root


def _restrict(connection: duckdb.DuckDBPyConnection, root: Path, spill: str) -> None:
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET parquet_metadata_cache = true")  # a query binds twice: for its view and for itself
    connection.execute("SET autoload_known_extensions = false")
    connection.execute(f"SET temp_directory = {_quoted(spill)}")
    allowed = (_quoted(f"{place}/") for place in (str(root), escape(str(root))))  # a pattern is judged as it is written
    connection.execute(f"SET allowed_directories = [{', '.join(allowed)}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _begin(
    connection: duckdb.DuckDBPyConnection, root: Path, sql: str, values: Mapping[str, str]
) -> tuple[list[str], list[Row]]:
    """Return the columns and the first rows; once more if a compaction took a file away in between."""
    for tried in range(1, _TRIES + 1):
        try:
            _define(connection, root, sql)
            result = connection.execute(sql, dict(values))
            return [column[0] for column in result.description or ()], result.fetchmany(_AT_ONCE)
        except duckdb.IOException as error:
            if tried == _TRIES or not any(sign in str(error) for sign in _VANISHED):
                raise
    raise AssertionError


def _rest(connection: duckdb.DuckDBPyConnection) -> Iterator[Row]:
    while rows := connection.fetchmany(_AT_ONCE):
        yield from rows


def _define(connection: duckdb.DuckDBPyConnection, root: Path, sql: str) -> None:
    """Make the views that a query names: each opens all of its files, 0.3 ms a file."""
    named = [view for view in VIEWS if view in sql.lower()]
    for view in named or VIEWS:
        connection.execute(f"CREATE OR REPLACE VIEW {view} AS {_view(root / VIEWS[view])}")


def _view(folder: Path) -> str:
    """Return the SELECT of an area: every column of its type, whether or not there is a file that has it."""
    nothing = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in _COLUMNS.items())
    select = f"SELECT {nothing} WHERE false"
    if next(folder.glob("**/*.parquet"), None) is None:
        return select
    places = ", ".join(f"'{name}': 'VARCHAR'" for name in PATH)  # else a destination 007 would be a number
    files = _quoted(f"{escape(str(folder))}/**/*.parquet")
    options = f"hive_partitioning = true, hive_types = {{{places}}}, union_by_name = true"
    return f"{select} UNION ALL BY NAME SELECT * FROM read_parquet({files}, {options})"  # noqa: S608 - quoted


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
