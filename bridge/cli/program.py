"""`oms-bridge`: the group of all commands, and `conformance`, which runs the conformance suite against any bridge."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from bridge import __version__
from bridge.cli import access, administration, messages, serve_and_check
from bridge.cli.command import CommandFailed
from bridge.mirror.commands import mirror

__all__ = ["main"]


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("url")
@click.argument("pytest_args", nargs=-1, type=click.UNPROCESSED)
def conformance(url: str, pytest_args: tuple[str, ...]) -> None:
    """Run the conformance suite against the bridge at URL. Arguments after URL are pytest's.

    The suite creates destinations and groups and leaves them behind: use a test bridge.

    \b
    oms-bridge conformance http://127.0.0.1:8080
    oms-bridge conformance http://127.0.0.1:8080 -k delay -x
    """
    suite = find_spec("openmessaging_conformance")
    needed = ("pytest", "pytest_asyncio", "httpx")
    if suite is None or not suite.origin or any(find_spec(name) is None for name in needed):
        raise CommandFailed(ModuleNotFoundError("The suite needs pip install 'openmessaging-bridge[conformance]'."))
    import pytest

    # Named by its folder: with --pyargs pytest reads the suite's conftest too late and rejects --bridge-url.
    folder = str(Path(suite.origin).parent)
    # Without the configuration of a project in the current folder, and without a conftest above the suite's folder.
    isolation = ["-c", os.devnull, f"--rootdir={folder}", f"--confcutdir={folder}", "-pno:cacheprovider"]
    settings = ["-oasyncio_mode=auto", "-oasyncio_default_fixture_loop_scope=function"]
    sys.exit(pytest.main([*isolation, *settings, folder, "--bridge-url", url, *pytest_args]))


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="oms-bridge")
def main() -> None:
    """Speak OpenMessaging over HTTP/2 in front of Kafka, RabbitMQ or memory.

    \b
    oms-bridge serve                                  a bridge in memory on 127.0.0.1:8080
    oms-bridge produce orders '{"id": 7}' --key 7     produce a message
    oms-bridge pull orders --group billing            pull it
    oms-bridge push orders --group audit              print messages as they arrive
    oms-bridge mirror once --out ./mirror             write all messages as Parquet
    """


for _command in (
    serve_and_check.serve,
    serve_and_check.check,
    access.token,
    messages.produce,
    messages.pull,
    messages.push,
    administration.callback,
    administration.transaction,
    administration.delete,
    administration.purge,
    mirror,
    conformance,
):
    main.add_command(_command)
