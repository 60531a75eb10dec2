"""`mirror run` and `mirror once`: the job itself."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli.options import reads_settings
from bridge.mirror.commands.stated import stated

if TYPE_CHECKING:
    from bridge.mirror.job import Shown
    from bridge.mirror.options import Options

Command = Callable[..., None]


def _mirrors(command: Command) -> Command:
    """Options of everything that runs the job."""
    options = (
        reads_settings,
        click.option("--out", required=True, metavar="PATH", help="Where to: any path that Spark can write."),
        click.option("--bridge", default="http://127.0.0.1:8080", show_default=True, help="The bridge of memory://."),
        click.option("--checkpoint", metavar="PATH", help="Spark's own notes; PATH/checkpoint unless set."),
        click.option(
            "--on-data-loss",
            type=click.Choice(["fail", "record"]),
            default="fail",
            show_default=True,
            help="Offsets are gone before they were read: stop and say so, or record the gap and go on.",
        ),
        click.option(
            "--rows", type=click.IntRange(1), default=200_000, show_default=True, help="At most so many a batch."
        ),
        click.option("--resume", is_flag=True, help="The checkpoint is lost: begin a new one where the manifests end."),
        click.option("--status", type=click.Path(dir_okay=False, path_type=Path), help="Keep a JSON status file."),
        click.option("--metrics", metavar="HOST:PORT", help="Serve /metrics, /status, /livez and /readyz."),
        click.option("--lines", "show", flag_value="lines", help="A line a batch, also on a terminal."),
        click.option("--quiet", "show", flag_value="quiet", help="Warnings only."),
        click.option("--log-level", metavar="LEVEL", help="debug, info (unless set), warning or error."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@_mirrors
@click.option(
    "--every", type=click.FloatRange(0.1), default=10.0, show_default=True, help="Seconds from one batch to the next."
)
def run(every: float, **given: object) -> None:
    """Mirror until SIGTERM or Ctrl-C: every message of every destination is one row, once.

    The backend is that of `serve`, from the same settings. One job mirrors a whole deployment: it reads the brokers,
    and of memory:// the bridge.

    \b
    oms-bridge mirror run --backend kafka://localhost:9092 --out /srv/mirror
    OMS_BACKEND=amqps://mirror:…@broker/orders oms-bridge mirror run --out s3a://lake/mirror --metrics 0.0.0.0:9091
    """
    _run(given, every, once=False)


@click.command()
@_mirrors
def once(**given: object) -> None:
    """Mirror what is there now, and end.

    \b
    oms-bridge mirror once --out ./mirror
    """
    _run(given, 0.0, once=True)


def _run(given: dict[str, object], every: float, *, once: bool) -> None:
    with stated():
        options, shown = _read(given, every)
        from bridge.mirror.job import run as work

        watch = work(options, shown, once=once)
    if once and shown.show != "quiet":
        click.echo(watch.summary())


def _read(given: dict[str, object], every: float) -> "tuple[Options, Shown]":
    from bridge import logs
    from bridge.errors import CannotStart
    from bridge.mirror.job import Shown
    from bridge.mirror.options import Options
    from bridge.settings import Address, SettingsError, load

    chosen = {name: given.pop(name) for name in ("backend", "log_level")}
    overrides = {
        "backend": chosen["backend"],
        "log": None if chosen["log_level"] is None else {"level": chosen["log_level"]},
    }
    config, status, metrics, show = (given.pop(name) for name in ("config", "status", "metrics", "show"))
    try:
        settings = load(config, {k: v for k, v in overrides.items() if v is not None}, os.environ)  # type: ignore[arg-type] # click's
        address = None if metrics is None else Address.parse(str(metrics))
    except (SettingsError, ValueError) as error:
        raise CannotStart(str(error)) from None
    logs.configure(settings.log.level)
    return Options(backend=settings.backend, every=every, **given), Shown(status, address, show or "auto")  # type: ignore[arg-type] # by name
