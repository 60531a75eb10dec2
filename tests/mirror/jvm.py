"""What the tests ask of Spark's JVM: a quick start, and the jars of Delta Lake and S3."""

import fcntl
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyspark
import pytest

from bridge.errors import CannotStart
from bridge.mirror.jars import spark_jars

_ROOT: Final = Path(__file__).parents[2]
_ARCHIVE: Final = _ROOT / "build" / f"spark-{pyspark.__version__}.jsa"
"""180 MB, for this checkout only: Java refuses an archive of classes beside another class path."""
_VARIABLE: Final = "SPARK_SUBMIT_OPTS"
_OPTIONS: Final = "-XX:TieredStopAtLevel=1"
"""Only the first compiler, which gives up a speed that no test needs. A session and five small batches take 44 s of the
processor without any option, 28 s with this one, 20 s with the archive too."""
_GUARD: Final = 600


def quick_start(*, make_archive: bool = False) -> None:
    """Give the options to every Spark that this process starts from now on, and its children; skip without Java.

    `make_archive`: make the archive if it is not there, which takes a minute and so pays only where Spark starts often.
    """
    need_java()
    if os.environ.get(_VARIABLE, _OPTIONS).startswith(_OPTIONS):
        if make_archive:
            _make_archive()
        os.environ[_VARIABLE] = f"{_OPTIONS} -XX:SharedArchiveFile={_ARCHIVE}" if _is_archived() else _OPTIONS


def need_java() -> None:
    """Skip the test if there is no Java for Spark."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("No Java: Spark needs Java 17 (apt-get install openjdk-17-jre-headless)")


def need_jars() -> None:
    """Skip the test if the jars cannot be had."""
    found = _jars()
    if isinstance(found, CannotStart):
        pytest.skip(str(found))


def jars_at_hand() -> Sequence[Path]:
    """Return the jars of Delta Lake and S3, none if they cannot be had."""
    found = _jars()
    return () if isinstance(found, CannotStart) else found


@functools.cache
def _jars() -> list[Path] | CannotStart:
    try:
        return spark_jars()
    except CannotStart as missing:
        return missing


def _is_archived() -> bool:
    """Whether there is an archive of the classes that a job loads (AppCDS), made with this Java and this Spark."""
    java = shutil.which("java")
    if java is None or "JAVA_HOME" in os.environ:  # with JAVA_HOME Spark may run another Java than ours
        return False
    sources = (Path(java).resolve(), Path(pyspark.__file__).parent / "jars")
    return _ARCHIVE.exists() and _ARCHIVE.stat().st_mtime >= max(source.stat().st_mtime for source in sources)


def _make_archive() -> None:
    """Let one job record its classes, unless another worker is doing so: then this one goes on without."""
    if _is_archived() or "JAVA_HOME" in os.environ:
        return
    _ARCHIVE.parent.mkdir(exist_ok=True)
    partial = _ARCHIVE.with_suffix(".partial")
    with _ARCHIVE.with_suffix(".lock").open("w") as lock, tempfile.TemporaryDirectory() as out:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        partial.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.mirror.numbers_job", f"{out}/mirror", "1000", "400"]
        environ = os.environ | {_VARIABLE: f"{_OPTIONS} -XX:ArchiveClassesAtExit={partial}"}
        # Its output ends with the JVM, which writes the archive after Python has ended.
        subprocess.run(command, cwd=_ROOT, env=environ, capture_output=True, timeout=_GUARD, check=False)
        if partial.exists():
            partial.replace(_ARCHIVE)
