"""`mirror prune`: retention."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from bridge.cli.options import TEXT
from bridge.mirror.amounts import DURATION
from bridge.mirror.commands.shared_options import out_option
from bridge.mirror.commands.stated import stated

if TYPE_CHECKING:
    from bridge.mirror.upkeep import Pruned


@click.command()
@out_option
@click.option("--keep", type=DURATION, required=True, help="Delete hours that ended longer ago than this: 30d, 12h.")
@click.option("--destination", "destinations", type=TEXT, multiple=True, help="Only this destination; may be repeated.")
@click.option(
    "--area",
    "areas",
    type=click.Choice(["data", "dead-letters", "quarantine"]),
    multiple=True,
    help="Only this area; may be repeated.",
)
@click.option("--today", is_flag=True, help="Also hours of the current day (UTC).")
@click.option("--dry-run", is_flag=True, help="Print what would be deleted, and delete nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per hour.")
def prune(out: str, keep: timedelta, as_json: bool, dry_run: bool, **given: Any) -> None:  # noqa: ANN401 - click's
    """Delete the messages of whole hours, by the time at which they were stored, and remove files no longer needed.

    Deleted messages are not mirrored again, and `verify` does not report them as missing. Files that left the tables
    more than seven days ago are removed from the disk; until then `query --as-of` reads them. It may run while
    `mirror run` does.

    \b
    oms-bridge mirror prune --out /srv/mirror --keep 30d --dry-run
    oms-bridge mirror prune --out /srv/mirror --keep 90d --area dead-letters --area quarantine
    """
    with stated(as_json=as_json):
        from bridge.mirror.schema import AREAS
        from bridge.mirror.upkeep import Rule, due, vacuum
        from bridge.mirror.upkeep import prune as hours

        areas = tuple(given["areas"]) or AREAS
        rule = Rule(keep, areas, tuple(given["destinations"]), today=bool(given["today"]))
        _show((due if dry_run else hours)(out, rule, datetime.now(UTC)), as_json=as_json, dry_run=dry_run)
        if not dry_run:
            removed = vacuum(out)
            if not as_json:
                click.echo(f"{removed:,} files that left the tables more than seven days ago were removed.")


def _show(hours: "Iterator[Pruned]", *, as_json: bool, dry_run: bool) -> None:
    number = rows = 0
    for pruned in hours:
        facts = {"folder": pruned.hour.path, "rows": pruned.rows}
        click.echo(json.dumps(facts) if as_json else f"{pruned.hour.path}  {pruned.rows:,} rows")
        number, rows = number + 1, rows + pruned.rows
    if not as_json:
        verb = "would be deleted" if dry_run else "deleted"
        click.echo(f"{rows:,} rows in {number:,} hours {verb}.")
