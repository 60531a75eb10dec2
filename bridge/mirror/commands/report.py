"""`mirror report`: one page about the mirror."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import time
from pathlib import Path

import click

from bridge.mirror.commands.shared_options import out_option
from bridge.mirror.commands.stated import stated


@click.command()
@out_option
@click.option("--html", type=click.Path(path_type=Path), default="mirror-report.html", show_default=True)
@click.option(
    "--backend", envvar="OMS_BACKEND", metavar="URL", help="Also show how far the mirror is behind this backend."
)
@click.option("--bridge", default="http://127.0.0.1:8080", show_default=True, help="The bridge of a memory:// backend.")
def report(out: str, html: Path, backend: str | None, bridge: str) -> None:
    """Write one HTML page about the mirror: traffic, sizes, latency, expired and dead letters, gaps, quarantine.

    The page is a single file without scripts, and loads nothing else. It names destinations, groups and errors,
    and shows no bodies.

    \b
    oms-bridge mirror report --out /srv/mirror --html /var/www/mirror.html
    """
    with stated():
        _report(out, html, backend, bridge)
    click.echo(f"written {html}")


def _report(out: str, html: Path, backend: str | None, bridge: str) -> None:
    from bridge.mirror.options import Options
    from bridge.mirror.report.figures import count
    from bridge.mirror.report.page import page
    from bridge.mirror.sources import open_source

    bounds = None if backend is None else open_source(Options(backend, out, bridge)).bounds()
    html.write_text(page(count(out, bounds, time.time_ns() // 1_000_000)), "utf-8")
