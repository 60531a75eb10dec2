"""The folder outside the repository where what brokers are made of is kept; each thing is fetched once per machine."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openmessaging-bridge"


class Missing(Exception):
    """No broker can be had here; the sentence says what lacks."""


@contextmanager
def filling() -> Iterator[None]:
    """Let one process at a time fill the cache; the others wait, and then find it full."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
