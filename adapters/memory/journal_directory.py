"""The directory of the journal: its files, its lock, and the number of confirmed commits."""

import fcntl
import logging
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from bridge.errors import BackendUnavailable, CannotStart

_log = logging.getLogger("bridge.memory")

_COUNTER: Final = 8
"""Bytes of the number of confirmed commits, little-endian."""


class JournalCorrupt(CannotStart):
    """The journal is damaged; the text names the file, the byte offset and what to do. Nothing was changed."""


class JournalDirectory:
    """An existing, locked directory with the journal's files.

    `confirmed` holds the number of acknowledged commits. It is written after each commit and not synced: the page cache
    survives `kill -9`. After a power cut it may be older; then fewer lost commits are detected. A database with fewer
    commits has lost some, which SQLite does not notice (see `sqlite_wal`).
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
        """Create the directory if it does not exist, and lock it.

        Raises `CannotStart`, or `BackendUnavailable` while another process has the lock: it may be about to stop.
        """
        try:
            _create(path)
            lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise CannotStart(f"The journal's directory {path} cannot be used: {error.strerror}.") from error
        try:
            # the kernel releases this lock when the process ends, however it ends: a stale lock is impossible
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise BackendUnavailable(f"The journal's directory {path} is in use by another process.") from error
        directory = cls(path, lock)
        directory.warn_if_exposed()
        return directory

    def warn_if_exposed(self) -> None:
        """Log one warning if other users can read the messages, or replace the files: what existed keeps its mode."""
        folder = self.path.stat().st_mode
        exposed = [self.path.name] if folder & stat.S_IWOTH else []
        for file in (self.database, self.wal):
            with suppress(FileNotFoundError):
                mode = file.stat().st_mode
                if (mode & folder << 2) & (stat.S_IRGRP | stat.S_IROTH):  # enter the directory, and read the file
                    exposed.append(file.name)
        if exposed:
            _log.warning(
                "other users can read the journal or replace its files: remove their permissions (chmod -R go-rwx)",
                extra={"journal": str(self.path), "exposed": ", ".join(exposed)},
            )

    def read_confirmed(self) -> int:
        """Return the number of confirmed commits; 0 if it is not known."""
        try:
            return int.from_bytes(self.confirmed.read_bytes()[:_COUNTER], "little")
        except FileNotFoundError:
            return 0

    def confirm(self, commits: int) -> None:
        """Write the number of confirmed commits. Raises `OSError`."""
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
    """Create a directory and its parents, so that they exist after a power cut."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in missing:
        descriptor = os.open(folder.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
