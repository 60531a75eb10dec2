"""`mirror compact`, `mirror prune` and `mirror export`: upkeep of the tables, beside a running job."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from bridge.cli.command import TEXT
from bridge.mirror.commands.options import DURATION, SIZE, MirrorCommand, after_option, json_option, out_option

if TYPE_CHECKING:
    from bridge.mirror.schema import Area
    from bridge.mirror.upkeep import Rule

Line = tuple[str, Mapping[str, object]]
"""What is printed of one day or file: as text, and as JSON."""


@click.command(cls=MirrorCommand)
@out_option
@after_option
@click.option("--target-size", type=SIZE, default="256MB", show_default=True, help="Target size of a file.")
@json_option("per day")
def compact(out: str, minutes: int, target_size: int, as_json: bool) -> None:
    """Merge small files into large ones; those of a day that has ended are sorted by destination.

    It may run while `mirror run` does, and disturbs no reader: each day is one commit. The files that it replaces stay
    on the disk for seven days, for readers and for `query --as-of`; `prune` removes them later.

    \b
    oms-bridge mirror compact --out /srv/mirror
    """
    from bridge.mirror.upkeep import Compacted
    from bridge.mirror.upkeep import compact as days

    def line(done: Compacted) -> Line:
        before, after = (size / (1 << 20) for size in (done.removed_bytes, done.added_bytes))
        files = f"{done.removed} files, {before:.1f} MB -> {done.added} files, {after:.1f} MB"
        fields = {"folder": done.day.path, "removed": done.removed}
        fields |= {"removedBytes": done.removed_bytes, "added": done.added, "addedBytes": done.added_bytes}
        return f"{done.day.path}  {files}", fields

    _print(map(line, days(out, _before(minutes), target_size)), "There is nothing to compact.", as_json=as_json)


@click.command(cls=MirrorCommand)
@out_option
@after_option
@json_option("per file")
def export(out: str, minutes: int, as_json: bool) -> None:
    """Write what was mirrored as plain Parquet, for readers without Delta: PATH/parquet/date=…/….parquet.

    It takes what was mirrored in hours that have ended. Each message is in one file, and only `prune --key` and
    `--where` change a file later. It may run while `mirror run` does, and again after it was killed; only one export
    may run at a time.

    \b
    oms-bridge mirror export --out /srv/mirror
    """
    from bridge.mirror.parquet_export import export as files

    lines = ((f"{file.path}  {file.rows:,} rows", file._asdict()) for file in files(out, _before(minutes)))
    _print(lines, "There is nothing to export.", as_json=as_json)


@click.command(cls=MirrorCommand)
@out_option
@click.option("--keep", type=DURATION, help="Delete what was mirrored on days that ended longer ago: 30d.")
@click.option("--key", "keys", type=TEXT, multiple=True, help="Erase messages with this messageKey; may be repeated.")
@click.option("--where", type=TEXT, metavar="SQL", help="Erase messages for which this condition holds.")
@click.option("--destination", "destinations", type=TEXT, multiple=True, help="Only this destination; may be repeated.")
@click.option(
    "--area",
    "areas",
    type=click.Choice(["data", "dead-letters", "quarantine"]),
    multiple=True,
    help="Only this area; may be repeated.",
)
@click.option("--vacuum-now", is_flag=True, help="Remove old files at once, and not after seven days.")
@click.option("--dry-run", is_flag=True, help="Print what would be deleted, and delete nothing.")
@json_option("per day or file")
def prune(  # noqa: PLR0913 - click passes each option
    *,
    out: str,
    keep: timedelta | None,
    keys: tuple[str, ...],
    where: str | None,
    destinations: tuple[str, ...],
    areas: "tuple[Area, ...]",
    vacuum_now: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Delete messages: of whole days, by the time at which they were mirrored, or with --key and --where of all days.

    Deleted messages are not mirrored again, and `verify` does not report them as missing. Files that left the tables
    more than seven days ago are removed from the disk; until then `query --as-of` reads them. --key and --where also
    change the files of `mirror export`, and --vacuum-now removes the old files at once. They do not reach the broker,
    nor copies elsewhere. It may run while `mirror run` does.

    \b
    oms-bridge mirror prune --out /srv/mirror --keep 30d --dry-run
    oms-bridge mirror prune --out /srv/mirror --keep 90d --area dead-letters --area quarantine
    oms-bridge mirror prune --out /srv/mirror --key customer-7 --vacuum-now
    """
    from bridge.mirror.query import one_of
    from bridge.mirror.schema import AREAS
    from bridge.mirror.upkeep import Rule, vacuum

    erases = bool(keys) or where is not None
    if keep is None and not erases:
        raise click.UsageError("Give --keep, --key or --where.")
    conditions = [one_of("message_key", keys)] if keys else []
    conditions += [] if where is None else [f"({where})"]
    rule = Rule(keep or timedelta(), areas or AREAS, destinations, " AND ".join(conditions) or None)
    rows: list[int] = []
    _print(_pruned(out, rule, rows, erases=erases, dry_run=dry_run), None, as_json=as_json)
    removed = 0 if dry_run else vacuum(out, now=vacuum_now)
    if as_json:
        return
    verb = "would be deleted" if dry_run else "deleted"
    click.echo(f"{sum(rows):,} rows in {len(rows):,} days {verb}.")
    if not dry_run:
        age = "" if vacuum_now else " more than seven days ago"
        click.echo(f"{removed:,} files that left the tables{age} were removed.")
    if erases and not vacuum_now:
        click.echo("Files with the deleted messages stay for seven days; --vacuum-now removes them at once.")
    if erases:
        click.echo("The broker, backups and copies of this mirror are not changed.")


def _pruned(out: str, rule: "Rule", rows: list[int], *, erases: bool, dry_run: bool) -> Iterator[Line]:
    """Yield a line for each day, and for each exported file; `rows` gets the rows of each day."""
    from bridge.mirror.upkeep import copies, due, erase
    from bridge.mirror.upkeep import prune as days

    others = copies(out, rule) if erases else 0
    for pruned in (due if dry_run else days)(out, rule, datetime.now(UTC)):
        rows.append(pruned.rows)
        yield f"{pruned.day.path}  {pruned.rows:,} rows", {"folder": pruned.day.path, "rows": pruned.rows}
    if erases:
        for file in erase(out, rule, dry_run=dry_run):
            yield f"{file.path}  {file.rows:,} rows", file._asdict()
    if others:
        says = f"{others:,} other messages are copies of these (dead letters or restored) and are not deleted."
        yield says, {"copies": others}


def _before(minutes: int) -> datetime:
    return datetime.now(UTC) - timedelta(minutes=minutes)


def _print(lines: Iterable[Line], nothing: str | None, *, as_json: bool) -> None:
    """Print each line as soon as it is there; `nothing`: the sentence to print if there are none."""
    for text, fields in lines:
        click.echo(json.dumps(fields) if as_json else text)
        nothing = None
    if nothing is not None and not as_json:
        click.echo(nothing)
