"""`pull` and `push`: print messages, and acknowledge them."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import click

from bridge.cli.options import TEXT, client_options, run_with_client
from bridge.cli.run_command import NO_MESSAGE, Output, printable

if TYPE_CHECKING:
    from bridge.client import Client, ReceivedMessage

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
@click.option("--wait-ms", type=click.IntRange(0, 60_000), default=0, show_default=True, help="Wait for a message.")
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
