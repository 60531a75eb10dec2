"""`pull`: messages out, one by one."""
# ruff: noqa: D301 - the \b keeps click from wrapping an example

import sys
from typing import TYPE_CHECKING, Any

import click

from bridge.cli.delivery import printer
from bridge.cli.options import TEXT, talks_to_bridge
from bridge.cli.output import NOTHING
from bridge.cli.run import talk

if TYPE_CHECKING:
    from bridge.client import Client


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
    show = printer(raw=raw, as_json=as_json)

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
