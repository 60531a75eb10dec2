"""`mirror restore`: from the mirror back into a bridge."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from bridge.cli.options import TEXT, talks_to_bridge
from bridge.cli.output import FAILED, NOTHING, printable
from bridge.cli.run import talk
from bridge.errors import CannotStart
from bridge.mirror.commands.stated import stated

if TYPE_CHECKING:
    from bridge.client import Client
    from bridge.mirror.restore.revived import Row
    from bridge.mirror.restore.run import Done
    from bridge.mirror.restore.selection import Amount
    from bridge.mirror.restore.state import State

_SHOWN: Final = 5
"""Messages that a dry run shows."""
_NAMED: Final = 20
"""Refused messages that are named; --json names all."""
_WHEN: Final = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"])


@click.command()
@click.option("--out", required=True, metavar="PATH", help="The mirror: any path that Spark knows.")
@talks_to_bridge
@click.option("--area", type=click.Choice(["data", "dead-letters"]), default="data", show_default=True)
@click.option("--destination", "destinations", type=TEXT, multiple=True, help="Only this one; may be repeated.")
@click.option("--message-id", "message_ids", type=TEXT, multiple=True, help="Only this one; may be repeated.")
@click.option("--from", "start", type=_WHEN, metavar="TIME", help="Stored then (UTC) or later: 2026-11-21T07:30.")
@click.option("--to", "end", type=_WHEN, metavar="TIME", help="Stored before then (UTC).")
@click.option("--to-destination", type=TEXT, help="Send there instead of to where they came from.")
@click.option("--expired", is_flag=True, help="Also what has expired by now, without its expireTime.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="At most so many messages a second.")
@click.option("--state", type=click.Path(path_type=Path), help="Keep in this file how far it came, and go on there.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent, and send nothing.")
def restore(out: str, url: str, ca: str | None, as_json: bool, **given: Any) -> None:  # noqa: ANN401 - click's
    """Send messages of the mirror through a bridge, in the order of their logs, so that the order of each key is kept.

    A message keeps its messageId, key, properties, body and all that its producer said; the bridge gives it a new
    partition and storeTimestamp. The property oms-restored-from says where it comes from. What has expired is left out.
    At least once: after a run that broke off, up to one batch (500 messages) is sent again, without --state all.
    Under --state a later run sends what was mirrored since.

    Exit status: 0 all is sent, 1 not all, 3 there was nothing to send.

    \b
    oms-bridge mirror restore --out /srv/mirror --destination orders --from 2026-11-21T07 --dry-run
    oms-bridge mirror restore --out /srv/mirror --destination orders --rate 500 --state restore.json
    oms-bridge mirror restore --out /srv/mirror --area dead-letters --destination orders.dlq --to-destination orders
    """
    with stated(as_json=as_json):
        sys.exit(_restore(out, url, ca, as_json=as_json, given=given))


def _restore(out: str, url: str, ca: str | None, *, as_json: bool, given: dict[str, Any]) -> int:
    from bridge.mirror.read import shown
    from bridge.mirror.restore.selection import Selection, amounts, first, in_order, select
    from bridge.mirror.restore.state import State
    from bridge.mirror.session import session
    from bridge.mirror.sink.files import Files

    selection = Selection(
        given["area"], given["destinations"], given["message_ids"], _ms(given["start"]), _ms(given["end"])
    )
    of = {"out": shown(out), **selection._asdict(), "to_destination": given["to_destination"]}
    state = State(given["state"], of)
    with session("oms-bridge mirror restore") as spark:
        files = Files(spark, out)
        if not files.exists("data") and not files.exists("manifests"):
            raise CannotStart(f"There is no mirror at {shown(files.out)}: it has neither manifests nor data.")
        rows = select(spark, files, selection, state.next)
        amount = amounts(rows)
        if given["dry_run"]:
            _show_plan(amount, first(rows, _SHOWN), as_json=as_json)
        elif amount:
            return _send(url, ca, in_order(rows, amount), amount, state, as_json=as_json, given=given)
    return 0 if amount else NOTHING


def _send(  # noqa: PLR0913 - what a restore needs
    url: str,
    ca: str | None,
    rows: "Iterator[Row]",
    amount: "Sequence[Amount]",
    state: "State",
    *,
    as_json: bool,
    given: dict[str, Any],
) -> int:
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    from bridge.mirror.restore.run import Done, Wishes, restore

    wishes = Wishes(given["to_destination"], given["expired"], given["rate"])
    done = Done()
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("messages", total=sum(a.rows for a in amount))

        async def restoring(client: "Client") -> None:
            await restore(client, rows, state, wishes, done, lambda count: progress.advance(task, count))

        try:
            talk(url, ca, restoring, as_json=as_json)
        finally:
            _show_done(done, as_json=as_json)
    return FAILED if done.refused else 0


def _show_plan(amount: "Sequence[Amount]", rows: "Sequence[Row]", *, as_json: bool) -> None:
    from bridge.wire.jsonform import encode

    if as_json:
        shown = [{"log": row.log, "offset": row.offset, **encode(row.message)} for row in rows]
        click.echo(json.dumps({"amount": [a._asdict() for a in amount], "first": shown}))
        return
    for a in amount:
        click.echo(
            f"{printable(a.destination)}: {a.rows} messages, {a.bytes} bytes, stored {_utc(a.first)} to {_utc(a.last)}"
        )
    for row in rows:
        id_, place = printable(row.message.message_id or ""), f"{printable(row.log)}/{row.offset}"
        click.echo(f"  {place}  {id_}  {printable(row.message.destination)}  {len(row.message.body)} bytes")


def _show_done(done: "Done", *, as_json: bool) -> None:
    from bridge.wire.problem import members

    if as_json:
        refused = [{"messageId": m.message_id, "destination": m.destination, **members(e)} for m, e in done.refused]
        click.echo(json.dumps({"sent": done.stored, "expired": done.expired, "refused": refused}))
        return
    for message, error in done.refused[:_NAMED]:
        click.echo(
            f"Error: {printable(message.message_id or '')} of {printable(message.destination)}: {error}", err=True
        )
    click.echo(f"{done.stored} sent, {done.expired} left out as expired, {len(done.refused)} refused")


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.replace(tzinfo=UTC).timestamp() * 1000)


def _utc(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S}"
