"""The Kafka backend passes the adapter test kit."""

import pytest

from adapters.kafka.transaction import topic
from adapters.testing import (
    AdapterContract,
    DelayContract,
    DeletableContract,
    DeletableDelayContract,
    DurableContract,
    Harness,
    MetadataStoreContract,
    Session,
    SharedContract,
    TransactionalContract,
    UnreachableContract,
)
from tests.kafka.bridged import backend


class _Kafka(
    AdapterContract,
    DurableContract,
    SharedContract,
    MetadataStoreContract,
    DeletableContract,
    TransactionalContract,
):
    """What Kafka offers with either client."""

    @pytest.fixture(autouse=True)
    def look_often(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let a second bridge soon see the topic that the first one has created."""
        monkeypatch.setattr(topic, "_LOOK", 0.1)


class TestKafka(_Kafka):
    @pytest.fixture
    def harness(self, kafka_servers: str) -> Harness:
        return Harness("adapters.kafka:connect", backend(kafka_servers, partitions=3))

    @pytest.mark.extended  # the brokers wait 10 s for the member that was killed
    async def test_confirmed_messages_survive_a_kill(self, session: Session) -> None:
        await super().test_confirmed_messages_survive_a_kill(session)


@pytest.mark.extended
class TestKafkaConfluent(_Kafka):
    """With librdkafka for producing."""

    @pytest.fixture
    def harness(self, kafka_servers: str) -> Harness:
        return Harness("adapters.kafka:connect", backend(kafka_servers, partitions=3, client="confluent"))


@pytest.mark.extended
class TestKafkaDelayTopics(DelayContract, DeletableDelayContract):
    @pytest.fixture
    def harness(self, kafka_servers: str) -> Harness:
        return Harness("adapters.kafka:connect", backend(kafka_servers, partitions=3, strict_delay="true"))


@pytest.mark.extended
@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
class TestKafkaUnreachable(UnreachableContract):
    @pytest.fixture
    def harness(self, unused_port: int, client: str) -> Harness:
        url = f"kafka://127.0.0.1:{unused_port}?client={client}"
        return Harness("adapters.kafka:connect", url, unreachable_url=url)
