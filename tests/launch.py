"""A real bridge process for tests: started on free ports, stopped by its own id, its log kept and shown."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

READY_SECONDS: Final = 30.0
STOP_SECONDS: Final = 30.0
SHOWN: Final = 4000
"""Characters of a bridge's log that a failing test shows."""

_READY: Final = re.compile(r"messages on (https?://\S+), management on (http://[^\s,]+)")


class Bridge:
    """One running `oms-bridge serve`. Use it as a context manager: at the end it is gone, however the test ended."""

    running: ClassVar[set["Bridge"]] = set()

    def __init__(
        self,
        directory: Path,
        *,
        server: str = "hypercorn",
        backend: str = "memory://",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Start it and wait for its ready line. `settings` are OMS_* variables; `directory` is private to it."""
        directory.mkdir(parents=True, exist_ok=True)
        self.server = server
        self.backend = backend
        self.log_file = directory / "stderr.txt"
        self._output = directory / "stdout.txt"
        environ = {name: value for name, value in os.environ.items() if not name.startswith("OMS_")}
        environ |= {
            "OMS_SERVER": server,
            "OMS_BACKEND": backend,
            "OMS_LISTEN": "127.0.0.1:0",
            "OMS_MANAGEMENT": "127.0.0.1:0",
            **(settings or {}),
        }
        with self._output.open("wb") as output, self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [Path(sys.executable).with_name("oms-bridge"), "serve"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                env=environ,
                cwd=directory,
            )
        self.running.add(self)
        self.url, self.management = self._wait_until_ready()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def log(self) -> str:
        """What it wrote on standard error so far."""
        return self.log_file.read_text("utf-8", "backslashreplace")

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def terminate(self) -> int:
        """Send SIGTERM and return the exit status."""
        self.begin_to_stop()
        return self.wait()

    def begin_to_stop(self) -> None:
        """Send SIGTERM and do not wait."""
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Return the exit status; a process that does not end is killed and an error."""
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"The bridge did not end within {STOP_SECONDS} s of SIGTERM.\n{self.log}") from None
        finally:
            self.running.discard(self)

    def kill(self) -> None:
        """Send SIGKILL: no chance to flush anything."""
        self._process.kill()
        self._process.wait(STOP_SECONDS)
        self.running.discard(self)

    def resident_bytes(self) -> int:
        """Return the memory that the process really holds (Linux)."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def peak_resident_bytes(self) -> int:
        """Return the most memory that the process has ever held (Linux)."""
        status = Path(f"/proc/{self.pid}/status").read_text("ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.alive:
            self.kill()

    def _wait_until_ready(self) -> tuple[str, str]:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline and self.alive:
            found = _READY.search(self._output.read_text("utf-8"))
            if found is not None:
                return found[1], found[2]
            time.sleep(0.02)
        if self.alive:
            self.kill()
        self.running.discard(self)
        raise AssertionError(f"The bridge did not become ready (status {self._process.returncode}).\n{self.log}")


def logs_of_running() -> list[tuple[str, str]]:
    """Return a title and the end of the log of every bridge that runs, for the report of a failing test."""
    return [
        (f"stderr of {bridge.server} {bridge.backend}", bridge.log[-SHOWN:])
        for bridge in Bridge.running
        if bridge.log_file.exists()
    ]
