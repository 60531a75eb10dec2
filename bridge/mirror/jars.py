"""The jars that Spark itself lacks: in a folder that is named, in the wheel, or made by Maven and Scala in a checkout.

`make wheel` puts the made ones into the wheel, so only a checkout needs Maven.
"""

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
_SCALA: Final = tuple(Path(__file__).with_name(f"{name}.scala") for name in ("append", "s3"))
"""Compiled by the compiler that is among Spark's own jars."""
_MADE_OF: Final = hashlib.sha256(b"".join(file.read_bytes() for file in (_POM, *_SCALA))).hexdigest()[:8]
IN_WHEEL: Final = Path(__file__).with_name("java") / _MADE_OF
"""In a checkout `make wheel` makes it; one that is made of other files than these is not used."""
_SAID: Final = 1000
"""Characters of a failed program's output that the error shows."""


def spark_jars() -> list[Path]:
    """Return the jars that Spark itself lacks, after they were fetched and made if need be. Raises `CannotStart`."""
    given = os.environ.get(VARIABLE)
    if given:
        if not (found := _found(Path(given))):
            raise CannotStart(f"{VARIABLE}: there are no jars in {given}.")
        return found
    if in_wheel := _found(IN_WHEEL):
        return in_wheel
    home = _home()
    if not home.exists():
        _fill(home)
    return _found(home)


def java() -> str:
    """Return the program. Raises `CannotStart` if there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if found is None:
        raise CannotStart("Spark needs Java 17 (JAVA_HOME, or java on the PATH).")
    return found


def _found(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jar"))


def _home() -> Path:
    """Named after the files that it is made of: another jar beside the same Spark makes another folder."""
    import pyspark  # noqa: PLC0415 - slow, and not needed where the jars are given

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "openmessaging-bridge" / f"spark-{pyspark.__version__}-{_MADE_OF}"


def _fill(home: Path) -> None:
    """Fill a separate folder, then rename it: another process may do the same at that time."""
    import pyspark  # noqa: PLC0415 - see above

    maven = shutil.which("mvn")
    if maven is None:
        raise CannotStart(
            "Maven, which fetches the jars of Delta Lake and S3 where no released wheel brought them, is not installed "
            f"(apt-get install maven): install it, or set {VARIABLE} to a folder that "
            "`oms-bridge mirror fetch-jars` has filled on another machine."
        )
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=f"{home.name}.partial-") as own:
        partial = Path(own) / "jars"
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
        _run([maven, "--batch-mode", "--quiet", "--file", str(_POM), *goal])
        spark = Path(pyspark.__file__).parent / "jars" / "*"
        target = ["-d", str(partial / "openmessaging-mirror.jar"), *map(str, _SCALA)]
        _run([java(), "-cp", str(spark), "scala.tools.nsc.Main", "-cp", f"{spark}:{partial}/*", *target])
        try:
            partial.rename(home)
        except OSError:
            if not home.exists():
                raise


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)  # noqa: S603 - no value of others is in it
    if done.returncode:
        said = (done.stdout + done.stderr)[-_SAID:]
        raise CannotStart(
            "Maven and Scala could not make the jars of Delta Lake and S3: allow access to "
            f"Maven's repository, or set {VARIABLE} to a folder that `oms-bridge mirror fetch-jars` has filled on "
            f"another machine. {Path(command[0]).name} said: {said}"
        )
