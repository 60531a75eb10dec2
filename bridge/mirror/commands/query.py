"""`mirror query`: SQL over the mirror, printed as a table, one field a line, or JSON.

Messages are what others wrote: on a terminal nothing of them is an escape sequence, and nothing is rich's markup.
"""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import base64
import json
import math
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice
from typing import Any, Final

import click

from bridge.cli.command import NO_MESSAGE, TEXT, printable
from bridge.mirror.commands.options import MirrorCommand, json_option, out_option

Row = Sequence[Any]  # of whatever the query selects

_SHOWN: Final = 100
"""Rows that a person is shown unless they ask for more."""
_WIDE: Final = 8
"""Columns beyond which a table cannot be read: each row is shown alone."""
_UNBROKEN: Final = 100_000
"""Columns of characters where the output is no terminal: there a line is a row."""
_BY_ID: Final = "message_id = $id"
_BY_TRACE: Final = (
    "trace_id = $id OR substr(traceparent, 4, 32) = lower($id)"  # DuckDB 2.0 fails on split_part of a null column
)


@click.command(cls=MirrorCommand)
@click.argument("sql", required=False, type=TEXT)
@out_option
@click.option("--message-id", type=TEXT, help="Show everything about this message, and its dead letter.")
@click.option("--trace-id", type=TEXT, help="The same for all messages of a trace: by traceId or traceparent.")
@click.option(
    "--as-of", metavar="WHEN", help="Read the mirror as it was: a version, or a time: 2026-11-21T07:30 (UTC)."
)
@click.option("--limit", type=click.IntRange(1), help=f"Maximum number of rows; default: {_SHOWN}, with --json all.")
@json_option("per row")
def query(sql: str | None, out: str, limit: int | None, as_json: bool, **given: Any) -> None:  # noqa: ANN401 - click's
    """Run SQL over the views messages, dead_letters and quarantine, with DuckDB. It can only read.

    The columns are those of docs/mirror-schema.md; dead letters are among the messages too. If a query names a date,
    only the files of that day are opened. In JSON, bytes that are not text are {"base64": ...}, times are ISO 8601
    in UTC. --as-of reaches back seven days.

    Exit status: 0 done, 1 the query is wrong, 3 there is no such message or trace.

    \b
    oms-bridge mirror query --out /srv/mirror "SELECT destination, count(*) FROM messages GROUP BY ALL"
    oms-bridge mirror query --out /srv/mirror --message-id 7d1f0b6e-52d1-4b55-a6b1-5d8f0f6f5a10
    """
    message_id, trace_id = given["message_id"], given["trace_id"]
    if [sql, message_id, trace_id].count(None) != 2:  # noqa: PLR2004 - one of three
        raise click.UsageError("Give either a query, --message-id or --trace-id.")
    values = {} if sql is not None else {"id": message_id or trace_id or ""}
    text = _find(_BY_TRACE if message_id is None else _BY_ID) if sql is None else sql
    from bridge.mirror.query import run_query

    with run_query(out, text, values, _moment(given["as_of"])) as result:
        rows = islice(result.rows, limit or (None if as_json else _SHOWN))
        if as_json:
            found = _print_json(result.columns, rows)
        else:
            found = _print_rows(result.columns, list(rows), as_table=not values)
            if next(result.rows, None) is not None:
                click.echo(f"Only the first {found:,} rows are shown; --limit shows more.", err=True)
    if values and not found:
        if not as_json:
            click.echo("There is no such message in this mirror.", err=True)
        sys.exit(NO_MESSAGE)


def _moment(text: str | None) -> int | datetime | None:
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"--as-of: {text} is neither a version nor a time such as 2026-11-21T07:30.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _find(condition: str) -> str:
    from bridge.mirror.table import NAMES

    parts = (f"SELECT '{name}' AS \"table\", * FROM {name} WHERE {condition}" for name in NAMES)  # noqa: S608
    return " UNION ALL BY NAME ".join(parts) + " ORDER BY store_timestamp, destination"


def _print_json(columns: Sequence[str], rows: Iterable[Row]) -> int:
    """Print each row as an object, as soon as it is there; return how many there were."""
    number = 0
    for number, row in enumerate(rows, 1):  # noqa: B007
        click.echo(json.dumps({name: plain(value) for name, value in zip(columns, row, strict=True)}))
    return number


def _print_rows(columns: Sequence[str], rows: Sequence[Row], *, as_table: bool) -> int:
    """Print a table; if it would be too wide, or on request, one field a line, without those that are null."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else _UNBROKEN)
    if as_table and (len(columns) <= _WIDE or not rows):
        table = Table()
        for name in columns:
            table.add_column(Text(printable(name)), overflow="fold")
        for row in rows:
            table.add_row(*(Text(_shown(value)) for value in row))
        console.print(table)
        return len(rows)
    width = max(map(len, columns), default=0)
    for number, row in enumerate(rows):
        if number:
            console.print()
        for name, value in zip(columns, row, strict=True):
            if value is not None:
                console.print(Text(f"{printable(name):<{width}}  {_shown(value)}"), soft_wrap=True)
    return len(rows)


def plain(value: Any) -> Any:  # noqa: ANN401, PLR0911 - whatever a query selects; one line for each kind
    """Return a value as JSON has it: bytes that are not text become `{"base64": …}`, times ISO 8601."""
    if isinstance(value, dict):
        return {_key(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        text = _text(value)
        return {"base64": base64.b64encode(value).decode()} if text is None else text
    if isinstance(value, datetime):
        return value.isoformat().removesuffix("+00:00") + ("Z" if value.tzinfo else "")
    if isinstance(value, Decimal):
        return plain(float(value))
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)


def _key(key: Any) -> str:  # noqa: ANN401
    found = plain(key)
    return found if isinstance(found, str) else json.dumps(found)


def _shown(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, bytes) and _text(value) is None:
        return f"({len(value)} bytes that are not text; --json prints them)"
    found = plain(value)
    return printable(found) if isinstance(found, str) else json.dumps(found)


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
