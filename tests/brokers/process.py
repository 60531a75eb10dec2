"""A program beside the tests: its output in a file, its end at the latest when this process ends."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

_GUARD: Final = Path(__file__).with_name("guard.py")


class Process:
    """One run of a shell script, in its own session, so that Ctrl-C at a terminal reaches only the tests."""

    def __init__(self, script: str, output: Path) -> None:
        """Start it in the folder of `output`, to which its output is appended. Signals go to what it has `exec`uted."""
        with output.open("ab") as end:
            self._guard = subprocess.Popen(
                [sys.executable, "-IS", _GUARD, "sh", "-c", script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=end,
                cwd=output.parent,
                start_new_session=True,
            )
        assert self._guard.stdout is not None
        self.pid = int(self._guard.stdout.readline())

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._guard.poll() is None

    def beside(self, script: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run another script in the same place, in a folder, and wait for its end."""
        command = ["sh", "-c", script]
        return subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )

    def send(self, number: int) -> None:
        """Send a signal and do not wait."""
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            if self.alive:
                os.kill(self.pid, number)

    def wait(self, seconds: float) -> None:
        """Wait for its end; TimeoutError if that does not come."""
        try:
            self._guard.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"process {self.pid} still runs after {seconds} s") from None
        for pipe in self._guard.stdin, self._guard.stdout:
            assert pipe is not None
            pipe.close()
