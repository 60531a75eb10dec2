"""A bridge without a request notices that Kafka is lost, says why, and notices that it is back."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.brokers.kafka import Kafka
from tests.brokers.provide import own_kafka
from tests.conformance.conversation import refused
from tests.kafka.bridged import backend, bridged
from tests.kafka.clients import PASSWORD
from tests.kafka.each_client import EACH_CLIENT
from tests.kafka.trouble import with_both
from tests.trouble import accepted, lost, lost_and_back, readiness, ready, sentences

pytestmark = pytest.mark.extended

Change = Callable[[], object]


@pytest.fixture
def kafka(stoppable_kafka: Kafka) -> Kafka:
    return stoppable_kafka


@EACH_CLIENT
async def test_the_only_broker_is_killed(client: str, tmp_path: Path, kafka: Kafka) -> None:
    await _loses(tmp_path, backend(kafka.bootstrap, client=client), kafka.kill, "nothing listens there", kafka.start)


@EACH_CLIENT
async def test_the_only_broker_stands_still(client: str, tmp_path: Path, kafka: Kafka) -> None:
    """Its connections stay."""
    [node] = kafka.nodes
    url = backend(kafka.bootstrap, client=client)
    pause, resume = (lambda: node.send(signal.SIGSTOP)), (lambda: node.send(signal.SIGCONT))
    await _loses(tmp_path, url, pause, "does not answer", resume)


@EACH_CLIENT
async def test_the_login_is_refused(client: str, tmp_path: Path, kafka: Kafka) -> None:
    """Kafka keeps connections that have logged in before: the user counts from the next restart on."""
    user = f"user-{uuid4().hex}"
    servers = f"{user}:{PASSWORD}@{kafka.bootstrap_of('SASL_PLAINTEXT')}"
    url = backend(servers, client=client, mechanism="SCRAM-SHA-512")

    def remove() -> None:
        with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap)) as admin:
            admin.alter_user_scram_credentials([UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_512)])
        kafka.restart()

    def add() -> None:
        with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap)) as admin:
            new = UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_512, PASSWORD)
            admin.alter_user_scram_credentials([new])

    add()
    with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap)) as admin:
        for kind in ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID:
            everything = ResourcePattern(kind, "*", ACLResourcePatternType.LITERAL)
            admin.create_acls([ACL(f"User:{user}", "*", ACLOperation.ALL, ACLPermissionType.ALLOW, everything)])
    await _loses(tmp_path, url, remove, "authentication failed", add)


@EACH_CLIENT
async def test_a_produce_during_an_outage_is_answered_with_the_reason(
    client: str, tmp_path: Path, kafka: Kafka
) -> None:
    async with bridged(tmp_path, backend(kafka.bootstrap, client=client)) as (bridge, talk):
        await talk.produce(b"before")
        await asyncio.to_thread(kafka.kill)
        await lost(bridge, "nothing listens there")
        answer = await talk.post(b"refused")
        if client == "kafka-python":  # librdkafka does not say whether a message was sent
            assert "nothing listens there" in refused(answer, 503, "backend-unavailable")


async def test_a_cluster_of_which_one_broker_at_a_time_restarts(tmp_path: Path) -> None:
    with own_kafka(tmp_path / "kafka", nodes=3) as kafka:
        async with with_both(tmp_path, kafka.bootstrap, {}) as all_served:
            for node in kafka.nodes:
                await asyncio.to_thread(node.stop)
                for _, _, talk in all_served:
                    await talk.produce(b"meanwhile")
                await asyncio.to_thread(node.start)
            for _, bridge, talk in all_served:
                await talk.produce(b"after")
                assert readiness(bridge) == (200, 1, True)
                assert not sentences(bridge, "the backend is not ready"), bridge.log


async def _loses(directory: Path, url: str, lose: Change, reason: str, restore: Change) -> None:
    """Lose and restore the broker under a bridge that has nothing to do."""
    async with bridged(directory, url) as (bridge, talk):
        await ready(bridge)
        await lost_and_back(bridge, lose, reason, restore)
        await accepted(talk, b"works")
        assert PASSWORD not in bridge.log
