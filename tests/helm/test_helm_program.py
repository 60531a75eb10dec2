"""helm is built once, however many workers ask; if it cannot be built, the error says why."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.brokers import cache
from tests.brokers.cache import Missing
from tests.helm import program
from tests.helm.program import VERSION

ROOT = Path(__file__).parents[2]
GO = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
sleep 0.3
mkdir -p "$GOBIN" && touch "$GOBIN/helm"
"""
ASK = "from tests.helm.program import built; print(built())"


def ask(path: Path, home: Path) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PATH": f"{path}:/usr/bin:/bin", "XDG_CACHE_HOME": str(home)}
    command = [sys.executable, "-c", ASK]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def install_go(path: Path, script: str) -> None:
    path.mkdir()
    (path / "go").write_text(script)
    (path / "go").chmod(0o755)


def test_several_workers_build_it_once(tmp_path: Path) -> None:
    install_go(tmp_path / "bin", GO)
    workers = [ask(tmp_path / "bin", tmp_path / "cache") for _ in range(4)]
    built = tmp_path / "cache" / "openmessaging-bridge" / "bin" / f"helm-{VERSION}"
    assert [worker.communicate()[0].strip() for worker in workers] == [str(built)] * 4
    assert built.exists()
    (call,) = (tmp_path / "bin" / "calls").read_text().splitlines()
    assert call == f"install helm.sh/helm/v3/cmd/helm@{VERSION}"


@pytest.mark.parametrize(("go", "why"), [("exit 1", "go install"), ("echo refused >&2; exit 1", "refused")])
def test_a_build_that_fails_leaves_nothing_and_says_why(tmp_path: Path, go: str, why: str) -> None:
    install_go(tmp_path / "bin", f"#!/bin/sh\n{go}\n")
    worker = ask(tmp_path / "bin", tmp_path / "cache")
    _, error = worker.communicate()
    assert worker.returncode != 0
    assert "Missing" in error
    assert why in error
    assert not list((tmp_path / "cache").rglob("helm-*"))


def test_without_go_the_error_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    monkeypatch.setattr(cache, "CACHE", tmp_path)
    with pytest.raises(Missing, match="there is no Go"):
        program.built()
