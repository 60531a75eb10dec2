"""`delete` and `purge`: remove destinations, groups and messages of a running bridge."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

from collections.abc import Callable
from urllib.parse import quote

import click

from bridge.cli.options import TEXT, Command
from bridge.cli.run_command import run_async

_EMPTY = 204
_SECONDS = 300.0
"""How long the bridge may take: a purge of a million messages takes some seconds."""


def _options(command: Command) -> Command:
    options: tuple[Callable[[Command], Command], ...] = (
        click.argument("destination", type=TEXT),
        click.option("--group", type=TEXT, metavar="GROUP", help="Only this group of the destination."),
        click.option(
            "--management",
            default="http://127.0.0.1:9090",
            envvar="OMS_MANAGEMENT_URL",
            show_default=True,
            show_envvar=True,
            metavar="URL",
            help="Address of the bridge's management port.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print an error as JSON."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@_options
def delete(destination: str, group: str | None, management: str, as_json: bool) -> None:
    """Delete DESTINATION with its messages and groups, or one group.

    Leases, streams and waiting pulls of the groups end. The next message or pull creates the destination anew, unless
    limits.auto_create is false.

    \b
    oms-bridge delete orders
    oms-bridge delete orders --group billing
    """
    _send("DELETE", _path(destination, group), management, as_json=as_json)


@click.command()
@_options
def purge(destination: str, group: str | None, management: str, as_json: bool) -> None:
    """Drop all messages of DESTINATION, or settle them for one group.

    Leases, streams and waiting pulls of the groups end. Delayed messages are dropped with
    those of DESTINATION, and stay for a group.

    \b
    oms-bridge purge orders
    oms-bridge purge orders --group billing
    """
    _send("POST", f"{_path(destination, group)}/purge", management, as_json=as_json)


def _path(destination: str, group: str | None) -> str:
    path = f"/v1/destinations/{quote(destination, safe='')}"
    return path if group is None else f"{path}/groups/{quote(group, safe='')}"


def _send(method: str, path: str, management: str, *, as_json: bool) -> None:
    from bridge.client.request_sender import RESPONSE_SECONDS, RequestSender
    from bridge.client.transport import HttpTransport

    try:
        transport = HttpTransport(management, verify=True)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--management") from None

    async def sending() -> None:
        try:
            sender = RequestSender(management, transport)
            await sender.send(method, path, [], (_EMPTY,), wait=_SECONDS - RESPONSE_SECONDS)
        finally:
            await transport.close()

    run_async(sending(), as_json=as_json)
