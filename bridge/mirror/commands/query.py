"""`mirror query`: SQL over the mirror."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, NamedTuple

import click

from bridge.cli.options import TEXT
from bridge.cli.run_command import NO_MESSAGE
from bridge.mirror.commands.shared_options import out_option
from bridge.mirror.commands.stated import stated

_SHOWN: Final = 100
"""Rows that a person is shown unless they ask for more."""
_BY_ID: Final = "message_id = $id"
_BY_TRACE: Final = (
    "trace_id = $id OR substr(traceparent, 4, 32) = lower($id)"  # DuckDB 2.0 fails on split_part of a null column
)


@click.command()
@click.argument("sql", required=False, type=TEXT)
@out_option
@click.option("--message-id", type=TEXT, help="Show everything about this message, and its dead letter.")
@click.option("--trace-id", type=TEXT, help="The same for all messages of a trace: by traceId or traceparent.")
@click.option(
    "--as-of", metavar="WHEN", help="Read the mirror as it was: a version, or a time: 2026-11-21T07:30 (UTC)."
)
@click.option("--limit", type=click.IntRange(1), help=f"Maximum number of rows; default: {_SHOWN}, with --json all.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per row.")
def query(sql: str | None, out: str, limit: int | None, as_json: bool, **given: Any) -> None:  # noqa: ANN401 - click's
    """Run SQL over the views messages, dead_letters and quarantine, with DuckDB. It can only read.

    The columns are those of docs/mirror-schema.md; dead letters are among the messages too. If a query names a date
    and an hour, only their files are opened. In JSON, bytes that are not text are {"base64": ...}, times are ISO 8601
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
    with stated(as_json=as_json):
        request = _Request(out, text, values, _moment(given["as_of"]))
        found = _query(request, limit or (None if as_json else _SHOWN), as_json=as_json)
    if values and not found:
        if not as_json:
            click.echo("There is no such message in this mirror.", err=True)
        sys.exit(NO_MESSAGE)


class _Request(NamedTuple):
    out: str
    sql: str
    values: Mapping[str, str]
    as_of: int | datetime | None


def _moment(text: str | None) -> int | datetime | None:
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        raise click.UsageError(f"--as-of: {text} is neither a version nor a time such as 2026-11-21T07:30.") from None


def _find(condition: str) -> str:
    from bridge.mirror.table import NAMES

    parts = (f"SELECT '{name}' AS \"table\", * FROM {name} WHERE {condition}" for name in NAMES)  # noqa: S608
    return " UNION ALL BY NAME ".join(parts) + " ORDER BY store_timestamp, destination"


def _query(request: _Request, limit: int | None, *, as_json: bool) -> int:
    from bridge.mirror.answers import as_lines, as_records, as_table
    from bridge.mirror.query import ask

    with ask(*request) as answer:
        if as_json:
            number = 0
            for number, line in enumerate(as_lines(answer.columns, islice(answer.rows, limit)), 1):  # noqa: B007
                click.echo(line)
            return number
        rows = list(islice(answer.rows, limit))
        more = next(answer.rows, None) is not None
        (as_records if request.values else as_table)(answer.columns, rows)
    if more:
        click.echo(f"Only the first {limit:,} rows are shown; --limit shows more.", err=True)
    return len(rows)
