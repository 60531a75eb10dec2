"""`produce`: messages in, one by one or line by line."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Final

import click

from bridge.cli.options import TEXT, talks_to_bridge
from bridge.cli.output import FAILED, document, printable
from bridge.cli.run import talk
from bridge.errors import BridgeError

if TYPE_CHECKING:
    from bridge.client import Client, Receipt
    from bridge.message import Message

_LINES: Final = 500
_LINE_BYTES: Final = 1 << 20
"""A batch of `--lines` ends at either, well inside the limits of a bridge that nobody configured."""


@click.command()
@click.argument("destination", type=TEXT)
@click.argument("body", required=False)
@talks_to_bridge
@click.option("--key", type=TEXT, help="Messages with the same key stay in order.")
@click.option("--property", "properties", type=TEXT, multiple=True, metavar="NAME=VALUE", help="May be repeated.")
@click.option("--delay-ms", type=click.IntRange(0), help="Deliver no earlier than this long from now.")
@click.option("--expire-ms", type=click.IntRange(1), help="Deliver no later than this long from now.")
@click.option("--priority", type=click.IntRange(1, 10), help="Higher goes first; 5 unless set.")
@click.option("--partition", type=click.IntRange(0), help="Instead of the one that the key chooses.")
@click.option("--content-type", type=TEXT, help="Media type of the body.")
@click.option("--require", type=TEXT, multiple=True, metavar="FIELD", help="Refuse unless the field is honoured.")
@click.option("--file", type=click.File("rb"), help="Read the body from a file; - is standard input.")
@click.option("--lines", is_flag=True, help="Each line of the file is a message of its own.")
def produce(body: str | None, file: IO[bytes] | None, lines: bool, **given: Any) -> None:  # noqa: ANN401 - click's
    """Put a message into DESTINATION and print where it is stored.

    With --lines messages travel in batches, each judged on its own; the first batch with a failure is the last one.

    \b
    oms-bridge produce orders '{"id": 7}' --key customer-12 --property region=eu
    oms-bridge produce reminders 'call back' --delay-ms 60000 --require delayTime
    zcat orders.ndjson.gz | oms-bridge produce orders --file - --lines
    """
    if (body is None) == (file is None):
        raise click.UsageError("Give either BODY or --file.")
    if lines and (file is None or given["require"]):
        raise click.UsageError("--lines goes with --file and without --require.")
    as_json = given["as_json"]
    message = _template(given)

    async def producing(client: "Client") -> bool:
        if lines and file is not None:
            return await _produce_lines(client, file, message, as_json=as_json)
        content = file.read() if file is not None else os.fsencode(body or "")
        _show_receipt(await client.produce(message(content), require=given["require"]), as_json=as_json)
        return True

    if not talk(given["url"], given["ca"], producing, as_json=as_json):
        sys.exit(FAILED)


def _template(given: Mapping[str, Any]) -> "Callable[[bytes], Message]":
    """Return what makes a message of a body and the options of `produce`."""
    from bridge.message import Message

    bare = Message(
        given["destination"],
        properties=_properties(given["properties"]),
        message_key=given["key"],
        delay_time=given["delay_ms"],
        priority=given["priority"],
        partition=given["partition"],
        content_type=given["content_type"],
    )
    expire_ms = given["expire_ms"]

    def message(body: bytes) -> Message:
        expire_time = None if expire_ms is None else time.time_ns() // 1_000_000 + expire_ms
        return bare._replace(body=body, expire_time=expire_time)

    return message


def _properties(given: Sequence[str]) -> dict[str, str]:
    properties: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name or name in properties:
            raise click.BadParameter("each is NAME=VALUE, and each name comes once", param_hint="--property")
        properties[name] = value
    return properties


async def _produce_lines(
    client: "Client", file: IO[bytes], message: "Callable[[bytes], Message]", *, as_json: bool
) -> bool:
    """Send batch after batch; whether all of them were stored. Reads in a thread: the connection must stay alive."""
    before = 0
    while bodies := await asyncio.to_thread(_read_lines, file):
        results = await client.produce_batch([message(body) for body in bodies])
        for number, result in enumerate(results, before + 1):
            if not isinstance(result, BridgeError):
                _show_receipt(result, as_json=as_json)
            else:
                click.echo(document(result) if as_json else f"Error: line {number}: {result}", err=True)
        if any(isinstance(result, BridgeError) for result in results):
            return False
        before += len(bodies)
    return True


def _read_lines(file: IO[bytes]) -> list[bytes]:
    """Read the lines of one batch, without their line ends; none at the end of the file."""
    bodies: list[bytes] = []
    size = 0
    while len(bodies) < _LINES and size < _LINE_BYTES and (line := file.readline()):
        bodies.append(line.removesuffix(b"\n"))
        size += len(line)
    return bodies


def _show_receipt(receipt: "Receipt", *, as_json: bool) -> None:
    facts = {
        "messageId": receipt.message_id,
        "partition": receipt.partition,
        "offset": receipt.offset,
        "storeTimestamp": receipt.store_timestamp,
        "storeHost": receipt.store_host,
        "applied": dict(receipt.applied),
    }
    if as_json:
        click.echo(json.dumps(facts))
        return
    place = "".join(f", {name} {facts[name]}" for name in ("partition", "offset") if facts[name] is not None)
    applied = "".join(f", {name} {how}" for name, how in receipt.applied.items())
    click.echo(f"stored {printable(receipt.message_id)}{place}{applied}")
