"""`--beside REV`: another revision is checked out, used and removed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks import revision, talk
from benchmarks.launch import bridge
from benchmarks.revision import ROOT, THIS, checkout

GIT = ["git", "-c", "user.name=test", "-c", "user.email=test@example.com"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two commits: `bridge/__init__.py` has another version in the second."""
    root = tmp_path / "repository"
    (root / "bridge").mkdir(parents=True)
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, root)
    subprocess.run([*GIT, "init", "--quiet"], cwd=root, check=True)
    for version in ("1", "2"):
        (root / "bridge" / "__init__.py").write_text(f"__version__ = '{version}'\n", "utf-8")
        subprocess.run([*GIT, "add", "."], cwd=root, check=True)
        subprocess.run([*GIT, "commit", "--quiet", "-m", version], cwd=root, check=True)
    return root


def version_of(root: Path) -> str:
    return (root / "bridge" / "__init__.py").read_text("utf-8")


def worktrees(root: Path) -> int:
    listed = subprocess.run([*GIT, "worktree", "list"], cwd=root, capture_output=True, text=True, check=True)
    return len(listed.stdout.splitlines())


def test_the_revision_is_checked_out_and_removed(repository: Path) -> None:
    with checkout("HEAD~1", repository) as before:
        assert version_of(before.root) == "__version__ = '1'\n"
        assert before.python == THIS.python
        assert worktrees(repository) == 2
    assert version_of(repository) == "__version__ = '2'\n"
    assert not before.root.exists()
    assert worktrees(repository) == 1


def test_a_failed_run_removes_the_worktree_too(repository: Path) -> None:
    with pytest.raises(RuntimeError, match="measured nothing"), checkout("HEAD~1", repository):
        raise RuntimeError("measured nothing")
    assert worktrees(repository) == 1


def test_an_unknown_revision_is_an_error(repository: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError), checkout("no-such-revision", repository):
        pass


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("pyproject.toml", '"click>=8.4,<9"', '"click>=8.5,<9"'),
        ("pyproject.toml", 'memory = "adapters.memory:connect"', 'memory = "adapters.ram:connect"'),
        ("pyproject.toml", '"uvloop>=0.23"', '"uvloop>=0.24"'),
        ("constraints.txt", "pika==1.4.4", "pika==1.4.3"),
    ],
)
def test_other_dependencies_get_their_own_environment(
    repository: Path, monkeypatch: pytest.MonkeyPatch, file: str, old: str, new: str
) -> None:
    text = (repository / file).read_text("utf-8")
    assert old in text
    (repository / file).write_text(text.replace(old, new), "utf-8")
    monkeypatch.setattr(revision, "_environment", lambda _, directory: directory / "bin" / "python")
    with checkout("HEAD", repository) as before:
        assert before.python == before.root.parent / "environment" / "bin" / "python"


def test_dependencies_that_a_bridge_does_not_need_may_differ(repository: Path) -> None:
    project, pins = repository / "pyproject.toml", repository / "constraints.txt"
    project.write_text(project.read_text("utf-8").replace("ruff==", "ruff>="), "utf-8")
    pins.write_text(pins.read_text("utf-8") + "brand-new==1.0\n", "utf-8")
    with checkout("HEAD", repository) as before:
        assert before.python == THIS.python


def test_a_bridge_of_a_checkout_runs_its_code() -> None:
    with checkout("HEAD") as before:
        package = before.root / "bridge" / "__init__.py"
        package.write_text("__version__ = '0.0.1+before'\n", "utf-8")
        said = subprocess.run(
            [before.program, "--version"], env=os.environ | before.variables, capture_output=True, text=True, check=True
        )
        assert "0.0.1+before" in said.stdout
        with bridge("granian", revision=before) as process, process.expecting(produced=3):
            talk.preload(process.url, "orders", 3)
