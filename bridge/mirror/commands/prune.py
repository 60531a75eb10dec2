"""`mirror prune`: retention."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from bridge.cli.options import TEXT
from bridge.cli.output import printable
from bridge.mirror.amounts import DURATION
from bridge.mirror.commands.stated import stated

if TYPE_CHECKING:
    from bridge.mirror.upkeep.prune import Going


@click.command()
@click.option("--out", required=True, metavar="PATH", help="The mirror: any path that Spark knows.")
@click.option("--keep", type=DURATION, required=True, help="Drop hours that ended longer ago: 30d, 12h.")
@click.option("--destination", "destinations", type=TEXT, multiple=True, help="Only this one; may be repeated.")
@click.option(
    "--area",
    "areas",
    type=click.Choice(["data", "dead-letters", "quarantine"]),
    multiple=True,
    help="Only this one; may be repeated.",
)
@click.option("--today", is_flag=True, help="Also hours of the current day (UTC).")
@click.option("--dry-run", is_flag=True, help="Say what would go, and drop nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per folder.")
def prune(out: str, keep: timedelta, as_json: bool, dry_run: bool, **given: Any) -> None:  # noqa: ANN401 - click's
    """Drop whole hours that are old enough, by the time their messages were stored.

    What was dropped is not mirrored again, and `verify` does not miss it. It may run beside `mirror run`.

    \b
    oms-bridge mirror prune --out /srv/mirror --keep 30d --dry-run
    oms-bridge mirror prune --out /srv/mirror --keep 90d --area dead-letters --area quarantine
    """
    with stated(as_json=as_json):
        from bridge.mirror.layout import AREAS
        from bridge.mirror.session import session
        from bridge.mirror.sink.files import Files
        from bridge.mirror.upkeep.prune import Rule, preview
        from bridge.mirror.upkeep.prune import prune as steps

        rule = Rule(
            keep,
            destinations=tuple(given["destinations"]),
            areas=tuple(given["areas"]) or AREAS,
            today=bool(given["today"]),
        )
        now = datetime.now(UTC)
        with session("oms-bridge mirror prune") as spark:
            files = Files(spark, out)
            _show(
                iter([preview(files, rule, now)]) if dry_run else steps(files, rule, now),
                as_json=as_json,
                dry_run=dry_run,
            )


def _show(steps: "Iterator[Going]", *, as_json: bool, dry_run: bool) -> None:
    folders = rows = size = 0
    for going in steps:
        for folder, files in going.items():
            held, taken = sum(file.rows for file in files), sum(file.bytes for file in files)
            facts = {"folder": folder.path, "files": len(files), "rows": held, "bytes": taken}
            text = printable(f"{folder.path}  {held:,} rows, {taken:,} bytes")
            click.echo(json.dumps(facts) if as_json else text)
            folders, rows, size = folders + 1, rows + held, size + taken
    if not as_json:
        verb = "would go" if dry_run else "went"
        click.echo(f"{folders:,} folders with {rows:,} rows, {size / (1 << 20):,.1f} MB {verb}.")
