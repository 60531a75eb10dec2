"""`produce`, `pull` and `push`: send messages, or print and acknowledge them."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import asyncio
import json
import os
import signal
import sys
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final, cast

import click

from bridge.cli.command import (
    FAILED,
    NO_MESSAGE,
    TEXT,
    Output,
    client_options,
    error_as_json,
    printable,
    run_with_client,
)
from bridge.errors import BridgeError

if TYPE_CHECKING:
    from bridge.client import Client, ProduceResult, ReceivedMessage
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
        if not done:
            bodies[0] = bodies[0].removeprefix(BOM_UTF8)
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


Command = Callable[..., None]
Form = Callable[["ReceivedMessage"], bytes]

_UNACKNOWLEDGED: Final = 1000
"""Messages that a stream may leave unacknowledged: the largest credit there is."""


def _consumer_options(command: Command) -> Command:
    """Add the options of everything that prints messages."""
    raw = click.option("--raw", is_flag=True, help="Print the bodies' bytes and nothing else, not even a line end.")
    ack = click.option("--ack/--no-ack", default=True, help="Acknowledge after printing (default), or do not.")
    group = click.option("--group", type=TEXT, required=True, help="Consumer group: it receives every message once.")
    source = click.argument("source", type=TEXT)
    return source(group(client_options(ack(raw(command)))))


@click.command()
@_consumer_options
@click.option(
    "--wait-ms", type=click.IntRange(0, 60_000), default=0, show_default=True, help="Wait for a message, at most 55 s."
)
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="Pull at most so many messages.")
def pull(as_json: bool, raw: bool, **given: Any) -> None:  # noqa: ANN401 - click's
    """Take messages out of SOURCE and print them. Exit status 3 if there is none.

    A message is acknowledged after it is printed, so a broken output loses nothing. With --no-ack it is delivered
    again when its lease of 30 s ends; that counts as a delivery.

    \b
    oms-bridge pull orders --group billing
    oms-bridge pull orders --group billing --wait-ms 10000 --count 100 --json | jq .properties
    """
    form, output = _form(raw=raw, as_json=as_json), Output(sys.stdout.buffer)

    async def pulling(client: "Client") -> int:
        for number in range(given["count"]):
            delivery = await client.pull(given["source"], given["group"], wait_ms=given["wait_ms"])
            if delivery is None:
                return number
            output.write(form(delivery))
            if given["ack"] and delivery.receipt is not None:
                await client.ack(delivery.receipt)
        return int(given["count"])

    if not run_with_client(given, pulling, as_json=as_json):
        sys.exit(NO_MESSAGE)


@click.command()
@_consumer_options
@click.option("--wait-ms", type=click.IntRange(0), help="End after this much silence; unset: never.")
@click.option("--count", type=click.IntRange(1), help="End after so many messages.")
def push(as_json: bool, raw: bool, **given: Any) -> None:  # noqa: ANN401 - click's
    """Print the messages of SOURCE as they arrive, until Ctrl-C. Exit status 3 if --wait-ms ends it before the first.

    A message is acknowledged after it is printed, so a broken output loses nothing. With --no-ack all messages are
    delivered again when the command ends, each counted as delivered; it prints at most 1000 messages or 1 MiB.

    \b
    oms-bridge push orders --group billing
    oms-bridge push orders --group audit --json | jq --unbuffered .properties
    """
    form, output = _form(raw=raw, as_json=as_json), Output(sys.stdout.buffer)
    ack, count = given["ack"], given["count"]

    async def pushing(client: "Client") -> bool:
        printed = 0
        stream = client.push(
            given["source"],
            given["group"],
            auto_ack=ack,
            credit=None if ack else _UNACKNOWLEDGED,
            max_messages=count,
            wait_ms=given["wait_ms"],
        )
        async with stream as messages:
            with _ended_by_signals() as signalled:
                async for delivery in messages:
                    await output.write_soon(form(delivery))
                    printed += 1
                    if printed == count:
                        break
        return printed > 0 or signalled.is_set()

    if not run_with_client(given, pushing, as_json=as_json):
        sys.exit(NO_MESSAGE)


@contextmanager
def _ended_by_signals() -> Iterator[asyncio.Event]:
    """Leave the block at SIGTERM or Ctrl-C as if it had ended. A second signal ends the process at once."""
    loop, signalled = asyncio.get_running_loop(), asyncio.Event()
    task = cast("asyncio.Task[object]", asyncio.current_task())
    signals = (signal.SIGTERM, signal.SIGINT)

    def on_signal() -> None:
        for number in signals:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        signalled.set()
        task.cancel()

    for number in signals:
        loop.add_signal_handler(number, on_signal)
    try:
        yield signalled
    except asyncio.CancelledError:
        if not signalled.is_set():
            raise
        task.uncancel()
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


def _form(*, raw: bool, as_json: bool) -> "Form":
    """Return the form in which messages are printed. Raises `UsageError` if two are asked for."""
    if raw and as_json:
        raise click.UsageError("Give either --raw or --json.")
    return _raw if raw else _json if as_json else _text


def _raw(delivery: "ReceivedMessage") -> bytes:
    return delivery.message.body


def _json(delivery: "ReceivedMessage") -> bytes:
    from bridge.wire.jsonform import encode

    lease = {"receipt": delivery.receipt, "leaseUntil": delivery.lease_until}
    return json.dumps(json.loads(encode(delivery.message)) | lease).encode("ascii") + b"\n"


def _text(delivery: "ReceivedMessage") -> bytes:
    """Return the headers as they travel, an empty line, the body."""
    from bridge.wire.headers import encode

    lines = [b"%b: %b" % pair for pair in encode(delivery.message)]
    if delivery.receipt is not None:
        lines.append(f"x-oms-receipt: {printable(delivery.receipt)}".encode())
    try:
        text = printable(delivery.message.body.decode())
    except UnicodeDecodeError:
        text = f"({len(delivery.message.body)} bytes that are not text; --raw prints them)"
    return b"%b\n\n%b\n\n" % (b"\n".join(lines), text.encode())
