"""`pull`: messages out, in one of three forms."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from bridge.cli.options import TEXT, talks_to_bridge
from bridge.cli.output import printable
from bridge.cli.run import talk

if TYPE_CHECKING:
    from bridge.client import Client, Delivery

NOTHING: Final = 3


@click.command()
@click.argument("source", type=TEXT)
@click.option("--group", type=TEXT, required=True, help="The consumer group: it sees every message once.")
@talks_to_bridge
@click.option("--ack/--no-ack", default=True, help="Acknowledge after printing (default), or let it come back.")
@click.option("--wait-ms", type=click.IntRange(0, 60_000), default=0, show_default=True, help="Wait for a message.")
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="Most messages to pull.")
@click.option("--raw", is_flag=True, help="Print the bodies' bytes and nothing else, not even a line end.")
def pull(url: str, ca: str | None, as_json: bool, raw: bool, **given: Any) -> None:  # noqa: ANN401 - click's
    """Take messages out of SOURCE and print them. Exit status 3 when there is none.

    A message is acknowledged once it is printed, so what breaks the output loses nothing. With --no-ack it
    is delivered again when its lease of 30 s ends, and that counts as a delivery.

    \b
    oms-bridge pull orders --group billing
    oms-bridge pull orders --group billing --wait-ms 10000 --count 100 --json | jq .properties
    """
    if raw and as_json:
        raise click.UsageError("Give either --raw or --json.")
    show = _show_raw if raw else _show_json if as_json else _show_text

    async def pulling(client: "Client") -> int:
        for number in range(given["count"]):
            delivery = await client.pull(given["source"], given["group"], wait_ms=given["wait_ms"])
            if delivery is None:
                return number
            show(delivery)
            if given["ack"] and delivery.receipt is not None:
                await client.ack(delivery.receipt)
        return int(given["count"])

    if not talk(url, ca, pulling, as_json=as_json):
        sys.exit(NOTHING)


def _show_raw(delivery: "Delivery") -> None:
    click.echo(delivery.message.body, nl=False)


def _show_json(delivery: "Delivery") -> None:
    from bridge.wire.jsonform import encode

    lease = {"receipt": delivery.receipt, "leaseUntil": delivery.lease_until}
    click.echo(json.dumps(encode(delivery.message) | lease))


def _show_text(delivery: "Delivery") -> None:
    """Print the headers as they travel, a blank line, the body."""
    from bridge.wire.headers import encode

    for name, value in encode(delivery.message):
        click.echo(b"%b: %b" % (name, value))
    if delivery.receipt is not None:
        click.echo(f"x-oms-receipt: {printable(delivery.receipt)}")
    try:
        text = printable(delivery.message.body.decode())
    except UnicodeDecodeError:
        text = f"({len(delivery.message.body)} bytes that are not text; --raw prints them)"
    click.echo(f"\n{text}\n")
