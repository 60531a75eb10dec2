"""The wall clock of a bridge process, which a test can set while the bridge runs.

The machine's own clock stays as it is: other tests run beside. See `wall_clock/sitecustomize.py` for how it is done.
"""

import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

HOUR: Final = 3_600_000
"""Milliseconds."""
_OFFSET: Final = struct.Struct("=q")
_MACHINERY: Final = Path(__file__).with_name("wall_clock")


class WallClock:
    """One process' wall clock, or that of several."""

    def __init__(self, file: Path) -> None:
        """`file` holds the offset from the machine's clock; it is new and private to this clock."""
        self._file = file
        self._offset = 0
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_OFFSET.pack(0))

    @property
    def settings(self) -> Mapping[str, str]:
        """The variables with which a process is started whose clock this is."""
        path = os.pathsep.join(filter(None, (str(_MACHINERY), os.environ.get("PYTHONPATH", ""))))
        return {"PYTHONPATH": path, "WALL_CLOCK_OFFSET": str(self._file)}

    def move(self, milliseconds: int) -> None:
        """Set it forward, or back if negative."""
        self._offset += milliseconds
        self._write()

    def now(self) -> int:
        """Milliseconds since 1970 as the process reads them, rounded up: what lies before it has passed."""
        return -(-time.time_ns() // 1_000_000) + self._offset

    def _write(self) -> None:
        # in place, not a new file: the process has mapped it
        with self._file.open("r+b") as file:
            file.write(_OFFSET.pack(self._offset * 1_000_000))
