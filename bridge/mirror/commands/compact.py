"""`mirror compact`: few large files where there are many small ones."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from bridge.mirror.amounts import SIZE
from bridge.mirror.commands.shared_options import after_option, out_option
from bridge.mirror.commands.stated import stated

if TYPE_CHECKING:
    from bridge.mirror.upkeep import Compacted


@click.command()
@out_option
@after_option
@click.option(
    "--target-size",
    type=SIZE,
    default="256MB",
    show_default=True,
    help="Target size of a file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per hour.")
def compact(out: str, minutes: int, target_size: int, as_json: bool) -> None:
    """Merge the small files of closed hours into large ones, sorted by destination.

    It may run while `mirror run` does, and disturbs no reader: each hour is one commit. The files that it replaces stay
    on the disk for seven days, for readers and for `query --as-of`; `prune` removes them later.

    \b
    oms-bridge mirror compact --out /srv/mirror
    """
    with stated(as_json=as_json):
        from bridge.mirror.upkeep import compact as hours

        done = False
        for hour in hours(out, datetime.now(UTC) - timedelta(minutes=minutes), target_size):
            click.echo(_json(hour) if as_json else _text(hour))
            done = True
        if not done and not as_json:
            click.echo("There is nothing to compact.")


def _text(done: "Compacted") -> str:
    before, after = (size / (1 << 20) for size in (done.removed_bytes, done.added_bytes))
    files = f"{done.removed} files, {before:.1f} MB -> {done.added} files, {after:.1f} MB"
    return f"{done.hour.path}  {done.rows:,} rows: {files}"


def _json(done: "Compacted") -> str:
    facts = {"folder": done.hour.path, "rows": done.rows, "removed": done.removed, "removedBytes": done.removed_bytes}
    return json.dumps({**facts, "added": done.added, "addedBytes": done.added_bytes})
