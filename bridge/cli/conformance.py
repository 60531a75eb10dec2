"""`conformance`: run the conformance suite against any bridge."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from bridge.cli.run_command import CommandFailed


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
