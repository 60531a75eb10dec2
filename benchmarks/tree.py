"""The memory and CPU of a process and of all that it has started: Spark is a JVM and a handful of Python workers."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_EVERY: Final = 0.2
_PARENT: Final = 1
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
    stats = _stats()
    return sum(sum(map(int, stats[each][_USED])) for each in _descendants(pid, stats)) / _TICKS


def _held(pid: int) -> float:
    held = 0
    for each in _descendants(pid, _stats()):
        with suppress(OSError, IndexError):  # it may end just now
            rollup = Path(f"/proc/{each}/smaps_rollup").read_text("ascii")
            held += int(rollup.partition("\nPss:")[2].split()[0])
    return held / 1024


def _stats() -> dict[int, list[str]]:
    """Return the fields of each process's stat that follow its name, by its id.

    A thread's `children` would be shorter to read. But a JVM's threads end while they are read, and with one of them
    all that Spark had started was missing: an executor had used -48 s.
    """
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):  # it may end just now
                found[int(folder.name)] = (folder / "stat").read_text("utf-8", "replace").rpartition(") ")[2].split()
    return found


def _descendants(pid: int, stats: Mapping[int, Sequence[str]]) -> Iterator[int]:
    """Yield a process, if it is there, and all that it and they have started."""
    if pid in stats:
        yield pid
        for each, fields in stats.items():
            if int(fields[_PARENT]) == pid:
                yield from _descendants(each, stats)
