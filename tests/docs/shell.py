"""A shell for the commands of a page: its own directory and bridge, and no program that may do harm."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.docs.commands import ROOT
from tests.launch import Bridge

GUARD: Final = 600.0
"""Seconds until a command is given up: a guard, not a measurement."""
PROGRAMS: Final = ("gzip", "jq")
"""What commands may use beside `oms-bridge`, `curl` and `zcat`. Any other is not found: no cluster is touched."""
FOLDERS: Final = ("/var/lib/oms-bridge", "/srv/mirror")

_WRAPPER: Final = """#!/bin/sh
case "$1 $2" in
"produce "*|"pull "*|"push "*|"callback "*|"transaction "*) exec {real} "$@" --url {url} ;;
"mirror restore") exec {real} "$@" --url {url} ;;
"delete "*|"purge "*) exec {real} "$@" --management {management} ;;
"serve "*) exec {real} "$@" --listen 127.0.0.1:0 --management 127.0.0.1:0 ;;
"mirror once") PATH='{path}' exec {real} "$@" --bridge {url} ;;
esac
exec {real} "$@"
"""
_STAYS: Final = re.compile(r"oms-bridge (serve\b|push\b(?!.*--(wait-ms|count)))")


class Shell:
    """Runs commands as they stand on a page; addresses and folders on it become those of the test."""

    def __init__(self, directory: Path, bridge: Bridge, environ: Mapping[str, str] | None = None) -> None:
        """Make the directory, and in it the few programs there are. `environ`: more variables for the commands."""
        self.directory = directory
        self._environ = {"HOME": str(directory), "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT), **(environ or {})}
        self._given = {"http://127.0.0.1:8080": bridge.url, "http://127.0.0.1:9090": bridge.management}
        self._given |= {folder: str(directory / Path(folder).name) for folder in FOLDERS}
        self._given |= {".venv/bin/python": sys.executable, ".venv/bin/oms-bridge": "oms-bridge"}
        self._bin = directory / "bin"
        self._bin.mkdir(parents=True)
        real = Path(sys.executable).with_name("oms-bridge")
        self._write(
            "oms-bridge",
            _WRAPPER.format(real=real, url=bridge.url, management=bridge.management, path=os.environ["PATH"]),
        )
        self._write("curl", f'#!/bin/sh\nexec {found("curl")} --fail-with-body "$@"\n')
        self._write("zcat", f'#!/bin/sh\nexec {found("gzip")} -dc "$@"\n')
        for program in PROGRAMS:
            (self._bin / program).symlink_to(found(program))

    def run(self, command: str) -> str:
        """Run it to its end; what stays is ended once it has printed something. Return what it printed."""
        for there, real in self._given.items():
            command = command.replace(there, real)
        out, err = self.directory / "stdout", self.directory / "stderr"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [found("bash"), "-c", f"set -e -o pipefail\n{command}"],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=ROOT if "-m pytest" in command else self.directory,
                env=self._environ | {"PATH": str(self._bin)},
                start_new_session=True,
            )
        try:
            status = _until_it_prints(process, out) if _STAYS.search(command) else process.wait(GUARD)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        said = err.read_text("utf-8", "replace")
        assert status == 0, f"{command}\nexit status {status}\n{said[-4000:]}"
        assert not re.search(r"^Error", said, re.MULTILINE), f"{command}\n{said}"
        return out.read_text("utf-8")

    def _write(self, name: str, script: str) -> None:
        program = self._bin / name
        program.write_text(script)
        program.chmod(0o755)


def _until_it_prints(process: subprocess.Popen[bytes], out: Path) -> int:
    """Wait for its first output and end it. Return its exit status, 0 too where the signal has ended all of a pipe."""
    deadline = time.monotonic() + GUARD
    while not out.stat().st_size and process.poll() is None:
        assert time.monotonic() < deadline, "it printed nothing"
        time.sleep(0.05)
    assert process.poll() is None, "it did not stay"
    os.killpg(process.pid, signal.SIGTERM)
    status = process.wait(GUARD)
    return 0 if status in {-signal.SIGTERM, 128 + signal.SIGTERM} else status


def found(program: str) -> str:
    """Return its path; what is missing fails the test and says what to install."""
    path = shutil.which(program)
    assert path is not None, f"the commands of the documentation need {program}: apt-get install {program}"
    return path
