"""`produce`: send one message, or a message for each line of a file."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Final

import click

from bridge.cli.options import TEXT, client_options, run_with_client
from bridge.cli.run_command import FAILED, error_as_json, printable
from bridge.errors import BridgeError

if TYPE_CHECKING:
    from bridge.client import Client, ProduceResult
    from bridge.message import Message

_BATCH_LINES: Final = 500
_BATCH_BYTES: Final = 1 << 20
"""A batch of `--lines` ends at either limit; both are far below the default limits of a bridge."""


@click.command()
@click.argument("destination", type=TEXT)
@click.argument("body", required=False)
@client_options
@click.option("--key", type=TEXT, help="Messages with the same key stay in order.")
@click.option("--property", "properties", type=TEXT, multiple=True, metavar="NAME=VALUE", help="May be repeated.")
@click.option("--delay-ms", type=click.IntRange(0), help="Deliver after this many milliseconds at the earliest.")
@click.option("--expire-ms", type=click.IntRange(1), help="Expire after this many milliseconds.")
@click.option("--priority", type=click.IntRange(1, 10), help="A higher priority is delivered first; 5 unless set.")
@click.option("--partition", type=click.IntRange(0), help="Number of the partition; unset: the key decides.")
@click.option("--content-type", type=TEXT, help="Media type of the body.")
@click.option(
    "--require",
    type=TEXT,
    multiple=True,
    metavar="FIELD",
    help="Fail unless the field is honoured.",
)
@click.option("--retry-ms", type=click.IntRange(0), default=0, help="Repeat what may succeed later for so long.")
@click.option("--file", type=click.File("rb"), help="Read the body from a file; - is standard input.")
@click.option("--lines", is_flag=True, help="Send each line of the file as a message.")
def produce(body: str | None, file: IO[bytes] | None, lines: bool, **given: Any) -> None:  # noqa: ANN401 - click's
    """Send a message to DESTINATION and print where it is stored.

    With --lines messages are sent in batches. A message that fails does not affect the others of its batch; the
    command stops after that batch. With --retry-ms what may succeed later is repeated; the bridge stores it once.

    \b
    oms-bridge produce orders '{"id": 7}' --key customer-12 --property region=eu
    oms-bridge produce reminders 'call back' --delay-ms 60000 --require delayTime
    zcat orders.ndjson.gz | oms-bridge produce orders --file - --lines --retry-ms 60000
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

    if not run_with_client(given, producing, as_json=as_json):
        sys.exit(FAILED)


def _template(given: Mapping[str, Any]) -> "Callable[[bytes], Message]":
    """Return a function that makes a message of a body and the options of `produce`."""
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
            raise click.BadParameter("each is NAME=VALUE, and each name is given once", param_hint="--property")
        properties[name] = value
    return properties


async def _produce_lines(
    client: "Client", file: IO[bytes], message: "Callable[[bytes], Message]", *, as_json: bool
) -> bool:
    """Send batch after batch; return whether all were stored. Reads in a thread, so that the connection stays alive."""
    done = 0
    while bodies := await asyncio.to_thread(_read_lines, file):
        results = await client.produce_batch([message(body) for body in bodies])
        for number, result in enumerate(results, done + 1):
            if not isinstance(result, BridgeError):
                _show_receipt(result, as_json=as_json)
            else:
                click.echo(error_as_json(result) if as_json else f"Error: line {number}: {result}", err=True)
        if any(isinstance(result, BridgeError) for result in results):
            return False
        done += len(bodies)
    return True


def _read_lines(file: IO[bytes]) -> list[bytes]:
    """Return the lines of one batch without their line feeds; no lines at the end of the file."""
    bodies: list[bytes] = []
    size = 0
    while len(bodies) < _BATCH_LINES and size < _BATCH_BYTES and (line := file.readline()):
        bodies.append(line.removesuffix(b"\n"))
        size += len(line)
    return bodies


def _show_receipt(receipt: "ProduceResult", *, as_json: bool) -> None:
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
