"""The jars with which Spark reads Kafka: in a folder that is named, or in a cache that Maven fills once."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from bridge.errors import CannotStart

VARIABLE: Final = "OMS_MIRROR_JARS"
"""Names the folder where the jars are already, as in an image."""
_POM: Final = Path(__file__).with_name("pom.xml")
_SAID: Final = 1000
"""Characters of Maven's last words that an operator is told."""


def kafka_jars() -> list[Path]:
    """Return the jars that Spark itself lacks, after Maven has fetched them if need be. Raises `CannotStart`."""
    given = os.environ.get(VARIABLE)
    if given:
        return _found(Path(given)) or _none_in(given)
    home = _home()
    if not home.exists():
        _fill(home)
    return _found(home)


def _found(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jar"))


def _none_in(folder: str) -> list[Path]:
    raise CannotStart(f"{VARIABLE}: there are no jars in {folder}.")


def _home() -> Path:
    """Named after all of pom.xml: another jar beside the same Spark makes another folder."""
    import pyspark  # noqa: PLC0415 - slow, and not needed where the jars are given

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    text = hashlib.sha256(_POM.read_bytes()).hexdigest()[:8]
    return cache / "openmessaging-bridge" / f"spark-{pyspark.__version__}-{text}"


def _fill(home: Path) -> None:
    """Have Maven fill a folder of our own and give it its name at once; whoever does the same meanwhile is as good."""
    maven = shutil.which("mvn")
    if maven is None:
        raise CannotStart(
            f"Maven, which fetches the jars of Spark's Kafka connector, is not installed (apt-get install maven): "
            f"install it, or set {VARIABLE} to a folder that holds them (bridge/mirror/pom.xml lists them)."
        )
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=f"{home.name}.partial-") as own:
        partial = Path(own) / "jars"
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
        command = [maven, "--batch-mode", "--quiet", "--file", str(_POM), *goal]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)  # noqa: S603 - no value of others is in it
        if done.returncode:
            said = (done.stdout + done.stderr)[-_SAID:]
            raise CannotStart(
                f"Maven could not fetch the jars of Spark's Kafka connector: give it a way to its repository, or set "
                f"{VARIABLE} to a folder that holds them. It said: {said}"
            )
        try:
            partial.rename(home)
        except OSError:
            if not home.exists():
                raise
