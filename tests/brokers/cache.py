"""The folder outside the repository where what brokers are made of is kept; each thing is fetched once per machine."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openmessaging-bridge"
_NONE: Final[Mapping[str, str]] = {}


class Missing(Exception):
    """No broker can be had here; the sentence says what lacks."""


@contextmanager
def filling(what: str = "lock") -> Iterator[None]:
    """Let one process at a time fill the cache; the others wait, and then find it full. `what`: which lock."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / what).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def program(name: str, make: Callable[[Path], Path]) -> Path:
    """Return a program of the cache. `make` builds it in an empty folder and returns its path; Missing if it cannot."""
    path = CACHE / "bin" / name
    if not path.exists():
        with filling():
            if not path.exists():  # another worker may have built it meanwhile
                partial = CACHE / f"{name}.partial"
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir(parents=True)
                path.parent.mkdir(exist_ok=True)
                try:
                    make(partial).rename(path)
                finally:
                    shutil.rmtree(partial)
    return path


def go(*arguments: str, folder: Path, more: Mapping[str, str] = _NONE) -> str:
    """Run Go in a folder, which is also where `go install` puts programs; return what it prints. `more`: variables.

    Missing if there is no Go, or if it fails.
    """
    found = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")
    if found is None:
        raise Missing("there is no Go to build it")
    environment = {**os.environ, "GOBIN": str(folder), **more}
    command = [found, *arguments]
    made = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if made.returncode:
        raise Missing(f"go {' '.join(arguments)}: {made.stderr.strip()[-2000:]}")
    return made.stdout


def installed(name: str, package: str, version: str) -> Path:
    """Return the program of a Go package, as `program` does."""

    def make(folder: Path) -> Path:
        go("install", f"{package}@{version}", folder=folder)
        return folder / package.rpartition("/")[2]

    return program(f"{name}-{version}", make)
