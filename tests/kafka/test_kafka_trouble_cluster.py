"""Three brokers of which one goes: leaders move unnoticed, and where too few copies are left nothing is stored."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from tests.brokers.kafka import Kafka
from tests.brokers.provide import own_kafka
from tests.conformance.conversation import Conversation, refused
from tests.kafka.trouble import Served, with_both
from tests.trouble import back_to, held, stored, taken, until

pytestmark = pytest.mark.extended

COPIES = 3
_PREFERRED = 0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with own_kafka(tmp_path_factory.mktemp("brokers") / "kafka", nodes=COPIES) as started:
        yield started


async def test_leaders_move_under_load(tmp_path: Path, kafka: Kafka) -> None:
    """A broker is stopped, so that its leaderships move, and return by an election: no client notices."""
    async with with_both(tmp_path, kafka.bootstrap, {}) as all_served:
        before = {}
        for client, bridge, talk in all_served:
            await talk.join()
            before[client] = held(bridge)
        moved = asyncio.Event()
        load = [asyncio.create_task(_load(one.talk, moved)) for one in all_served]
        node = kafka.nodes[1]
        await asyncio.to_thread(node.stop)
        await asyncio.to_thread(node.start)
        await _whole(kafka, all_served)
        with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap)) as admin:
            admin.elect_leaders(_PREFERRED)
        for one in all_served:
            assert _leaders(kafka, one.talk.destination) == {1, 2, 3}
        moved.set()
        for (client, bridge, _), sent in zip(all_served, await asyncio.gather(*load), strict=True):
            assert sent > 10
            await back_to(bridge, before[client])


async def test_too_few_replicas_in_sync(tmp_path: Path, kafka: Kafka) -> None:
    """What would have fewer copies than the topic asks for is not stored; what is stored is consumed.

    librdkafka goes on trying for as long as a caller waits, and does not say that it was refused each time: unknown.
    """
    async with with_both(tmp_path, kafka.bootstrap, {}, OMS_TIMEOUTS__PRODUCE="24000") as all_served:
        for _, _, talk in all_served:
            await talk.join()
            await talk.produce(b"before")
            _demand(kafka, talk.destination, COPIES)
        await asyncio.to_thread(kafka.nodes[2].stop)
        try:
            answers = await asyncio.gather(*(talk.post(b"too few") for _, _, talk in all_served))
            for (client, _, talk), answer in zip(all_served, answers, strict=True):
                if client == "confluent" and answer.status_code == 504:
                    refused(answer, 504, "outcome-unknown")
                else:
                    refused(answer, 503, "backend-unavailable")
                    assert answer.headers["x-oms-retry-safe"] == "true"
                assert await taken(talk, meanwhile={503}) == b"before"
                await talk.nothing()
        finally:
            await asyncio.to_thread(kafka.nodes[2].start)
        for (_, _, talk), answer in zip(all_served, answers, strict=True):
            await stored(talk, b"after")
            bodies = {await taken(talk, meanwhile={503})}
            if answer.status_code == 504 and (more := await talk.get(waitmills=1000)).status_code == 200:
                bodies.add(more.content)
            assert b"after" in bodies
            assert bodies <= ({b"after", b"too few"} if answer.status_code == 504 else {b"after"})
            assert (await talk.get(waitmills=200)).status_code == 204


async def _load(talk: Conversation, enough: asyncio.Event) -> int:
    """Produce and consume one by one: each must be stored at once, and come once, in order."""
    number = 0
    while not enough.is_set():
        number += 1
        await talk.produce(b"%d" % number, messagekey=f"key {number % 10}")
        assert await taken(talk, meanwhile=set()) == b"%d" % number
    return number


async def _whole(kafka: Kafka, all_served: list[Served]) -> None:
    """Wait until every partition has all its copies in sync again."""
    topics = [one.talk.destination for one in all_served]

    def in_sync() -> int:
        with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap)) as admin:
            return min(
                len(part["isr_nodes"]) for topic in admin.describe_topics(topics) for part in topic["partitions"]
            )

    await until(lambda: in_sync() == COPIES, in_sync)


def _leaders(kafka: Kafka, topic: str) -> set[int]:
    with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap)) as admin:
        [described] = admin.describe_topics([topic])
    return {part["leader_id"] for part in described["partitions"]}


def _demand(kafka: Kafka, topic: str, copies: int) -> None:
    setting = {"min.insync.replicas": str(copies)}
    with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap)) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, setting)])
