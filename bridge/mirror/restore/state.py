"""How far a restore has come, in its own file."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from bridge.errors import CannotStart


class State:
    """The next offset of every log, kept in `path`. None: kept nowhere.

    `of`: what is being restored, as JSON can hold it. Raises `CannotStart` for the file of something else.
    """

    def __init__(self, path: Path | None, of: Mapping[str, object]) -> None:
        self._path = path
        self._of = json.loads(json.dumps(of))
        self.next: dict[str, int] = {}
        if path is not None and path.exists():
            self.next = self._read(path)

    def reached(self, log: str, offset: int) -> None:
        """Note that a message is done."""
        self.next[log] = offset + 1

    def keep(self) -> None:
        """Write it: whole, or what was there stays."""
        if self._path is None:
            return
        temporary = self._path.with_name(self._path.name + ".tmp")
        with temporary.open("w", encoding="utf-8") as file:
            json.dump({"version": 1, "of": self._of, "next": self.next}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)

    def _read(self, path: Path) -> dict[str, int]:
        try:
            kept = json.loads(path.read_text("utf-8"))
            of, reached = kept["of"], {str(log): int(offset) for log, offset in kept["next"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise CannotStart(f"state: {path} is not the state of a restore.") from None
        if of != self._of:
            raise CannotStart(f"state: {path} belongs to another restore: {json.dumps(of)}.")
        return reached
