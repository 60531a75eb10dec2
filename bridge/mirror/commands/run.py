"""`mirror run` and `mirror once`, the job itself; `fetch-jars` and `executor`, which Spark needs on a cluster."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import asyncio
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from bridge.cli.command import settings_options
from bridge.errors import CannotStart
from bridge.mirror.commands.options import Command, MirrorCommand, bridge_option, out_option

if TYPE_CHECKING:
    from bridge.mirror.job import Monitoring
    from bridge.mirror.sources import Options


def _mirrors(command: Command) -> Command:
    """Options of everything that runs the job."""
    options = (
        settings_options,
        out_option,
        bridge_option,
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


@click.command(cls=MirrorCommand)
@_mirrors
@click.option(
    "--every", type=click.FloatRange(0.1), default=10.0, show_default=True, help="Seconds from one batch to the next."
)
@click.option(
    "--export",
    is_flag=True,
    help="Write what was mirrored in ended hours as plain Parquet, too, as `mirror export` does.",
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


@click.command(cls=MirrorCommand)
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
    options, monitoring = _read(given, every)
    from bridge.mirror.job import run as run_job

    try:
        reporter, stopped_by = run_job(options, monitoring, timeout=timeout)
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
    from bridge.mirror.job import Monitoring
    from bridge.mirror.sources import Options
    from bridge.settings import Address, SettingsError, load
    from bridge.tracing import create_tracing

    backend, level = given.pop("backend"), given.pop("log_level")
    overrides = {"backend": backend, "log": None if level is None else {"level": level}}
    config, status, metrics, show = (given.pop(name) for name in ("config", "status", "metrics", "show"))
    if wrong := [pair for pair in given["conf"] if not re.match(r"spark\..+=", pair)]:  # type: ignore[attr-defined] # click's
        raise CannotStart(f"--conf {wrong[0]}: write KEY=VALUE, with a key of Spark's: spark.driver.memory=2g.")
    try:
        address = None if metrics is None else Address.parse(str(metrics))
    except ValueError as error:
        raise CannotStart(f"--metrics {metrics}: {error}.") from None
    try:
        settings = load(config, {k: v for k, v in overrides.items() if v is not None}, os.environ)  # type: ignore[arg-type] # click's
        tracing = create_tracing(settings)
    except (SettingsError, ValueError) as error:
        raise CannotStart(str(error)) from None
    logs.configure(settings.log.level, settings.log.format)
    return Options(backend=settings.backend, every=every, **given), Monitoring(status, address, show or "auto", tracing)  # type: ignore[arg-type] # by name


@click.command("fetch-jars", cls=MirrorCommand)
def fetch_jars() -> None:
    """Print the paths of the jars of Delta Lake and S3; outside of a released wheel Maven fetches them first.

    The paths are separated by commas, as `spark-submit` takes them.

    \b
    spark-submit --jars "$(oms-bridge mirror fetch-jars)" …
    """
    from bridge.mirror.jars import spark_jars

    click.echo(",".join(map(str, spark_jars())))


_BACKEND: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_ARGUMENTS: Final = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
_MEMORY: Final = "SPARK_EXECUTOR_MEMORY"
_JAVA_OPTION: Final = "SPARK_JAVA_OPT_"
"""With a number: one option of Java each."""


@click.command(cls=MirrorCommand, hidden=True)
def executor() -> None:
    """Become an executor of Spark, from the variables that Spark gives to its pods in Kubernetes."""
    if missing := [name for name in (*_ARGUMENTS.values(), _MEMORY) if name not in os.environ]:
        raise CannotStart(f"Only Spark starts executors, in Kubernetes: {missing[0]} is not set.")
    home, command = java_command(os.environ)
    os.execve(command[0], command, os.environ | {"SPARK_HOME": str(home)})  # noqa: S606 - without a shell


def java_command(environ: Mapping[str, str]) -> tuple[Path, list[str]]:
    """Return the folder of Spark, and the command that runs an executor. Raises `CannotStart` without Java."""
    import pyspark

    from bridge.mirror.jars import java
    from bridge.mirror.session import LOGGING

    home = Path(pyspark.__file__).parent
    numbers = sorted(int(name.removeprefix(_JAVA_OPTION)) for name in environ if name.startswith(_JAVA_OPTION))
    options = [environ[f"{_JAVA_OPTION}{number}"] for number in numbers]
    heap = [f"-Xms{environ[_MEMORY]}", f"-Xmx{environ[_MEMORY]}"]
    path = [environ.get("SPARK_CLASSPATH"), environ.get("SPARK_CONF_DIR"), str(home / "jars" / "*")]
    classes = ["-cp", ":".join(filter(None, path))]
    arguments = [each for option, name in _ARGUMENTS.items() for each in (option, environ[name])]
    return home, [java(), LOGGING, *options, *heap, *classes, _BACKEND, *arguments]
