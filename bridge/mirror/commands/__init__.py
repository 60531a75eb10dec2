"""`oms-bridge mirror …`: one file for each command."""
# ruff: noqa: D301 - the \b in a docstring keeps click from wrapping an example

import click

from bridge.mirror.commands.inspect import report, verify
from bridge.mirror.commands.query import query
from bridge.mirror.commands.restore import restore
from bridge.mirror.commands.run import executor, fetch_jars, once, run
from bridge.mirror.commands.upkeep import compact, export, prune

__all__ = ["mirror"]


@click.group(commands=[run, once, compact, prune, verify, restore, query, export, report, fetch_jars, executor])
def mirror() -> None:
    """Write every message of a backend into a table, and use it. Needs the extra `mirror`, and Java 17.

    \b
    oms-bridge mirror run --backend kafka://localhost:9092 --out /srv/mirror
    oms-bridge mirror query --out /srv/mirror 'select destination, count(*) from messages group by 1'
    """
