"""`mirror compact`, `mirror prune` and `mirror export`: the closed hours of the tables."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from bridge.cli.command import TEXT
from bridge.mirror.commands.options import DURATION, SIZE, MirrorCommand, after_option, json_option, out_option

Line = tuple[str, Mapping[str, object]]
"""What is printed of one hour or file: as text, and as JSON."""


@click.command(cls=MirrorCommand)
@out_option
@after_option
@click.option("--target-size", type=SIZE, default="256MB", show_default=True, help="Target size of a file.")
@json_option("per hour")
def compact(out: str, minutes: int, target_size: int, as_json: bool) -> None:
    """Merge the small files of closed hours into large ones, sorted by destination.

    It may run while `mirror run` does, and disturbs no reader: each hour is one commit. The files that it replaces stay
    on the disk for seven days, for readers and for `query --as-of`; `prune` removes them later.

    \b
    oms-bridge mirror compact --out /srv/mirror
    """
    from bridge.mirror.upkeep import Compacted
    from bridge.mirror.upkeep import compact as hours

    def line(done: Compacted) -> Line:
        before, after = (size / (1 << 20) for size in (done.removed_bytes, done.added_bytes))
        files = f"{done.removed} files, {before:.1f} MB -> {done.added} files, {after:.1f} MB"
        fields = {"folder": done.hour.path, "rows": done.rows, "removed": done.removed}
        fields |= {"removedBytes": done.removed_bytes, "added": done.added, "addedBytes": done.added_bytes}
        return f"{done.hour.path}  {done.rows:,} rows: {files}", fields

    _print(map(line, hours(out, _before(minutes), target_size)), "There is nothing to compact.", as_json=as_json)


@click.command(cls=MirrorCommand)
@out_option
@after_option
@json_option("per file")
def export(out: str, minutes: int, as_json: bool) -> None:
    """Write closed hours as plain Parquet, for readers without Delta: PATH/parquet/date=…/hour=…/….parquet.

    Each message is in one file, and no file changes later: messages that arrive late are further files. It may run
    while `mirror run` does, and again after it was killed; only one export may run at a time.

    \b
    oms-bridge mirror export --out /srv/mirror
    """
    from bridge.mirror.parquet_export import export as files

    lines = ((f"{file.path}  {file.rows:,} rows", file._asdict()) for file in files(out, _before(minutes)))
    _print(lines, "There is nothing to export.", as_json=as_json)


@click.command(cls=MirrorCommand)
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
@json_option("per hour")
def prune(out: str, keep: timedelta, as_json: bool, dry_run: bool, **given: Any) -> None:  # noqa: ANN401 - click's
    """Delete the messages of whole hours, by the time at which they were stored, and remove files no longer needed.

    Deleted messages are not mirrored again, and `verify` does not report them as missing. Files that left the tables
    more than seven days ago are removed from the disk; until then `query --as-of` reads them. It may run while
    `mirror run` does.

    \b
    oms-bridge mirror prune --out /srv/mirror --keep 30d --dry-run
    oms-bridge mirror prune --out /srv/mirror --keep 90d --area dead-letters --area quarantine
    """
    from bridge.mirror.schema import AREAS
    from bridge.mirror.upkeep import Pruned, Rule, due, vacuum
    from bridge.mirror.upkeep import prune as hours

    hour_rows = []

    def line(pruned: Pruned) -> Line:
        hour_rows.append(pruned.rows)
        return f"{pruned.hour.path}  {pruned.rows:,} rows", {"folder": pruned.hour.path, "rows": pruned.rows}

    rule = Rule(keep, given["areas"] or AREAS, given["destinations"], today=given["today"])
    _print(map(line, (due if dry_run else hours)(out, rule, datetime.now(UTC))), None, as_json=as_json)
    if not as_json:
        verb = "would be deleted" if dry_run else "deleted"
        click.echo(f"{sum(hour_rows):,} rows in {len(hour_rows):,} hours {verb}.")
    removed = 0 if dry_run else vacuum(out)
    if not as_json and not dry_run:
        click.echo(f"{removed:,} files that left the tables more than seven days ago were removed.")


def _before(minutes: int) -> datetime:
    return datetime.now(UTC) - timedelta(minutes=minutes)


def _print(lines: Iterable[Line], nothing: str | None, *, as_json: bool) -> None:
    """Print each line as soon as it is there; `nothing`: the sentence to print if there are none."""
    for text, fields in lines:
        click.echo(json.dumps(fields) if as_json else text)
        nothing = None
    if nothing is not None and not as_json:
        click.echo(nothing)
