"""Kafka 3.9, the last of the third series: the adapter test kit and the conformance suite pass on it, too.

The other tests run on the newest Kafka, which `pom.xml` names.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from adapters.testing import (
    AdapterContract,
    DelayContract,
    DeletableContract,
    DurableContract,
    Harness,
    MetadataStoreContract,
    SharedContract,
    TransactionalContract,
)
from tests.brokers.kafka import Kafka
from tests.brokers.provide import own_kafka
from tests.conformance.judge import judge
from tests.kafka.bridged import backend

pytestmark = pytest.mark.extended

VERSION: Final = "3.9.1"


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Start the broker that the tests share."""
    with own_kafka(tmp_path_factory.mktemp("kafka") / "kafka", version=VERSION) as kafka:
        yield kafka


@pytest.fixture
def servers(older: Kafka) -> str:
    return older.bootstrap


def test_the_broker_has_the_version_it_stands_for(older: Kafka) -> None:
    assert f"metadata.version {VERSION[:3]}-IV" in older.nodes[0].log


class TestOlderKafka(
    AdapterContract,
    DurableContract,
    SharedContract,
    MetadataStoreContract,
    DeletableContract,
    TransactionalContract,
):
    @pytest.fixture
    def harness(self, servers: str) -> Harness:
        return Harness("adapters.kafka:connect", backend(servers, partitions=3))


class TestOlderKafkaDelayTopics(DelayContract):
    @pytest.fixture
    def harness(self, servers: str) -> Harness:
        return Harness("adapters.kafka:connect", backend(servers, partitions=3, strict_delay="true"))


@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
def test_what_concerns_the_backend_in_the_conformance_suite(servers: str, tmp_path: Path, client: str) -> None:
    judge(backend(servers, client=client), tmp_path)
