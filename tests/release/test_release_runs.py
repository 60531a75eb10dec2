"""The wheel, installed: its program runs, serves and tests a bridge, and none of it is the tree beside it."""

import json
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

import bridge
from tests.launch import Bridge
from tests.release.wheel import ROOT, run

pytestmark = pytest.mark.extended

_ADAPTERS: Final = """
import json
from importlib.metadata import entry_points
import sys
found = {entry.name: entry.load().__module__ for entry in entry_points(group="openmessaging_bridge.adapters")}
print(json.dumps({name: [module, sys.modules[module].__file__] for name, module in found.items()}))
"""


@pytest.fixture
def serving(environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bridge:
    """A bridge of the environment: the one beside its interpreter."""
    monkeypatch.setattr(sys, "executable", str(environment / "bin" / "python"))
    return Bridge(tmp_path)


def test_it_says_its_version(environment: Path) -> None:
    assert run(environment, "oms-bridge", "--version") == f"oms-bridge, version {bridge.__version__}\n"


def test_it_is_what_is_installed_that_runs(environment: Path) -> None:
    where = run(environment, "python", "-c", "import bridge; print(bridge.__file__)").strip()
    assert Path(where).is_relative_to(environment)


def test_every_adapter_can_be_loaded(environment: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    loaded = json.loads(run(environment, "python", "-c", _ADAPTERS))
    assert sorted(loaded) == sorted(project["entry-points"]["openmessaging_bridge.adapters"])
    for _, file in loaded.values():
        assert Path(file).is_relative_to(environment)


def test_it_serves_and_its_suite_finds_nothing(environment: Path, serving: Bridge) -> None:
    with serving as bridge:
        produced = run(environment, "oms-bridge", "produce", "orders", "one", "--url", bridge.url)
        assert produced.startswith("stored ")
        assert run(environment, "oms-bridge", "pull", "orders", "--group", "g", "--raw", "--url", bridge.url) == "one"
        judged = run(environment, "oms-bridge", "conformance", bridge.url, "-q", "-k", "produce or delay")
        assert " passed" in judged
        assert bridge.terminate() == 0


def test_the_commands_of_the_mirror_are_there(environment: Path, subtests: pytest.Subtests) -> None:
    for command in ("once", "query", "verify", "report"):
        with subtests.test(command=command):
            assert f"oms-bridge mirror {command} " in run(environment, "oms-bridge", "mirror", command, "--help")
