"""A full disk, by all its error messages."""

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
    """Return the operator's sentence if the cause is a disk without space; else None."""
    said = str(error)
    if not (getattr(error, "errno", None) in _NUMBERS or any(word in said for word in _WORDS)):
        return None
    line = next((line.strip() for line in said.splitlines() if any(word in line for word in _WORDS)), said)
    return CannotStart(
        f"The disk of {out}, or of Spark's folders, is full ({line[:200]}): free space and start again. The mirror "
        "continues where it was; no message is lost."
    )
