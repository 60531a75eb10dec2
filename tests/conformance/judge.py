"""The chapters of the suite where the backend makes the difference, run against one backend."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.launch import Bridge

_SUITE: Final = Path(__file__).parent
_CHAPTERS: Final = ("dead_letters", "delay", "expiry", "groups", "leases", "order", "partitions", "priority", "settle")


def judge(backend: str, directory: Path) -> None:
    """Start a bridge on the backend and run the chapters; fails with what they print."""
    chapters = [str(_SUITE / f"test_{chapter}.py") for chapter in _CHAPTERS]
    with Bridge(directory, backend=backend) as bridge, tempfile.TemporaryFile() as output:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *chapters, "--bridge-url", bridge.url, "-q", "-p", "no:cacheprovider"],
            cwd=_SUITE.parents[1],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
        )
        output.seek(0)
        printed = output.read().decode()
    assert done.returncode == 0, printed
    passed = re.search(r"^(\d+) passed", printed, re.MULTILINE)
    assert passed is not None
    assert int(passed[1]) >= 50, f"most of it was skipped: {printed}"
