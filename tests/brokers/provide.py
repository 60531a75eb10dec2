"""Finds a broker for a test: one that is given, else Docker, else processes of this machine's Java."""

import functools
import os
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import Final

import pytest

from tests.brokers import jars
from tests.brokers.container import Container, image_at_hand
from tests.brokers.jars import Missing
from tests.brokers.kafka import Kafka
from tests.brokers.process import Process
from tests.brokers.runtime import Runtime
from tests.brokers.security import Security

_IMAGE: Final = f"apache/kafka:{jars.VERSION}"
_LOGGING: Final = Path(__file__).with_name("log4j2.xml")
_OPTIONS: Final = f"-Xms384m -Xmx384m -XX:+UseSerialGC -Dlog4j2.configurationFile={shlex.quote(str(_LOGGING))}"
# Without the second compiler a start takes 1.4 s of the processor instead of 1.9. Figures of throughput need it.
_QUICK: Final = " -XX:TieredStopAtLevel=1"


def given_kafka() -> str | None:
    """Return the bootstrap servers of a Kafka that runs already: OMS_TEST_KAFKA=host:port,…"""
    return os.environ.get("OMS_TEST_KAFKA") or None


def own_kafka(directory: Path, *, nodes: int = 1, security: Security | None = None) -> Kafka:
    """Return a Kafka, not started, that the test may stop and kill.

    Where none can be had the test fails in CI and is skipped elsewhere, both with what to install. Beside a given
    Kafka, which no test may kill, it is skipped.
    """
    if given_kafka():
        pytest.skip("needs a Kafka of its own, to stop, kill or configure: unset OMS_TEST_KAFKA")
    try:
        return Kafka(kafka_runtime(), directory, nodes=nodes, security=security)
    except Missing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(advice(missing))
        pytest.skip(advice(missing))


def advice(missing: Missing) -> str:
    """Return what to do about it."""
    return (
        f"No Kafka: {missing}. Install Java 17 and Maven (apt-get install openjdk-17-jre-headless maven), "
        f"or start Docker and pull {_IMAGE}, or name a running broker: OMS_TEST_KAFKA=host:port"
    )


@functools.cache
def kafka_runtime(*, lasting: bool = False) -> Runtime:
    """Return how Kafka runs on this machine; Missing if it cannot. Fills the cache of jars if need be.

    `lasting`: for figures of throughput, at the cost of a slower start.
    """
    options = _OPTIONS if lasting else _OPTIONS + _QUICK
    if image_at_hand(_IMAGE):
        in_image = f"java {options} -cp '/opt/kafka/libs/*'"
        return Runtime(in_image, lambda script, output: Container(_IMAGE, script, output, _LOGGING))
    program = shutil.which("java")
    if program is None:
        raise Missing("there is neither Docker with Kafka's image nor Java")
    with jars.filling():
        java = f"{shlex.quote(program)} {options} -cp {shlex.quote(jars.classpath())}"
        classes = jars.archive(program)
        if not classes.exists():
            _archive_classes(java, classes)
    return Runtime(f"{java} -XX:SharedArchiveFile={shlex.quote(str(classes))}", Process)


def _archive_classes(java: str, archive: Path) -> None:
    """Run a broker once and let Java keep the classes that it loaded: a start then takes half the processor time."""
    partial = archive.with_suffix(".partial")
    recording = Runtime(f"{java} -XX:ArchiveClassesAtExit={shlex.quote(str(partial))}", Process)
    with tempfile.TemporaryDirectory() as directory, Kafka(recording, Path(directory) / "kafka") as kafka:
        kafka.stop()
    partial.rename(archive)
