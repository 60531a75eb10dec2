"""One node of a broker: a process with its data and its log."""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.brokers.runtime import Run

START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 60.0


class Node:
    """Stopped, killed and started again separately; its data stays."""

    def __init__(self, run: Callable[[str, Path], Run], script: str, data: Path, ready: bytes) -> None:
        """`script` starts it; it keeps all in `data` and its log beside that, in which `ready` says that it serves."""
        self._launch = run
        self.script = script
        self._ready = ready
        self._run: Run | None = None
        self._seen = 0
        self.data = data
        self.log_file = data.with_suffix(".log")
        self.log_file.touch()

    @property
    def pid(self) -> int:
        """Its process id; AssertionError if it is not running."""
        assert self._run is not None, "this node is not running"
        return self._run.pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._run is not None and self._run.alive

    @property
    def log(self) -> str:
        """What it wrote so far, in all its runs."""
        return self.log_file.read_text("utf-8", "backslashreplace")

    def start(self) -> None:
        """Start it and wait until it serves. In a cluster that needs a majority of the nodes: `Broker.start`."""
        self.launch()
        self.wait_until_ready()

    def stop(self) -> None:
        """End it with SIGTERM: it moves its leaderships, and flushes."""
        self.send(signal.SIGTERM)
        self.wait()

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.send(signal.SIGKILL)
        self.wait()

    def restart(self) -> None:
        """Stop it and start it again."""
        self.stop()
        self.start()

    def launch(self) -> None:
        """Start it and do not wait."""
        assert self._run is None, "this node is running"
        self._seen = self.log_file.stat().st_size
        self._run = self._launch(self.script, self.log_file)

    def wait_until_ready(self) -> None:
        """Wait until it serves; AssertionError with its log if it ends or that takes too long."""
        assert self._run is not None, "this node is not running"
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._run.alive:
            with self.log_file.open("rb") as log:
                log.seek(self._seen)
                if self._ready in log.read():
                    return
            time.sleep(0.05)
        raise AssertionError(f"{self.data} did not become ready.\n{self.log}")

    def beside(self, script: str) -> str:
        """Return what a shell script prints where this node runs; AssertionError with what it said if it fails."""
        assert self._run is not None, "this node is not running"
        done = self._run.beside(script, self.data.parent)
        assert not done.returncode, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def send(self, number: signal.Signals) -> None:
        """Send it a signal and do not wait, or do nothing if it is not running."""
        if self._run is not None:
            self._run.send(number)

    def wait(self) -> None:
        """Wait for its end; AssertionError with its log if it does not come, and it is killed."""
        if self._run is None:
            return
        run, self._run = self._run, None
        try:
            run.wait(STOP_SECONDS)
        except TimeoutError as late:
            run.send(signal.SIGKILL)
            run.wait(STOP_SECONDS)
            raise AssertionError(f"{late}\n{self.log}") from None
