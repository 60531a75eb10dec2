"""`oms-bridge conformance URL`: the suite judges a bridge that it did not start, all of it at one place."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from bridge.cli import program
from tests.http.conftest import MOSTLY_HYPERCORN
from tests.launch import Bridge

pytestmark = MOSTLY_HYPERCORN

SUITE = Path(__file__).parents[1] / "conformance"


def judged(bridge: Bridge, monkeypatch: pytest.MonkeyPatch, *options: str) -> str:
    """Return what pytest prints when it is started as the command starts it, with the suite of this checkout."""
    given: list[str] = []
    spec = importlib.util.spec_from_file_location("openmessaging_conformance", SUITE / "__init__.py")
    monkeypatch.setattr(program, "find_spec", lambda _: spec)
    monkeypatch.setattr(pytest, "main", given.extend)
    CliRunner().invoke(program.conformance, [bridge.url, *options], catch_exceptions=False)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *given], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_case_runs_once_at_the_url(bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark that chooses places or tiers in this repository chooses nothing there."""
    listed = judged(bridge, monkeypatch, "--collect-only", "-q")
    cases = [line for line in listed.splitlines() if "::" in line and "test_coverage" not in line]
    assert cases
    assert all(bridge.url in case for case in cases)
    functions = {case.partition("[")[0].rpartition("/")[2] for case in cases}
    written = {
        f"{path.name}::{name}"
        for path in SUITE.glob("test_*.py")
        if path.name != "test_coverage.py"
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)
    }
    assert functions == written


@pytest.mark.extended
def test_the_suite_judges_it(bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    assert " passed" in judged(bridge, monkeypatch, "-q", "-k", "produce or delay or durability")


@pytest.mark.extended
def test_the_whole_suite_finds_nothing(bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    assert " passed" in judged(bridge, monkeypatch, "-q")
