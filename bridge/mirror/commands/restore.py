"""`mirror restore`: from the mirror back into a bridge."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from bridge.cli.command import FAILED, NO_MESSAGE, TEXT, client_options, printable, run_with_client
from bridge.mirror.commands.options import MirrorCommand, out_option

if TYPE_CHECKING:
    from bridge.client import Client
    from bridge.mirror.restore import DestinationTotal, Outcome, Row, State

_SHOWN: Final = 5
"""Messages that a dry run shows."""
_NAMED: Final = 20
"""Refused messages that are named; --json names all."""
_WHEN: Final = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"])


@click.command(cls=MirrorCommand)
@out_option
@client_options
@click.option("--area", type=click.Choice(["data", "dead-letters"]), default="data", show_default=True)
@click.option("--destination", "destinations", type=TEXT, multiple=True, help="Only this destination; may be repeated.")
@click.option("--message-id", "message_ids", type=TEXT, multiple=True, help="Only this message; may be repeated.")
@click.option(
    "--from",
    "start",
    type=_WHEN,
    metavar="TIME",
    help="Only messages stored at this time (UTC) or later: 2026-11-21T07:30.",
)
@click.option("--to", "end", type=_WHEN, metavar="TIME", help="Only messages stored before this time (UTC).")
@click.option("--to-destination", type=TEXT, help="Send to this destination instead of the original ones.")
@click.option("--expired", is_flag=True, help="Also send expired messages, without their expireTime.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Maximum number of messages a second.")
@click.option(
    "--state", type=click.Path(path_type=Path), help="Record the progress in this file, and continue from it."
)
@click.option("--dry-run", is_flag=True, help="Print what would be sent, and send nothing.")
def restore(out: str, as_json: bool, **given: Any) -> None:  # noqa: ANN401 - click's
    """Send messages of the mirror through a bridge, in the order of their logs, which keeps the order of each key.

    A message keeps its messageId, key, properties, body and the fields that its producer set; the bridge gives it a new
    partition and storeTimestamp. The property oms-restored-from says where it comes from. Expired messages are skipped.
    Delivery is at least once: after an interrupted run, up to one batch (500 messages) is sent again; without --state,
    all are. With --state a later run sends the messages mirrored since.

    Exit status: 0 all are sent, 1 not all, 3 there was nothing to send.

    \b
    oms-bridge mirror restore --out /srv/mirror --destination orders --from 2026-11-21T07 --dry-run
    oms-bridge mirror restore --out /srv/mirror --destination orders --rate 500 --state restore.json
    oms-bridge mirror restore --out /srv/mirror --area dead-letters --destination orders.dlq --to-destination orders
    """
    from bridge.mirror.query import connect
    from bridge.mirror.restore import Selection, State, amounts, in_order, select
    from bridge.mirror.table import shown

    selection = Selection(
        given["area"], given["destinations"], given["message_ids"], _ms(given["start"]), _ms(given["end"])
    )
    of = {"out": shown(out), **selection._asdict(), "to_destination": given["to_destination"]}
    state = State(given["state"], of)
    with connect(out) as connection:
        select(connection, selection, state.next)
        amount = amounts(connection)
        if given["dry_run"]:
            _show_plan(amount, list(in_order(connection, _SHOWN)), as_json=as_json)
        elif amount:
            sys.exit(_send(in_order(connection), amount, state, as_json=as_json, given=given))
    if not amount and not as_json:
        click.echo("There is nothing to send.", err=True)
    sys.exit(0 if amount else NO_MESSAGE)


def _send(
    rows: "Iterator[Row]",
    amount: "Sequence[DestinationTotal]",
    state: "State",
    *,
    as_json: bool,
    given: dict[str, Any],
) -> int:
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    from bridge.mirror.restore import Outcome, restore

    options = {"destination": given["to_destination"], "expired": given["expired"], "rate": given["rate"]}
    outcome = Outcome()
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("messages", total=sum(a.rows for a in amount))

        async def restoring(client: "Client") -> None:
            await restore(client, rows, state, outcome, lambda count: progress.advance(task, count), **options)

        try:
            run_with_client(given, restoring, as_json=as_json)
        finally:
            _show_done(outcome, as_json=as_json)
    return FAILED if outcome.refused else 0


def _show_plan(amount: "Sequence[DestinationTotal]", rows: "Sequence[Row]", *, as_json: bool) -> None:
    from bridge.wire.jsonform import encode

    if as_json:
        shown = [{"log": row.log, "offset": row.offset, **json.loads(encode(row.message))} for row in rows]
        click.echo(json.dumps({"amount": [a._asdict() for a in amount], "first": shown}))
        return
    for a in amount:
        click.echo(
            f"{printable(a.destination)}: {a.rows} messages, {a.bytes} bytes, stored {_utc(a.first)} to {_utc(a.last)}"
        )
    for row in rows:
        id_, place = printable(row.message.message_id or ""), f"{printable(row.log)}/{row.offset}"
        click.echo(f"  {place}  {id_}  {printable(row.message.destination)}  {len(row.message.body)} bytes")


def _show_done(outcome: "Outcome", *, as_json: bool) -> None:
    from bridge.errors import problem_members

    if as_json:
        refused = [
            {"messageId": m.message_id, "destination": m.destination, **problem_members(e)} for m, e in outcome.refused
        ]
        click.echo(json.dumps({"sent": outcome.stored, "expired": outcome.expired, "refused": refused}))
        return
    for message, error in outcome.refused[:_NAMED]:
        click.echo(
            f"Error: {printable(message.message_id or '')} of {printable(message.destination)}: {error}", err=True
        )
    click.echo(f"{outcome.stored} sent, {outcome.expired} expired and skipped, {len(outcome.refused)} refused")


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.replace(tzinfo=UTC).timestamp() * 1000)


def _utc(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S}"
