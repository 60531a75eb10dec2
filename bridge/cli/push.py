"""`push`: messages as they come, until somebody has enough."""
# ruff: noqa: D301 - the \b keeps click from wrapping an example

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import click

from bridge.cli.delivery import printer
from bridge.cli.options import TEXT, talks_to_bridge
from bridge.cli.output import NOTHING
from bridge.cli.run import talk

if TYPE_CHECKING:
    from bridge.client import Client, Delivery

_MOST: Final = 1000
"""Messages that a stream may leave unacknowledged: the largest credit there is."""


@click.command()
@click.argument("source", type=TEXT)
@click.option("--group", type=TEXT, required=True, help="The consumer group: it sees every message once.")
@talks_to_bridge
@click.option("--ack/--no-ack", default=True, help="Acknowledge after printing (default), or let it come back.")
@click.option("--wait-ms", type=click.IntRange(0), help="End after this much silence; forever unless set.")
@click.option("--count", type=click.IntRange(1), help="End after so many messages.")
@click.option("--raw", is_flag=True, help="Print the bodies' bytes and nothing else, not even a line end.")
def push(url: str, ca: str | None, as_json: bool, raw: bool, **given: Any) -> None:  # noqa: ANN401 - click's
    """Print the messages of SOURCE as they come, until Ctrl-C. Exit status 3 when --wait-ms ends it before the first.

    A message is acknowledged once it is printed, so what breaks the output loses nothing. With --no-ack all of them
    come back when the command ends, each counted as delivered; it shows at most 1000 messages or 1 MiB.

    \b
    oms-bridge push orders --group billing
    oms-bridge push orders --group audit --json | jq --unbuffered .properties
    """
    show = printer(raw=raw, as_json=as_json)
    ack, count = given["ack"], given["count"]

    async def pushing(client: "Client") -> bool:
        printed = 0
        stream = client.push(
            given["source"],
            given["group"],
            auto_ack=ack,
            credit=None if ack else _MOST,
            max_messages=count,
            wait_ms=given["wait_ms"],
        )
        async with stream as messages:
            with _ended_by_signals() as signalled:
                async for delivery in messages:
                    await _print(show, delivery)
                    printed += 1
                    if printed == count:
                        break
        return printed > 0 or signalled.is_set()

    if not talk(url, ca, pushing, as_json=as_json):
        sys.exit(NOTHING)


async def _print(show: "Callable[[Delivery], None]", delivery: "Delivery") -> None:
    """Print in a thread, for a pager may stop reading and the connection must stay alive; what is begun is finished."""
    printing = asyncio.ensure_future(asyncio.to_thread(show, delivery))
    try:
        await asyncio.shield(printing)
    except asyncio.CancelledError:
        await printing
        raise


@contextmanager
def _ended_by_signals() -> Iterator[asyncio.Event]:
    """Let SIGTERM and Ctrl-C leave the block as its last line would. A second signal is the operating system's."""
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
