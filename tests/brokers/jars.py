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


def home(version: str = VERSION) -> Path:
    """Return the folder of a version's jars. Named after all of pom.xml: another jar beside makes another folder."""
    return CACHE / f"kafka-{version}-{hashlib.sha256(_TEXT.encode()).hexdigest()[:8]}"


def classpath(version: str = VERSION) -> str:
    """Return the class path, after Maven has fetched the jars if need be; Missing if it is not there or cannot."""
    folder = home(version)
    if not folder.exists():
        _fetch(version, folder)
    # In one order for all: Java refuses an archive of classes beside any other class path.
    return ":".join(sorted(map(str, folder.glob("*.jar"))))


def archive(java: str, version: str = VERSION) -> Path:
    """Return where the archive of classes (AppCDS) of this very Java is kept: another build would refuse it."""
    program = Path(java).resolve()
    build = hashlib.sha256(f"{program} {program.stat().st_mtime_ns}".encode()).hexdigest()[:8]
    return home(version) / f"classes-{build}.jsa"


def _fetch(version: str, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Missing("Maven, which fetches Kafka's jars, is not installed")
    partial = CACHE / "kafka.partial"
    shutil.rmtree(partial, ignore_errors=True)
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
    command = [maven, "--batch-mode", "--quiet", "--file", str(_POM), f"-Dkafka.version={version}", *goal]
    fetched = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if fetched.returncode:
        raise Missing(f"Maven could not fetch Kafka's jars: {(fetched.stdout + fetched.stderr)[-2000:]}")
    partial.rename(folder)
