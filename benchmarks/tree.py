"""The memory and CPU of a process and of all that it has started: Spark is a JVM and a handful of Python workers."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_EVERY: Final = 0.2
_USED: Final = slice(11, 15)
"""utime, stime, cutime, cstime: in the process and in its ended children, in ticks."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def peak(command: Sequence[str]) -> float:
    """Run a command to its end; the most MiB that its processes held together in two looks, of five a second.

    Each page counts once, shared or not (Pss): the workers are forked, and share most of what they hold. A look may
    catch the JVM at the start of a program: until that runs it is a second process with the same memory (vfork).
    """
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL) as process:
        most = before = 0.0
        while process.poll() is None:
            now = _held(process.pid)
            most, before = max(most, min(before, now)), now
            time.sleep(_EVERY)
    if process.returncode:
        raise RuntimeError(f"{command[0]} ended with {process.returncode}.")
    return most


def cpu(pid: int) -> float:
    """Return the seconds of CPU that a process and its descendants have used, also those that have ended.

    Spark ends Python workers that wait: what they used is then counted with their parent (`cutime` in proc(5)).
    """
    used = 0.0
    with suppress(OSError):  # it may end just now
        after_name = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(") ")[2].split()
        used = sum(map(int, after_name[_USED])) / _TICKS + sum(map(cpu, _children(pid)))
    return used


def _held(pid: int) -> float:
    held = 0.0
    with suppress(OSError, IndexError):  # it may end just now
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii")
        held = int(rollup.partition("\nPss:")[2].split()[0]) / 1024
        held += sum(map(_held, _children(pid)))
    return held


def _children(pid: int) -> Iterator[int]:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        yield from map(int, (thread / "children").read_text("ascii").split())
