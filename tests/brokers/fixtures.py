"""Fixtures that a folder's conftest.py imports."""

from collections.abc import Iterator

import pytest

from tests.brokers.provide import given_kafka, own_kafka


@pytest.fixture(scope="session")
def kafka_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Bootstrap servers of the Kafka that all tests of this worker share: each makes topics and groups of its own."""
    given = given_kafka()
    if given:
        yield given
        return
    with own_kafka(tmp_path_factory.mktemp("brokers") / "kafka") as kafka:
        yield kafka.bootstrap
