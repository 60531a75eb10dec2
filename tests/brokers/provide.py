"""Finds a broker for a test: in Docker, else as processes of this machine; a given one for the shared fixtures."""

import functools
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Never

import pytest

from tests.brokers import jars, packages
from tests.brokers.cache import Missing, filling, installed
from tests.brokers.container import Container, image_at_hand
from tests.brokers.kafka import Kafka
from tests.brokers.process import Process
from tests.brokers.rabbitmq import RabbitMQ
from tests.brokers.runtime import Runtime
from tests.brokers.security import Security

_IMAGE: Final = "apache/kafka:{}"
_RABBITMQ_IMAGE: Final = "rabbitmq:4.0"
_NONE: Final[Mapping[str, str]] = {}
_LOGGING: Final = Path(__file__).with_name("log4j2.xml")
_OPTIONS: Final = f"-Xms384m -Xmx384m -XX:+UseSerialGC -Dlog4j2.configurationFile={shlex.quote(str(_LOGGING))}"
# Without the second compiler a start takes 1.4 s of the processor instead of 1.9. Figures of throughput need it.
_QUICK: Final = " -XX:TieredStopAtLevel=1"


def given_kafka() -> str | None:
    """Return the bootstrap servers of a Kafka that runs already, for `kafka_servers`: OMS_TEST_KAFKA=host:port,…"""
    return os.environ.get("OMS_TEST_KAFKA") or None


def own_kafka(
    directory: Path, *, nodes: int = 1, security: Security | None = None, version: str = jars.VERSION
) -> Kafka:
    """Return a Kafka, not started, that the test may stop, kill or configure.

    It is a new one even beside a given Kafka, which serves only the fixture `kafka_servers`. If this machine cannot
    start one, the test fails in CI and is skipped elsewhere, both with what to install.
    """
    try:
        return Kafka(kafka_runtime(version=version), directory, nodes=nodes, security=security)
    except Missing as missing:
        _without(advice(missing))


def given_rabbitmq() -> str | None:
    """Return the URL of a virtual host of a RabbitMQ that runs already, for `rabbitmq_url`: OMS_TEST_RABBITMQ=amqp://…"""
    return os.environ.get("OMS_TEST_RABBITMQ") or None


def own_rabbitmq(
    directory: Path,
    *,
    settings: Mapping[str, str] = _NONE,
    external: bool = False,
    release: str | None = None,
    nodes: int = 1,
) -> RabbitMQ:
    """Return a RabbitMQ, not started, that the test may stop, kill or configure; otherwise like `own_kafka`.

    `release`: the Debian release whose RabbitMQ it is, such as bookworm (3.10), trixie (4.0) or sid (the newest). None:
    that of OMS_TEST_RABBITMQ_RELEASE, else the one that this machine provides.
    """
    try:
        return RabbitMQ(rabbitmq_runtime(release), directory, settings=settings, external=external, nodes=nodes)
    except Missing as missing:
        _without(rabbitmq_advice(missing))


def advice(missing: Missing) -> str:
    """Return what to do about it."""
    image = _IMAGE.format(jars.VERSION)
    return (
        f"No Kafka: {missing}. Install Java 17 and Maven (apt-get install openjdk-17-jre-headless maven), "
        f"or start Docker and pull {image}. OMS_TEST_KAFKA=host:port names a running broker, for the tests that do "
        f"not stop, kill or configure theirs"
    )


def rabbitmq_advice(missing: Missing) -> str:
    """Return what to do about it."""
    return (
        f"No RabbitMQ: {missing}. Install it (apt-get install rabbitmq-server), or start Docker and pull "
        f"{_RABBITMQ_IMAGE}. OMS_TEST_RABBITMQ=amqp://user:password@host:port/vhost names a running one, for the tests "
        f"that do not stop, kill or configure theirs"
    )


@functools.cache
def rabbitmq_runtime(release: str | None = None) -> Runtime:
    """Return how RabbitMQ runs on this machine; Missing if it cannot. Fills the cache of packages if need be.

    `release`: as for `own_rabbitmq`.
    """
    release = release or os.environ.get("OMS_TEST_RABBITMQ_RELEASE") or None
    if release is None:
        if image_at_hand(_RABBITMQ_IMAGE):
            return Runtime("", lambda script, output: Container(_RABBITMQ_IMAGE, script, output))
        programs = packages.installed()
        if programs is not None:
            return Runtime(f"{shlex.quote(str(programs))}/", Process)
    with filling():
        root = shlex.quote(str(packages.unpacked(release)))
    return Runtime(f'PATH={root}/usr/lib/erlang/bin:"$PATH" {root}/usr/lib/rabbitmq/bin/', Process)


@functools.cache
def kafka_runtime(*, lasting: bool = False, version: str = jars.VERSION) -> Runtime:
    """Return how Kafka runs on this machine; Missing if it cannot. Fills the cache of jars if need be.

    `lasting`: for figures of throughput, at the cost of a slower start.
    """
    options = _OPTIONS if lasting else _OPTIONS + _QUICK
    image = _IMAGE.format(version)
    if image_at_hand(image):
        in_image = f"java {options} -cp '/opt/kafka/libs/*'"
        return Runtime(f"{in_image} ", lambda script, output: Container(image, script, output, _LOGGING))
    program = shutil.which("java")
    if program is None:
        raise Missing("there is neither Docker with Kafka's image nor Java")
    with filling():
        java = f"{shlex.quote(program)} {options} -cp {shlex.quote(jars.classpath(version))}"
        classes = jars.archive(program, version)
        if not classes.exists():
            _archive_classes(java, classes)
    return Runtime(f"{java} -XX:SharedArchiveFile={shlex.quote(str(classes))} ", Process)


def _archive_classes(java: str, archive: Path) -> None:
    """Run a broker once and let Java keep the classes that it loaded: a start then takes half the processor time."""
    partial = archive.with_suffix(".partial")
    recording = Runtime(f"{java} -XX:ArchiveClassesAtExit={shlex.quote(str(partial))} ", Process)
    with tempfile.TemporaryDirectory() as directory, Kafka(recording, Path(directory) / "kafka") as kafka:
        kafka.stop()
    partial.rename(archive)


def required(name: str, package: str, version: str) -> Path:
    """Return the program of a Go package. If it cannot be built, the test fails in CI, and is skipped elsewhere."""
    try:
        return installed(name, package, version)
    except Missing as missing:
        _without(f"No {name}: {missing}. Install Go (go.dev/dl)")


def _without(advice: str) -> Never:
    if os.environ.get("CI") == "true":
        pytest.fail(advice)
    pytest.skip(advice)
