"""Topics that change under a bridge that uses them: deleted, made anew, given more partitions, or with a limit."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType

from tests.conformance.conversation import refused
from tests.kafka.bridged import backend, bridged
from tests.kafka.each_client import EACH_CLIENT
from tests.trouble import PATIENCE, accepted, back_to, held, stored, taken, until

FEW = 2
MORE = 6


@pytest.fixture
def admin(kafka_servers: str) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=kafka_servers)) as client:
        yield client


@pytest.mark.extended
@EACH_CLIENT
async def test_a_topic_is_deleted_while_it_is_used(
    client: str, tmp_path: Path, kafka_servers: str, admin: KafkaAdminClient
) -> None:
    """It is made anew on the next use, and the group reads the new one from its start."""
    async with bridged(tmp_path, backend(kafka_servers, client=client)) as (bridge, talk):
        await talk.join()
        for number in range(20):
            await talk.produce(b"old %d" % number)
        leases = [await talk.take() for _ in range(5)]
        await talk.ack(leases[0].receipt)
        before = held(bridge)
        admin.delete_topics([talk.destination])
        await until(lambda: talk.destination not in admin.list_topics(), admin.list_topics)
        await accepted(talk, b"new")
        while (body := await taken(talk, meanwhile={503})) != b"new":
            assert body.startswith(b"old"), "what had been fetched may still be handed out"
        for lease in leases:
            assert (await talk.settle("ack", lease.receipt)).status_code in {204, 410}
        for number in range(20):
            await stored(talk, b"newer %d" % number)
        bodies = [await taken(talk, meanwhile=set()) for _ in range(20)]
        assert sorted(bodies) == sorted(b"newer %d" % number for number in range(20))
        await talk.nothing()
        await back_to(bridge, before)


@pytest.mark.extended
@EACH_CLIENT
async def test_a_deleted_topic_is_unknown_where_none_is_made(
    client: str, tmp_path: Path, kafka_servers: str, admin: KafkaAdminClient
) -> None:
    async with bridged(tmp_path, backend(kafka_servers, client=client, create="false")) as (_, talk):
        topics = talk.destination, f"{talk.destination}.dlq"
        admin.create_topics({name: {"num_partitions": FEW} for name in topics}, wait_for_metadata=True)
        # Nothing is read before: of a topic made anew within seconds librdkafka goes on where it was in the old one.
        await talk.nothing()
        admin.delete_topics([talk.destination])
        await until(lambda: talk.destination not in admin.list_topics(), admin.list_topics)
        answer = await talk.post(b"nowhere")
        while answer.status_code == 503:
            answer = await talk.post(b"nowhere")
        assert talk.destination in refused(answer, 404, "destination-unknown")
        admin.create_topics({talk.destination: {"num_partitions": FEW}}, wait_for_metadata=True)
        await accepted(talk, b"there again")
        assert await taken(talk, meanwhile={404, 503}) == b"there again"


@pytest.mark.extended
@EACH_CLIENT
async def test_a_topic_is_given_more_partitions_while_it_is_used(
    client: str, tmp_path: Path, kafka_servers: str, admin: KafkaAdminClient
) -> None:
    """Produced to and consumed from within seconds, without a notice to the bridge."""
    async with bridged(tmp_path, backend(kafka_servers, client=client, partitions=FEW)) as (_, talk):
        await talk.join()
        admin.create_partitions({talk.destination: MORE})
        with closing(KafkaProducer(bootstrap_servers=kafka_servers)) as native:
            await until(lambda: len(native.partitions_for(talk.destination)) == MORE, lambda: "new partitions")
            native.send(talk.destination, b"native", partition=MORE - 1).get(PATIENCE)
        assert await taken(talk, meanwhile=set()) == b"native"
        seen = set()
        for number in range(2000):
            answer = await talk.produce(b"%d" % number)
            seen.add(int(answer.headers["x-oms-h-partition"]))
            assert await taken(talk, meanwhile=set()) == b"%d" % number
            if len(seen) == MORE:
                break
        assert seen == set(range(MORE))
        refused(await talk.post(partition=MORE), 400, "partition-unknown")


@pytest.mark.extended
@EACH_CLIENT
async def test_a_message_larger_than_the_topic_takes(
    client: str, tmp_path: Path, kafka_servers: str, admin: KafkaAdminClient
) -> None:
    async with bridged(tmp_path, backend(kafka_servers, client=client)) as (bridge, talk):
        await talk.join()
        before = held(bridge)
        small = {"max.message.bytes": "5000"}
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, talk.destination, small)])
        answer = await talk.post(bytes(6000))
        assert talk.destination in refused(answer, 413, "body-too-large")
        await talk.produce(b"small")
        assert await taken(talk, meanwhile=set()) == b"small"
        await back_to(bridge, before)


@EACH_CLIENT
async def test_a_message_larger_than_any_topic_takes(client: str, tmp_path: Path, kafka_servers: str) -> None:
    """Kafka's own limit is about 1 MiB by default."""
    async with bridged(tmp_path, backend(kafka_servers, client=client)) as (_, talk):
        refused(await talk.post(bytes(2 << 20)), 413, "body-too-large")
        body = bytes(1_000_000)
        await talk.produce(body)
        assert await taken(talk, meanwhile=set()) == body
