"""How the rows of a query are printed: a table, one field a line, or JSON.

Messages are what others wrote: on a terminal nothing of them is an escape sequence, and nothing is rich's markup.
"""

import base64
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bridge.cli.run_command import printable
from bridge.mirror.query import Row

_WIDE: Final = 8
"""Columns beyond which a table cannot be read: each row is shown alone."""
_UNBROKEN: Final = 100_000
"""Columns of characters where the output is no terminal: there a line is a row."""


def as_lines(columns: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    """Return each row as an object of JSON."""
    for row in rows:
        yield json.dumps({name: plain(value) for name, value in zip(columns, row, strict=True)})


def as_table(columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Print a table."""
    if len(columns) > _WIDE and rows:
        as_records(columns, rows)
        return
    table = Table()
    for name in columns:
        table.add_column(Text(printable(name)), overflow="fold")
    for row in rows:
        table.add_row(*(Text(_shown(value)) for value in row))
    _console().print(table)


def as_records(columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Print one field a line, with an empty line between rows; what is null is left out."""
    width = max(map(len, columns), default=0)
    console = _console()
    for number, row in enumerate(rows):
        if number:
            console.print()
        for name, value in zip(columns, row, strict=True):
            if value is not None:
                console.print(Text(f"{printable(name):<{width}}  {_shown(value)}"), soft_wrap=True)


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


def _console() -> Console:
    return Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else _UNBROKEN)
