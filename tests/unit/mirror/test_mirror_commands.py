"""The sentence for an operator if something that the mirror needs is missing."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
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


def test_a_wrong_option_is_named(tmp_path: Path, subtests: pytest.Subtests) -> None:
    spark = "write KEY=VALUE, with a key of Spark's: spark.driver.memory=2g."
    for option, value, says in (
        ("--metrics", "nowhere", "host:port is expected, for example"),
        ("--conf", "spark.driver.memory", spark),
        ("--conf", "driver.memory=2g", spark),
    ):
        with subtests.test(value):
            done = ran(PROGRAM, "mirror", "run", "--out", tmp_path, option, value)
            assert (done.returncode, done.stderr.startswith(f"Error: {option} {value}: {says}")) == (1, True)


def test_ctrl_c_ends_the_fetching_of_jars(tmp_path: Path) -> None:
    """A terminal signals Maven and the job at once."""
    (tmp_path / "mvn").write_text(f"#!/bin/sh\ntouch {tmp_path}/fetching\nexec sleep 60\n")
    (tmp_path / "mvn").chmod(0o755)
    environ = {name: value for name, value in os.environ.items() if name != "OMS_MIRROR_JARS"}
    environ |= {"PATH": f"{tmp_path}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    job = subprocess.Popen(
        [PROGRAM, "mirror", "run", "--out", tmp_path / "out"],
        env=environ, stdout=PIPE, stderr=PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        while not (tmp_path / "fetching").exists():
            assert job.poll() is None
            time.sleep(0.1)
        os.killpg(job.pid, signal.SIGINT)
        _, error = job.communicate(timeout=120)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
    assert (job.returncode, "Error" in error) == (0, False)
    assert not list((tmp_path / "cache" / "openmessaging-bridge").iterdir())


def test_a_file_url_is_one_folder(tmp_path: Path) -> None:
    (tmp_path / "a b").touch()
    done = ran(PROGRAM, "mirror", "once", "--out", f"{tmp_path.as_uri()}/a%20b")
    assert done.stderr.splitlines() == [f"Error: --out {tmp_path}/a b cannot be written: File exists."]
    assert [path.name for path in tmp_path.iterdir()] == ["a b"]


def test_an_out_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = ran(PROGRAM, "mirror", "once", "--out", tmp_path / "file" / "out")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [f"Error: --out {tmp_path}/file/out cannot be written: Not a directory."]
