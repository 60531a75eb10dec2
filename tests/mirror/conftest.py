"""One Spark for all tests of a worker that need no job of their own."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from bridge.mirror.session import s3_settings, session
from tests.mirror.jvm import jars_at_hand, need_jars, quick_start
from tests.mirror.kafka_job import Job


@pytest.fixture(scope="session", autouse=True)
def no_soak_variable() -> Iterator[None]:
    """Hide `make soak`'s own variable from jobs: they read the settings, and refuse every OMS_… that is none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OMS_TEST_SOAK", raising=False)
        yield


@pytest.fixture(scope="session")
def quick_jvm() -> None:
    """Let every Spark start quickly, those of jobs in processes of their own too."""
    quick_start()


@pytest.fixture(scope="session")
def archived_jvm() -> None:
    """The same from an archive of classes, which is made first if need be: for tests that start many jobs."""
    quick_start(make_archive=True)


@pytest.fixture(scope="session")
def spark(quick_jvm: None) -> Iterator[SparkSession]:  # noqa: ARG001 - asked for what it does
    """The session, with the jars of Delta Lake and S3 if they can be had."""
    with session("tests of the mirror", jars_at_hand(), s3_settings("")) as found:
        yield found


@pytest.fixture(scope="session")
def kafka_job(spark: SparkSession) -> Job:
    """Queries of the Kafka source."""
    need_jars()
    return Job(spark)


@pytest.fixture
def commands_share_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands of the mirror that run in the test's own process use its session, which they must not stop."""

    @contextmanager
    def joined(_name: str, _jars: object = ()) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("bridge.mirror.session.session", joined)


@pytest.fixture
def wait_for() -> Callable[[Callable[[], object]], None]:
    """Wait until something holds; a guard, not a measurement."""

    def wait(condition: Callable[[], object]) -> None:
        until = time.monotonic() + 300
        while not condition():
            assert time.monotonic() < until, "it did not come true within 300 s"
            time.sleep(0.1)

    return wait
