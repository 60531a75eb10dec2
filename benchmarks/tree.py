"""The memory of a process and of all that it has started: Spark is a JVM and a handful of Python workers."""

import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_EVERY: Final = 0.2


def peak(command: Sequence[str]) -> float:
    """Run a command to its end; the most MiB that its processes held together, looked at five times a second.

    Each page counts once, shared or not (Pss): the workers are forked, and share most of what they hold.
    """
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL) as process:
        most = 0.0
        while process.poll() is None:
            most = max(most, _held(process.pid))
            time.sleep(_EVERY)
    if process.returncode:
        raise RuntimeError(f"{command[0]} ended with {process.returncode}.")
    return most


def _held(pid: int) -> float:
    held = 0.0
    with suppress(OSError, IndexError):  # it may end just now
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii")
        held = int(rollup.partition("\nPss:")[2].split()[0]) / 1024
        for thread in Path(f"/proc/{pid}/task").iterdir():
            held += sum(_held(int(child)) for child in (thread / "children").read_text("ascii").split())
    return held
