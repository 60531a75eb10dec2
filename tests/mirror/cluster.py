"""A standalone Spark cluster on this machine: a master and workers, each a separate process."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pyspark

from bridge.mirror import __main__ as program
from bridge.mirror.jars import spark_jars

HOME: Final = Path(pyspark.__file__).parent
LOOPBACK: Final = "127.0.0.1"
GUARD: Final = 300
_MASTER: Final = re.compile(r"Starting Spark master at (spark://\S+)")


class Cluster(NamedTuple):
    """Its address, and where each worker keeps what it ran."""

    master: str
    workers: tuple[Path, ...]

    def submit(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run `oms-bridge mirror …` by `spark-submit`."""
        settings = {"spark.executor.cores": "1", "spark.executor.memory": "512m", "spark.driver.host": LOOPBACK}
        settings["spark.driver.bindAddress"] = LOOPBACK
        jars = ",".join(map(str, spark_jars()))
        options = ["--jars", jars, *(f"--conf={name}={value}" for name, value in settings.items())]
        submit = [str(HOME / "bin" / "spark-submit"), "--master", self.master, *options]
        command = [*submit, str(program.__file__), *arguments]
        return subprocess.run(command, env=_environ(), capture_output=True, text=True, timeout=2 * GUARD, check=False)

    def executors(self) -> list[int]:
        """Return how many executors each worker has run."""
        return [len(list(worker.glob("app-*/*"))) for worker in self.workers]


@contextmanager
def cluster(directory: Path, workers: int) -> Iterator[Cluster]:
    """Start one, and stop it by its processes' ids."""
    with ExitStack() as stack:
        common = ["--host", LOOPBACK, "--port", "0", "--webui-port", "0"]
        log = stack.enter_context(_daemon(directory / "master", "master.Master", common))
        master = _wait_for(log, _MASTER)
        folders = tuple(directory / f"worker-{number}" for number in range(workers))
        for folder in folders:
            own = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder)]
            log = stack.enter_context(_daemon(folder, "worker.Worker", [*common, *own, master]))
            _wait_for(log, re.compile("(Successfully registered with master)"))
        yield Cluster(master, folders)


@contextmanager
def _daemon(directory: Path, kind: str, arguments: Sequence[str]) -> Iterator[Path]:
    directory.mkdir(parents=True)
    log = directory / "log.txt"
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
    with log.open("wb") as output, subprocess.Popen(command, env=_environ(), stdout=output, stderr=output) as process:
        try:
            yield log
        finally:
            process.terminate()


def _environ() -> dict[str, str]:
    return os.environ | {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": LOOPBACK,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def _wait_for(log: Path, pattern: re.Pattern[str]) -> str:
    until = time.monotonic() + GUARD
    while (found := pattern.search(log.read_text())) is None:
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.1)
    return found[1]
