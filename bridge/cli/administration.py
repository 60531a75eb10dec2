"""`callback`, `transaction`, `delete` and `purge`: the administration of a running bridge."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote

import click

from bridge.cli.command import TEXT, Command, client_options, printable, run_async, run_with_client, token_option

if TYPE_CHECKING:
    from bridge.client import Client


_FORMS: Final = ("multipart", "ndjson", "json")


@click.command()
@click.argument("source", type=TEXT)
@click.option("--group", type=TEXT, required=True, help="Consumer group whose messages are posted.")
@click.option("--to", "target", type=TEXT, help="URL to post to; the bridge's callbacks.targets must allow it.")
@click.option("--stop", is_flag=True, help="Post no more messages of the group.")
@click.option("--credit", type=click.IntRange(1, 1000), help="POSTs in flight; the bridge's default is 64.")
@click.option("--max-messages", type=click.IntRange(1, 1000), help="Post batches of up to so many messages.")
@click.option("--form", type=click.Choice(_FORMS), help="Form of a batch; multipart unless set.")
@client_options
def callback(as_json: bool, **given: Any) -> None:  # noqa: ANN401 - click's
    """Have the messages of SOURCE posted to a URL.

    \b
    oms-bridge callback orders --group billing --to http://127.0.0.1:8081/orders
    oms-bridge callback orders --group billing --to http://127.0.0.1:8081/orders --max-messages 100 --form json
    oms-bridge callback orders --group billing --stop
    """
    source, group, target = given["source"], given["group"], given["target"]
    if (target is None) != given["stop"]:
        raise click.UsageError("Give either --to or --stop.")
    if given["form"] is not None and given["max_messages"] is None:
        raise click.UsageError("--form goes with --max-messages.")

    async def registering(client: "Client") -> dict[str, Any] | None:
        if target is None:
            await client.stop_callback(source, group)
            return None
        return await client.register_callback(
            source,
            group,
            target,
            credit=given["credit"],
            max_messages=given["max_messages"],
            form=given["form"] or "multipart",
        )

    registration = run_with_client(given, registering, as_json=as_json)
    if registration is None:
        click.echo("{}" if as_json else f"stopped: {printable(source)}, group {printable(group)}")
    elif as_json:
        click.echo(json.dumps(registration))
    else:
        facts = ", ".join(f"{name} {registration.get(name)}" for name in ("url", "state", "kept"))
        click.echo(printable(f"registered: {source}, group {group}, {facts}"))


@click.group()
def transaction() -> None:
    """List open transactions, commit one or roll one back.

    \b
    oms-bridge transaction list
    oms-bridge transaction commit order-7
    oms-bridge transaction rollback order-7
    """


@transaction.command("list")
@client_options
def list_open(as_json: bool, **given: Any) -> None:  # noqa: ANN401 - click's
    """Print the open transactions, the oldest first."""

    async def listing(client: "Client") -> list[dict[str, Any]]:
        return await client.transactions()

    for each in run_with_client(given, listing, as_json=as_json):
        _print_transaction(each, as_json=as_json)


@transaction.command()
@click.argument("transaction_id", type=TEXT)
@client_options
def commit(as_json: bool, **given: Any) -> None:  # noqa: ANN401 - click's
    """Make the messages of TRANSACTION_ID visible. A repeated commit does nothing."""
    _end(given, "commit", as_json=as_json)


@transaction.command()
@click.argument("transaction_id", type=TEXT)
@client_options
def rollback(as_json: bool, **given: Any) -> None:  # noqa: ANN401 - click's
    """Drop the messages of TRANSACTION_ID. A repeated rollback does nothing."""
    _end(given, "rollback", as_json=as_json)


def _end(given: Mapping[str, Any], how: Literal["commit", "rollback"], *, as_json: bool) -> None:
    async def ending(client: "Client") -> dict[str, Any]:
        return await client.end_transaction(given["transaction_id"], how)

    _print_transaction(run_with_client(given, ending, as_json=as_json), as_json=as_json)


def _print_transaction(document: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(document))
    else:
        facts = ", ".join(f"{name} {document.get(name)}" for name in ("messages", "bytes", "began", "timeoutMills"))
        click.echo(printable(f"{document.get('state')}: {document.get('transactionId')}, {facts}"))


_EMPTY = 204
_SECONDS = 300.0
"""How long the bridge may take: a purge of a million messages takes some seconds."""


def _removal_options(command: Command) -> Command:
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
        token_option,
        click.option("--json", "as_json", is_flag=True, help="Print an error as JSON."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@_removal_options
def delete(destination: str, group: str | None, management: str, token_file: Path | None, as_json: bool) -> None:
    """Delete DESTINATION with its messages and groups, or one group.

    Leases, streams and waiting pulls of the groups end. The next message or pull creates the destination anew, unless
    limits.auto_create is false.

    \b
    oms-bridge delete orders
    oms-bridge delete orders --group billing
    """
    _send("DELETE", _path(destination, group), management, token_file, as_json=as_json)


@click.command()
@_removal_options
def purge(destination: str, group: str | None, management: str, token_file: Path | None, as_json: bool) -> None:
    """Drop all messages of DESTINATION, or settle them for one group.

    Leases, streams and waiting pulls of the groups end. Delayed messages are dropped with
    those of DESTINATION, and stay for a group.

    \b
    oms-bridge purge orders
    oms-bridge purge orders --group billing
    """
    _send("POST", f"{_path(destination, group)}/purge", management, token_file, as_json=as_json)


def _path(destination: str, group: str | None) -> str:
    path = f"/v1/destinations/{quote(destination, safe='')}"
    return path if group is None else f"{path}/groups/{quote(group, safe='')}"


def _send(method: str, path: str, management: str, token_file: Path | None, *, as_json: bool) -> None:
    from bridge.client.request_sender import RESPONSE_SECONDS, RequestSender
    from bridge.client.transport import HttpTransport

    try:
        transport = HttpTransport(management, verify=True, token_file=token_file)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--management") from None

    async def sending() -> None:
        try:
            sender = RequestSender(management, transport)
            await sender.send(method, path, [], (_EMPTY,), wait=_SECONDS - RESPONSE_SECONDS)
        finally:
            await transport.close()

    run_async(sending(), as_json=as_json)
