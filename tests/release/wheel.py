"""The wheel, built of a copy of the tree, and an environment into which nothing else is installed."""

import shutil
import subprocess
import sys
import sysconfig
import venv
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Final
from zipfile import ZipFile

ROOT: Final = Path(__file__).parents[2]
_LEFT_OUT: Final = shutil.ignore_patterns(".*", "build", "dist", "node_modules", "__pycache__", "*.egg-info")
"""Not of the tree. An earlier `build` is what gives setuptools files that are there no more."""


def built(directory: Path, *made: Path) -> Path:
    """Build the sdist and, from it, the wheel, as `make wheel` does; needs the package index for setuptools.

    `made`: more files of the tree, as `make wheel` makes them, empty.
    """
    tree = directory / "tree"
    shutil.copytree(ROOT, tree, ignore=_LEFT_OUT)
    for path in made:
        (tree / path).parent.mkdir(parents=True)
        (tree / path).touch()
    _python("-m", "build", "--outdir", directory / "dist", tree)
    (wheel,) = (directory / "dist").glob("*.whl")
    return wheel


def installed(wheel: Path, directory: Path) -> Path:
    """Install it into a new environment and return that; what it depends on comes from the environment of the tests."""
    venv.create(directory, with_pip=False)
    pip = ("-m", "pip", "--disable-pip-version-check", "--python", directory / "bin" / "python")
    _python(*pip, "install", "--no-deps", "--no-index", "--quiet", wheel)
    (packages,) = directory.glob("lib/*/site-packages")
    # a bare path: the file that makes the tree importable in the environment of the tests is not read from it
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return directory


def run(environment: Path, program: str, *arguments: str) -> str:
    """Run a program of the environment, away from the tree."""
    command = [str(environment / "bin" / program), *arguments]
    done = subprocess.run(command, cwd=environment, env={"PATH": ""}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def names(wheel: Path) -> list[str]:
    """Return the names of its files."""
    with ZipFile(wheel) as archive:
        return archive.namelist()


def metadata(wheel: Path) -> Message:
    """Return what it says of itself."""
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(name).decode())


def _python(*arguments: str | Path) -> None:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
