"""`transaction`: list open transactions, commit one or roll one back."""
# ruff: noqa: D301 - the \b keeps click from wrapping an example

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import click

from bridge.cli.options import TEXT, client_options, run_with_client
from bridge.cli.run_command import printable

if TYPE_CHECKING:
    from bridge.client import Client


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
        _print(each, as_json=as_json)


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

    _print(run_with_client(given, ending, as_json=as_json), as_json=as_json)


def _print(document: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(document))
    else:
        facts = ", ".join(f"{name} {document.get(name)}" for name in ("messages", "bytes", "began", "timeoutMills"))
        click.echo(printable(f"{document.get('state')}: {document.get('transactionId')}, {facts}"))
