"""`conformance`: the suite, against any running bridge."""
# ruff: noqa: PLC0415, D301 - the imports: see bridge/cli/__init__.py; the \b keeps click from wrapping an example

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from bridge.cli.output import Failure


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("url")
@click.argument("pytest_args", nargs=-1, type=click.UNPROCESSED)
def conformance(url: str, pytest_args: tuple[str, ...]) -> None:
    """Run the conformance suite against the bridge at URL. What follows URL goes to pytest.

    The suite writes to destinations and groups of its own and leaves them behind: point it at a test bridge.

    \b
    oms-bridge conformance http://127.0.0.1:8080
    oms-bridge conformance http://127.0.0.1:8080 -k delay -x
    """
    suite = find_spec("openmessaging_conformance")
    if suite is None or not suite.origin or find_spec("pytest") is None or find_spec("pytest_asyncio") is None:
        raise Failure(ModuleNotFoundError("The suite needs pip install 'openmessaging-bridge[conformance]'."))
    import pytest

    # By its folder: under --pyargs pytest would refuse --bridge-url, for it reads the suite's conftest too late.
    # Without the configuration of whatever project stands around: it is not the suite's.
    folder = str(Path(suite.origin).parent)
    options = ["asyncio_mode=auto", "asyncio_default_fixture_loop_scope=function"]
    # nor what stands above it, as in a checkout of the bridge
    alone = ["-c", os.devnull, f"--rootdir={folder}", f"--confcutdir={folder}", "-pno:cacheprovider"]
    alone += [f"-o{option}" for option in options]
    sys.exit(pytest.main([*alone, folder, "--bridge-url", url, *pytest_args]))
