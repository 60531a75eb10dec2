"""The sentence for an operator if something that the mirror needs is missing."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

PROGRAM = Path(sys.executable).with_name("oms-bridge")


def ran(*command: str | Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, env=os.environ | environ, capture_output=True, text=True, check=False, timeout=120)


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for command, missing in {
        "once": "pyspark",
        "verify": "duckdb",
        "compact": "deltalake",
        "report": "pyspark",
    }.items():
        with subtests.test(command=command):
            program = f"import sys; sys.modules[{missing!r}] = None; from bridge.cli.program import main; main()"
            done = ran(sys.executable, "-c", program, "mirror", command, "--out", tmp_path / "out")
            assert done.returncode == 1
            assert "pip install 'openmessaging-bridge[mirror]'" in done.stderr
            assert len(done.stderr.splitlines()) == 1


def test_without_java_it_says_so(tmp_path: Path) -> None:
    done = ran(PROGRAM, "mirror", "run", "--out", tmp_path / "out", PATH="/nowhere", JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    assert "it needs Java 17" in done.stderr.splitlines()[-1]


def test_an_unknown_backend_is_named(tmp_path: Path) -> None:
    done = ran(PROGRAM, "mirror", "once", "--out", tmp_path / "out", "--backend", "pulsar://localhost")
    assert done.returncode == 1
    assert "pulsar:// cannot be mirrored" in done.stderr


def test_once_gives_up_on_a_backend_that_is_not_there(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = "http://{}:{}".format(*free.getsockname())
    options = ("--bridge", address, "--out", tmp_path / "out", "--timeout", "0.1")
    done = ran(PROGRAM, "mirror", "once", *options, PATH="/nowhere", JAVA_HOME=str(tmp_path))  # Spark is not started
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith(
        f"Error: The backend could not be reached for 0.1 s, so not everything is mirrored: The bridge at {address}"
    )


def test_once_that_is_stopped_while_it_waits_did_not_finish(tmp_path: Path, subtests: pytest.Subtests) -> None:
    status = tmp_path / "status.json"
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        with subtests.test(signal=number), socket.create_server(("127.0.0.1", 0)) as silent:
            status.unlink(missing_ok=True)
            address = "http://{}:{}".format(*silent.getsockname())
            options = ("--bridge", address, "--out", tmp_path / "out", "--status", status)
            job = subprocess.Popen([PROGRAM, "mirror", "once", *options], stdout=PIPE, stderr=PIPE, text=True)
            silent.accept()[0].close()  # it asks the backend
            job.send_signal(number)
            said, error = job.communicate(timeout=120)
            assert (job.returncode, said.splitlines()[0][:16]) == (code, "0 rows mirrored ")
            assert error.splitlines()[-1] == "Stopped before everything was mirrored."
            assert "Traceback" not in error
            assert json.loads(status.read_text())["state"] == "stopped"


def test_an_out_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = ran(PROGRAM, "mirror", "once", "--out", tmp_path / "file" / "out")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [f"Error: --out {tmp_path}/file/out cannot be written: Not a directory."]
