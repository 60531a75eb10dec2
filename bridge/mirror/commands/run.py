"""`mirror run` and `mirror once`: the job itself."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli.options import settings_options
from bridge.mirror.commands.stated import stated

if TYPE_CHECKING:
    from bridge.mirror.job import Monitoring
    from bridge.mirror.options import Options

Command = Callable[..., None]


def _mirrors(command: Command) -> Command:
    """Options of everything that runs the job."""
    options = (
        settings_options,
        click.option("--out", required=True, metavar="PATH", help="Path or URL of the mirror: /srv/mirror, s3a://…"),
        click.option("--bridge", default="http://127.0.0.1:8080", show_default=True, help="The bridge of memory://."),
        click.option("--checkpoint", metavar="PATH", help="Folder of Spark's checkpoint; default: PATH/checkpoint."),
        click.option(
            "--on-data-loss",
            type=click.Choice(["fail", "record"]),
            default="fail",
            show_default=True,
            help="If offsets were dropped before they were read: end with an error, or record the gap and continue.",
        ),
        click.option(
            "--rows",
            type=click.IntRange(1),
            default=200_000,
            show_default=True,
            help="Maximum number of rows in a batch.",
        ),
        click.option(
            "--resume", is_flag=True, help="If the checkpoint is lost: begin a new one where the last commit ends."
        ),
        click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; may be repeated."),
        click.option(
            "--status", type=click.Path(dir_okay=False, path_type=Path), help="Write the status to this file, as JSON."
        ),
        click.option("--metrics", metavar="HOST:PORT", help="Serve /metrics, /status, /livez and /readyz."),
        click.option("--lines", "show", flag_value="lines", help="Log one line per batch, also on a terminal."),
        click.option("--quiet", "show", flag_value="quiet", help="Warnings only."),
        click.option("--log-level", metavar="LEVEL", help="debug, info (default), warning or error."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@_mirrors
@click.option(
    "--every", type=click.FloatRange(0.1), default=10.0, show_default=True, help="Seconds from one batch to the next."
)
@click.option(
    "--export", is_flag=True, help="Write hours that ended an hour ago as plain Parquet, too, as `mirror export` does."
)
def run(every: float, **given: object) -> None:
    """Mirror until SIGTERM or Ctrl-C: every message of every destination is one row, once.

    The backend is that of `serve`, from the same settings. One job mirrors a whole deployment: it reads the broker, or
    with memory:// the bridge.

    Exit status: 0 after SIGTERM or Ctrl-C, which end the batch under way first; 1 after an error.

    \b
    oms-bridge mirror run --backend kafka://localhost:9092 --out /srv/mirror
    OMS_BACKEND=amqps://mirror:…@broker/orders oms-bridge mirror run --out /srv/mirror --metrics 0.0.0.0:9091
    """
    _run(given, every, None)


@click.command()
@_mirrors
@click.option(
    "--timeout",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up if the backend cannot be reached for this long.",
)
def once(timeout: float, **given: object) -> None:
    """Mirror until caught up, and end.

    Exit status: 0 caught up, 1 an error, or the backend could not be reached, 130 or 143 stopped by Ctrl-C or SIGTERM.

    \b
    oms-bridge mirror once --out ./mirror
    """
    _run(given, 0.0, timeout)


def _run(given: dict[str, object], every: float, timeout: float | None) -> None:
    with stated():
        options, monitoring = _read(given, every)
        from bridge.mirror.job import run as work

        try:
            reporter, stopped_by = work(options, monitoring, timeout=timeout)
        finally:
            if monitoring.tracing is not None:
                asyncio.run(monitoring.tracing.close())
    if timeout is None:
        return
    if monitoring.show != "quiet":
        click.echo(reporter.summary())
    if stopped_by is not None:
        click.echo("Stopped before everything was mirrored.", err=True)
        sys.exit(128 + stopped_by)


def _read(given: dict[str, object], every: float) -> "tuple[Options, Monitoring]":
    from bridge import logs
    from bridge.errors import CannotStart
    from bridge.mirror.job import Monitoring
    from bridge.mirror.options import Options
    from bridge.settings import Address, SettingsError, load
    from bridge.tracing import create_tracing

    chosen = {name: given.pop(name) for name in ("backend", "log_level")}
    overrides = {
        "backend": chosen["backend"],
        "log": None if chosen["log_level"] is None else {"level": chosen["log_level"]},
    }
    config, status, metrics, show = (given.pop(name) for name in ("config", "status", "metrics", "show"))
    if wrong := [pair for pair in given["conf"] if "=" not in pair]:  # type: ignore[attr-defined] # click's
        raise CannotStart(f"--conf {wrong[0]}: write KEY=VALUE.")
    try:
        settings = load(config, {k: v for k, v in overrides.items() if v is not None}, os.environ)  # type: ignore[arg-type] # click's
        address = None if metrics is None else Address.parse(str(metrics))
        tracing = create_tracing(settings)
    except (SettingsError, ValueError) as error:
        raise CannotStart(str(error)) from None
    logs.configure(settings.log.level, settings.log.format)
    return Options(backend=settings.backend, every=every, **given), Monitoring(status, address, show or "auto", tracing)  # type: ignore[arg-type] # by name
