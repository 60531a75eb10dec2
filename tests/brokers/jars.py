"""Kafka's jars and an archive of their loaded classes, in a cache outside the repository; filled once per machine."""

import hashlib
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.brokers.cache import CACHE, Missing

_POM: Final = Path(__file__).with_name("pom.xml")
_TEXT: Final = _POM.read_text("utf-8")
VERSION: Final = "".join(re.findall(r"<kafka\.version>(.+)</kafka\.version>", _TEXT))
HOME: Final = CACHE / f"kafka-{VERSION}-{hashlib.sha256(_TEXT.encode()).hexdigest()[:8]}"
"""Named after all of pom.xml: another jar beside the same Kafka makes another folder."""


def classpath() -> str:
    """Return the class path, after Maven has fetched the jars if need be; Missing if it is not there or cannot."""
    if not HOME.exists():
        _fetch()
    # In one order for all: Java refuses an archive of classes beside any other class path.
    return ":".join(sorted(map(str, HOME.glob("*.jar"))))


def archive(java: str) -> Path:
    """Return where the archive of classes (AppCDS) of this very Java is kept: another build would refuse it."""
    program = Path(java).resolve()
    build = hashlib.sha256(f"{program} {program.stat().st_mtime_ns}".encode()).hexdigest()[:8]
    return HOME / f"classes-{build}.jsa"


def _fetch() -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Missing("Maven, which fetches Kafka's jars, is not installed")
    partial = CACHE / "kafka.partial"
    shutil.rmtree(partial, ignore_errors=True)
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
    command = [maven, "--batch-mode", "--quiet", "--file", str(_POM), *goal]
    fetched = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if fetched.returncode:
        raise Missing(f"Maven could not fetch Kafka's jars: {(fetched.stdout + fetched.stderr)[-2000:]}")
    partial.rename(HOME)
