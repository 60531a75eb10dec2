"""What the wheel holds and says: the whole tree, the extras, the licence, and one version."""

import ast
import re
import tomllib
from pathlib import Path
from typing import Final

import pytest
import yaml

import bridge
from bridge.mirror.jars import IN_WHEEL
from tests.release.wheel import ROOT, built, installed, metadata, names, run

FOLDERS: Final = {"bridge": "bridge", "adapters": "adapters", "tests/conformance": "openmessaging_conformance"}
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def tree() -> set[str]:
    """Return every file of the packages, by its name in the wheel."""
    return {
        f"{package}/{path.relative_to(ROOT / folder)}"
        for folder, package in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_the_tree_and_nothing_else(wheel: Path) -> None:
    held = {name for name in names(wheel) if ".dist-info/" not in name}
    assert sorted(tree() - held) == [], "is missing; see packages and package-data in pyproject.toml"
    assert sorted(held - tree()) == [], "is in the wheel and not in the tree"


def test_the_files_that_the_mirror_gives_to_java_are_in_it(wheel: Path, subtests: pytest.Subtests) -> None:
    for name in (
        "bridge/mirror/pom.xml",
        "bridge/mirror/append.scala",
        "bridge/mirror/s3.scala",
        "bridge/mirror/log4j2.properties",
    ):
        with subtests.test(name=name):
            assert name in names(wheel)


@pytest.mark.extended
def test_the_jars_that_make_wheel_has_made_are_in_it_and_found_without_maven(tmp_path: Path) -> None:
    jar = (IN_WHEEL / "a.jar").relative_to(ROOT)
    made = built(tmp_path, jar)
    assert str(jar) in names(made)
    environment = installed(made, tmp_path / "venv")
    assert run(environment, "oms-bridge", "mirror", "fetch-jars").strip().endswith(f"/site-packages/{jar}")


def test_it_is_plain_python_for_every_platform(wheel: Path) -> None:
    assert wheel.name == f"openmessaging_bridge-{bridge.__version__}-py3-none-any.whl"


def test_the_sdist_is_beside_it(wheel: Path) -> None:
    assert wheel.with_name(f"openmessaging_bridge-{bridge.__version__}.tar.gz").exists()


def test_the_licence_is_in_it(wheel: Path) -> None:
    assert metadata(wheel)["License-Expression"] == PROJECT["license"] == "Apache-2.0"
    assert metadata(wheel).get_all("License-File") == ["LICENSE"]
    assert any(re.fullmatch(r"[^/]+\.dist-info/licenses/LICENSE", name) for name in names(wheel))


def test_every_extra_exists_and_requires_something(wheel: Path, subtests: pytest.Subtests) -> None:
    for extra in ("kafka", "rabbitmq", "mirror", "fast", "jwt", "otel", "conformance"):
        with subtests.test(extra=extra):
            said = metadata(wheel)
            assert extra in said.get_all("Provides-Extra", [])
            assert any(re.search(rf"""extra == ["']{extra}["']""", line) for line in said.get_all("Requires-Dist", []))


def test_the_version_stands_in_one_place(wheel: Path) -> None:
    assert metadata(wheel)["Version"] == bridge.__version__
    assert "version" not in PROJECT
    assert "version" in PROJECT["dynamic"]
    given = [
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if "__version__" in (text := path.read_text("utf-8"))  # parsing every file takes seconds
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == "__version__"
    ]
    assert given == ["bridge/__init__.py"]


def test_every_chart_is_of_this_version(subtests: pytest.Subtests) -> None:
    """Helm reads no Python, so charts have to repeat it."""
    charts = sorted(ROOT.glob("helm/openmessaging-bridge/**/Chart.yaml"))
    assert len(charts) == 2
    for chart in charts:
        with subtests.test(chart=chart):
            assert yaml.safe_load(chart.read_text("utf-8"))["appVersion"] == bridge.__version__
            values = yaml.safe_load((chart.parent / "values.yaml").read_text("utf-8")) or {}
            assert values.get("image", {}).get("tag") in {None, "", bridge.__version__}
