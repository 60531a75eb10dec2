"""A compaction as a process of its own that is killed before one of its changes: `OUT N`."""

import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from typing import Final

from bridge.mirror.session import session
from bridge.mirror.upkeep.compact import compact
from tests.mirror.made import NOON
from tests.mirror.mortal import Mortal

NOW: Final = datetime.fromtimestamp(NOON / 1000, UTC) + timedelta(days=2)


def die() -> None:
    """As `kill -9` does it."""
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    with session("compaction of a test") as spark:
        list(compact(spark, Mortal(spark, sys.argv[1], int(sys.argv[2]), die), NOW, timedelta(hours=1), 256 << 20))
