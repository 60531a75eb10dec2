"""`mirror compact`: few large files where there are many small ones."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import json
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from bridge.cli.output import FAILED
from bridge.mirror.amounts import SIZE
from bridge.mirror.commands.stated import stated

if TYPE_CHECKING:
    from bridge.mirror.upkeep.compact import Step


@click.command()
@click.option("--out", required=True, metavar="PATH", help="The mirror: any path that Spark knows.")
@click.option(
    *("--after", "minutes"),
    type=click.IntRange(0),
    default=60,
    show_default=True,
    metavar="MINUTES",
    help="Only hours that ended so long ago.",
)
@click.option(
    "--target-size", type=SIZE, default="256MB", show_default=True, help="Of a file: it has half to all of it."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per change.")
def compact(out: str, minutes: int, target_size: int, as_json: bool) -> None:
    """Rewrite the files of closed hours into few: sorted by partition and offset, findable by message id.

    It may run beside `mirror run`. Readers see every message at most once; while a change is made, for a moment not
    all of its messages. A file that cannot be read is named and left as it is.

    Exit status: 0 done, 1 something was left as it is.

    \b
    oms-bridge mirror compact --out /srv/mirror
    """
    with stated(as_json=as_json):
        sys.exit(_compact(out, timedelta(minutes=minutes), target_size, as_json=as_json))


def _compact(out: str, after: timedelta, target: int, *, as_json: bool) -> int:
    from bridge.mirror.session import session
    from bridge.mirror.sink.files import Files
    from bridge.mirror.upkeep.compact import compact as steps

    failed = done = False
    with session("oms-bridge mirror compact") as spark:
        for step in steps(spark, Files(spark, out), datetime.now(UTC), after, target):
            click.echo(_json(step) if as_json else _text(step))
            failed, done = failed or bool(step.problems), True
    if not done and not as_json:
        click.echo("There is nothing to compact.")
    return FAILED if failed else 0


def _text(step: "Step") -> str:
    before, after = (sum(file.bytes for file in files) / (1 << 20) for files in (step.removed, step.added))
    rows = sum(file.rows for file in step.added)
    made = f"{rows:,} rows: {len(step.removed)} files, {before:.1f} MB -> {len(step.added)} files, {after:.1f} MB"
    return "\n".join([made] * bool(step.added) + [f"left: {path}: {why}" for path, why in step.problems])


def _json(step: "Step") -> str:
    facts = {
        "rows": sum(file.rows for file in step.added),
        "removed": len(step.removed),
        "removedBytes": sum(file.bytes for file in step.removed),
        "added": len(step.added),
        "addedBytes": sum(file.bytes for file in step.added),
        "problems": [problem._asdict() for problem in step.problems],
    }
    return json.dumps(facts)
