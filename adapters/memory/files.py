"""The journal's directory: who may use it, and how many commits it confirmed."""

import fcntl
import os
from pathlib import Path
from typing import Final, Self

from bridge.errors import BackendUnavailable, CannotStart

_COUNTER: Final = 8
"""Bytes of the number of confirmed commits, little-endian."""


class JournalCorrupt(CannotStart):
    """The journal cannot be trusted; its text names the file, the byte offset and the ways on. Nothing was changed."""


class Directory:
    """An existing, locked directory with the journal's files.

    `confirmed` counts the commits of which somebody was told. It is written after each commit and not synced: the page
    cache outlives `kill -9`, and after a power cut an older number only claims less. A database that is behind it has
    lost commits, which SQLite does not notice (see `wal`).
    """

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.database = path / "journal.db"
        self.wal = path / "journal.db-wal"
        self.confirmed = path / "confirmed"
        self._lock = lock
        self._counter: int | None = None

    @classmethod
    def open(cls, path: Path) -> Self:
        """Create the directory if need be and lock it. Raises `BackendUnavailable`."""
        try:
            _create(path)
            lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise BackendUnavailable(f"The journal's directory {path} cannot be used: {error.strerror}.") from error
        try:
            # the kernel drops this lock with its process, however that ends: none is ever stale
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise BackendUnavailable(f"The journal's directory {path} is in use by another process.") from error
        return cls(path, lock)

    def read_confirmed(self) -> int:
        """Number of commits confirmed; 0 when that is not known."""
        try:
            return int.from_bytes(self.confirmed.read_bytes()[:_COUNTER], "little")
        except FileNotFoundError:
            return 0

    def confirm(self, commits: int) -> None:
        """Note the number of commits confirmed. Raises `OSError`."""
        if self._counter is None:
            self._counter = os.open(self.confirmed, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.pwrite(self._counter, commits.to_bytes(_COUNTER, "little"), 0)

    def close(self) -> None:
        """Unlock. Idempotent."""
        for descriptor in (self._counter, self._lock):
            if descriptor is not None and descriptor >= 0:
                os.close(descriptor)
        self._counter, self._lock = None, -1


def _create(path: Path) -> None:
    """Create a directory and those above it, so that they are there after a power cut."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in missing:
        descriptor = os.open(folder.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
