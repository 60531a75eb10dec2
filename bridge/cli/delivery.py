"""A message on its way to the terminal, in one of three forms."""
# ruff: noqa: PLC0415 - the imports: see bridge/cli/__init__.py

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from bridge.cli.output import printable

if TYPE_CHECKING:
    from bridge.client import Delivery


def printer(*, raw: bool, as_json: bool) -> "Callable[[Delivery], None]":
    """Return what prints a message and flushes. Raises `UsageError` for both forms at once."""
    if raw and as_json:
        raise click.UsageError("Give either --raw or --json.")
    form: Callable[[Delivery], bytes] = _raw if raw else _json if as_json else _text
    return lambda delivery: _write(form(delivery))


def _write(data: bytes) -> None:
    """Write all of it, or raise: `click.echo` takes a pipe that broke halfway for success under PYTHONUNBUFFERED."""
    stream, rest = sys.stdout.buffer, memoryview(data)
    while rest:
        rest = rest[stream.write(rest) :]
    stream.flush()


def _raw(delivery: "Delivery") -> bytes:
    return delivery.message.body


def _json(delivery: "Delivery") -> bytes:
    from bridge.wire.jsonform import encode

    lease = {"receipt": delivery.receipt, "leaseUntil": delivery.lease_until}
    return json.dumps(encode(delivery.message) | lease).encode("ascii") + b"\n"


def _text(delivery: "Delivery") -> bytes:
    """Write the headers as they travel, a blank line, the body."""
    from bridge.wire.headers import encode

    lines = [b"%b: %b" % pair for pair in encode(delivery.message)]
    if delivery.receipt is not None:
        lines.append(f"x-oms-receipt: {printable(delivery.receipt)}".encode())
    try:
        text = printable(delivery.message.body.decode())
    except UnicodeDecodeError:
        text = f"({len(delivery.message.body)} bytes that are not text; --raw prints them)"
    return b"%b\n\n%b\n\n" % (b"\n".join(lines), text.encode())
