"""Files that are read again when they change. One that cannot be used is refused: its last good content stays."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from bridge.identity.principals import FileError

T = TypeVar("T")

FILE_MAX: Final = 4 << 20
"""Bytes of the largest file."""

_Stamp = tuple[int, int, int]

_log = logging.getLogger("bridge.identity")


class WatchedFile(Generic[T]):
    """The content of one file, as `parse` reads it."""

    def __init__(self, setting: str, path: Path, parse: Callable[[bytes], T]) -> None:
        """Read the file. Raises `FileError`, which names the setting."""
        self._setting = setting
        self._path = path
        self._parse = parse
        self.refused = False
        """Whether the file on the disk cannot be used, and `content` is older."""
        self._stamp: _Stamp | None = None
        try:
            self.content = self._read()
        except FileError as error:
            raise FileError(f"{setting}: {path}: {error}") from None

    def has_changed(self) -> bool:
        """Return whether the file is another one than when it was last read."""
        try:
            return self._stat() != self._stamp
        except FileError:
            return True

    def reload(self) -> bool:
        """Read the file if it has changed; return whether there is new content. May run in another thread."""
        if not self.has_changed():
            return False
        try:
            self.content = self._read()
        except FileError as error:
            if not self.refused:
                _log.error(
                    "a changed file is refused, its last good content stays in use",
                    extra={"setting": self._setting, "file": self._path, "reason": error},
                )
            self.refused = True
            return False
        self.refused = False
        _log.warning("a changed file is in use", extra={"setting": self._setting, "file": self._path})
        return True

    def _stat(self) -> _Stamp:
        try:
            found = self._path.stat()
        except OSError as error:
            self._stamp = None
            raise FileError(f"the file cannot be read ({error.strerror})") from None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> T:
        stamp = self._stat()
        if stamp != self._stamp:
            self.refused = False  # so that each new mistake is logged
        self._stamp = stamp
        try:
            with self._path.open("rb") as file:
                raw = file.read(FILE_MAX + 1)
        except OSError as error:
            self._stamp = None
            raise FileError(f"the file cannot be read ({error.strerror})") from None
        if len(raw) > FILE_MAX:
            raise FileError(f"the file has more than {FILE_MAX} bytes")
        try:
            return self._parse(raw)
        except FileError:
            raise
        except ValueError as error:
            raise FileError(str(error)) from None
