"""Python imports this before a program when its folder is in PYTHONPATH: the program's wall clock can then be set.

Only what Python code reads as `time.time` and `time.time_ns` is moved, which is all that the bridge and its clients in
Python read. The clocks of C code (librdkafka, SQLite, the log's timestamps) and monotonic time stay.
"""

import mmap
import os
import struct
import time
from pathlib import Path

_OFFSET = struct.Struct("=q")
_true = time.time_ns

with Path(os.environ["WALL_CLOCK_OFFSET"]).open("rb") as _file:
    _offset = mmap.mmap(_file.fileno(), _OFFSET.size, prot=mmap.PROT_READ)


def _time_ns() -> int:
    (offset,) = _OFFSET.unpack_from(_offset)
    return _true() + int(offset)


def _time() -> float:
    return _time_ns() / 1e9


time.time_ns = _time_ns
time.time = _time
