"""A full disk, by whatever name it is told."""

import errno
from typing import Final

from bridge.errors import CannotStart

_WORDS: Final = (
    "No space left on device",
    "Disk quota exceeded",
    "File too large",
    "DSQuotaExceededException",
    "could only be written to 0 of the",  # HDFS: no datanode has room
)
_NUMBERS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def explain(error: BaseException, out: str) -> CannotStart | None:
    """Return what to tell the operator if the cause is a disk without room; else None."""
    said = str(error)
    if not (getattr(error, "errno", None) in _NUMBERS or any(word in said for word in _WORDS)):
        return None
    line = next((line.strip() for line in said.splitlines() if any(word in line for word in _WORDS)), said)
    return CannotStart(
        f"There is no room left to write to {out}, or in Spark's own folders ({line[:200]}): make room and start "
        "again. The mirror goes on where it was, nothing is lost or half visible."
    )
