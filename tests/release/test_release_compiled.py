"""The wheel whose hot path is compiled: it behaves as the plain one, by the unit tests and by the conformance suite."""

import json
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

from tests.launch import Bridge
from tests.release.wheel import ROOT, run

pytestmark = pytest.mark.extended

MODULES: Final = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["openmessaging-bridge"]["compiled"]
PATCHED: Final = tomllib.loads(Path(__file__).with_name("compiled.toml").read_text("utf-8"))["patched"]
"""Unit tests that replace a part of a module; compiled code does not look such a part up again."""
FOLDERS: Final = (
    *("engine", "wire", "callbacks"),
    *(f"adapters_{name}" for name in ("memory", "amqp", "rabbitmq", "kafka")),
)
_FILES_OF: Final = """
import json, sys
from importlib import import_module
print(json.dumps([import_module(name).__file__ for name in sys.argv[1:]]))
"""


def test_what_the_table_names_is_compiled(compiled: Path) -> None:
    files = json.loads(run(compiled, "python", "-c", _FILES_OF, *MODULES))
    assert [name for name, file in zip(MODULES, files, strict=True) if not file.endswith(".so")] == []


def test_the_unit_tests_pass(compiled: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    tests = [*(f"tests/unit/{folder}" for folder in FOLDERS), *_tests_of_http()]
    without = [argument for test in PATCHED for argument in ("--deselect", test)]
    pytest_alone = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
    said = run(compiled, "python", *pytest_alone, *tests, *without, directory=tmp_path)
    assert " passed" in said


@pytest.mark.parametrize("server", ["hypercorn", "granian"])
def test_it_conforms(compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str) -> None:
    monkeypatch.setattr(sys, "executable", str(compiled / "bin" / "python"))
    with Bridge(tmp_path / "bridge", server=server) as bridge:
        judged = run(compiled, "oms-bridge", "conformance", bridge.url, "-q")
        assert " passed" in judged
        assert bridge.terminate() == 0


def test_each_patched_test_exists() -> None:
    for test in PATCHED:
        file, _, name = test.partition("::")
        assert name in (ROOT / file).read_text("utf-8"), test


def _tests_of_http() -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "unit").glob("test_http_*.py"))
