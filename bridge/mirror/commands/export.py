"""`mirror export`: closed hours as plain Parquet."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import json
from datetime import UTC, datetime, timedelta

import click

from bridge.mirror.commands.shared_options import after_option, out_option
from bridge.mirror.commands.stated import stated


@click.command()
@out_option
@after_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per file.")
def export(out: str, minutes: int, as_json: bool) -> None:
    """Write closed hours as plain Parquet, for readers without Delta: PATH/parquet/date=…/hour=…/….parquet.

    Each message is in one file, and no file changes later: messages that arrive late are further files. It may run
    while `mirror run` does, and again after it was killed; only one export may run at a time.

    \b
    oms-bridge mirror export --out /srv/mirror
    """
    with stated(as_json=as_json):
        from bridge.mirror.export import export as files

        done = False
        for file in files(out, datetime.now(UTC) - timedelta(minutes=minutes)):
            click.echo(json.dumps(file._asdict()) if as_json else f"{file.path}  {file.rows:,} rows")
            done = True
        if not done and not as_json:
            click.echo("There is nothing to export.")
