"""The processes under measurement: started on free ports, watched through /proc, stopped by their own id."""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.request import urlopen

from benchmarks.revision import THIS, Revision

READY_SECONDS: Final = 30
STOP_SECONDS: Final = 15
SHOWN: Final = 1000
"""Characters of its log that are shown when it does not start."""
ROOMY: Final = "memory://?max_messages=4000000&max_bytes=17179869184"
"""A backend that is never full: what a run keeps is bounded by the run."""

_BARE: Final = Path(__file__).with_name("bare.py")
_SINK: Final = Path(__file__).with_name("sink.py")
_URL: Final = re.compile(r"http://[^\s,]+")


class Process:
    """A running server. Use it as a context manager: at the end it is gone, whatever happened."""

    def __init__(self, name: str, command: Sequence[str], settings: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by `stop`
        environ = {key: value for key, value in os.environ.items() if not key.startswith("OMS_")}
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._log, env=environ | dict(settings or {}), text=True
        )
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        self._output = self._process.stdout
        self.url, *management = self._wait_until_ready()
        self._management = management[0] if management else None

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def management(self) -> str:
        """The URL of a bridge's management port."""
        if self._management is None:
            raise RuntimeError(f"{self.name} has no management port.")
        return self._management

    @property
    def is_bridge(self) -> bool:
        """Whether it is a bridge: a bare application stores nothing and counts nothing."""
        return self._management is not None

    def cpu(self) -> float:
        """Seconds of CPU that the process has used."""
        return cpu_seconds(self.pid)

    def main_thread(self) -> float:
        """Seconds of CPU of the thread that runs Python."""
        return int(Path(f"/proc/{self.pid}/task/{self.pid}/schedstat").read_text("ascii").split()[0]) / 1e9

    def memory(self, field: str) -> float:
        """MiB of `VmRSS` (held now) or `VmHWM` (most ever held)."""
        status = Path(f"/proc/{self._process.pid}/status").read_text("ascii")
        return int(status.partition(f"{field}:")[2].split()[0]) / 1024

    def counts(self) -> dict[str, int]:
        """Return what a bridge has counted; the bare application counts nothing."""
        if self._management is None:
            return {}
        with urlopen(f"{self._management}/status", timeout=10) as answer:  # noqa: S310 - our own process's URL
            counts: dict[str, int] = json.load(answer)["counts"]
        return counts

    @contextmanager
    def expecting(self, **expected: int) -> Iterator[None]:
        """Make sure that what is measured is work and not refusals: by so much these counts must have grown."""
        before = self.counts()
        yield
        after = self.counts()
        for name, number in expected.items():
            if before and after[name] - before[name] != number:
                raise RuntimeError(f"{self.name}: {name} grew by {after[name] - before[name]}, not by {number}.")

    def stop(self) -> None:
        """End it: politely, then by force."""
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _wait_until_ready(self) -> list[str]:
        late = threading.Timer(READY_SECONDS, self._process.kill)
        late.start()
        try:
            line = self._output.readline()
        finally:
            late.cancel()
        if urls := _URL.findall(line):
            return urls
        self._log.seek(0)
        said = self._log.read()[-SHOWN:]
        self.stop()
        raise RuntimeError(f"{self.name} did not start.\n{said}")


def cpu_seconds(pid: int) -> float:
    """Seconds of CPU that a process has used, all its threads, in nanosecond steps.

    The clock of another process (clock_getcpuclockid(3)): /proc/<pid>/stat counts the same in steps of 10 ms.
    """
    return time.clock_gettime((~pid << 3) | 2)


def bare(kind: str) -> Process:
    """Start a bare application: `hypercorn`, `granian` or `rsgi`."""
    # -P: not with this folder in front of everything that is imported
    return Process(f"bare application on {kind}", [sys.executable, "-P", str(_BARE), kind])


def sink() -> Process:
    """Start the endpoint for callbacks."""
    return Process("endpoint for callbacks", [sys.executable, "-P", str(_SINK)])


def bridge(
    server: str, backend: str = ROOMY, settings: Mapping[str, str] | None = None, revision: Revision = THIS
) -> Process:
    """Start a bridge as its users do. `settings` are OMS_* variables."""
    ports = {"OMS_LISTEN": "127.0.0.1:0", "OMS_MANAGEMENT": "127.0.0.1:0"}
    own = revision.named(settings or {}) | revision.variables
    variables = {"OMS_SERVER": server, "OMS_BACKEND": backend, **ports, **own}
    return Process(f"bridge on {server}, {revision.name}", [revision.program, "serve"], variables)
