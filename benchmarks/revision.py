"""Revisions of the bridge: this tree, and another one for `--beside`, in a git worktree that is removed at the end."""

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
EXTRAS: Final = ("kafka", "rabbitmq", "fast")
"""What a bridge under measurement may need."""
_PIN: Final = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)


_PREFETCH: Final = "OMS_LIMITS__PREFETCH"
_PREFETCH_BEFORE: Final = "OMS_LIMITS__WINDOW"
"""The name of this setting in revisions up to 2026-11-22, which refuse one that they do not know."""


class Revision(NamedTuple):
    """A checkout, and the Python of an environment that has its dependencies."""

    name: str
    root: Path
    python: Path

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables with which that Python imports this checkout, wherever its environment is from."""
        return {"PYTHONPATH": str(self.root)}

    def named(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return settings as that revision names them."""
        old = "window_bytes" in (self.root / "bridge" / "settings" / "model.py").read_text("utf-8")
        return {_PREFETCH_BEFORE if old and name == _PREFETCH else name: value for name, value in settings.items()}

    @property
    def program(self) -> str:
        """The path of `oms-bridge`."""
        return str(self.python.with_name("oms-bridge"))


THIS: Final = Revision("this tree", ROOT, Path(sys.executable))


@contextmanager
def checkout(name: str, repository: Path = ROOT) -> Iterator[Revision]:
    """Check that revision out into a temporary directory. Raises `CalledProcessError` if git does not know it.

    It shares this environment if its dependencies are the same; otherwise it gets its own, which takes a minute or two.
    """
    commit = _git(repository, "rev-parse", "--verify", "--short=12", f"{name}^{{commit}}")
    with tempfile.TemporaryDirectory(prefix="oms-bench-") as directory:
        root = Path(directory, "tree")
        _git(repository, "worktree", "add", "--detach", str(root), commit)
        try:
            shared = dependencies(root) == dependencies(repository) and not _pinned_otherwise(root, repository)
            yield Revision(commit, root, THIS.python if shared else _environment(root, Path(directory, "environment")))
        finally:
            _git(repository, "worktree", "remove", "--force", str(root))


def dependencies(root: Path) -> dict[str, Any]:
    """Return what a checkout requires of its environment: packages, and the entry points that an install writes."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    extras = {extra: project["optional-dependencies"].get(extra) for extra in EXTRAS}
    return {key: project.get(key) for key in ("dependencies", "scripts", "entry-points")} | extras


def _pinned_otherwise(root: Path, repository: Path) -> bool:
    """Whether both pin a package, to different versions."""
    ours, theirs = (dict(_PIN.findall((each / "constraints.txt").read_text("utf-8"))) for each in (repository, root))
    return any(theirs.get(package, version) != version for package, version in ours.items())


def _environment(root: Path, directory: Path) -> Path:
    python = directory / "bin" / "python"
    pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(root / "constraints.txt")]
    subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
    subprocess.run([python, *pip, "-e", f"{root}[{','.join(EXTRAS)}]"], check=True)
    return python


def _git(repository: Path, *arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True).stdout.strip()
