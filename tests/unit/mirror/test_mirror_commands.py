"""What an operator is told where something that the mirror needs is not there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("oms-bridge")


def ran(*command: str | Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, env=os.environ | environ, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("command", ["once", "verify", "compact", "report"])
def test_without_the_extra_it_says_what_to_install(command: str, tmp_path: Path) -> None:
    program = "import sys; sys.modules['pyspark'] = None; from bridge.cli.program import main; main()"
    done = ran(sys.executable, "-c", program, "mirror", command, "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "pip install 'openmessaging-bridge[mirror]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_without_java_it_says_so(tmp_path: Path) -> None:
    done = ran(PROGRAM, "mirror", "once", "--out", tmp_path / "out", PATH="/nowhere", JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    assert "it needs Java 17" in done.stderr.splitlines()[-1]


def test_an_unknown_backend_is_named(tmp_path: Path) -> None:
    done = ran(PROGRAM, "mirror", "once", "--out", tmp_path / "out", "--backend", "pulsar://localhost")
    assert done.returncode == 1
    assert "there is no mirror of pulsar://" in done.stderr
