"""Folders of cgroups: what makes containers leaves them behind, empty, when it is ended at once."""

import os
import time
from pathlib import Path
from typing import Final

TOP: Final = Path("/sys/fs/cgroup")
SECONDS: Final = 30.0
"""For the last processes in them to end."""


def folders(name: str) -> list[Path]:
    """Return those of a name: one of each hierarchy, or the only one."""
    return [each for each in (TOP / name, *TOP.glob(f"*/{name}")) if each.is_dir()]


def remove(name: str) -> None:
    """Remove all of a name, with what is in them; OSError if a process still runs there."""
    deadline = time.monotonic() + SECONDS
    while left := folders(name):
        for folder in left:
            for path, _, _ in os.walk(folder, topdown=False):
                try:
                    Path(path).rmdir()
                except OSError:
                    if time.monotonic() > deadline:
                        raise
        time.sleep(0.05)
