"""The catalogue of topics against a real Kafka, and the admin's few questions and orders."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from adapters.base import Stored
from adapters.kafka import deletion, topics
from adapters.kafka.admin import Admin
from adapters.kafka.delay.schedule import LEVELS
from adapters.kafka.mapping import Commit, Outgoing, Part, Record
from adapters.kafka.names import Own
from adapters.kafka.options import Options
from adapters.kafka.produce.publisher import Publisher
from adapters.kafka.topics import Cluster, Topics
from bridge.errors import BackendUnavailable, DestinationInvalid, DestinationUnknown
from tests.kafka.clients import consume, new_topic
from tests.kafka.driven import topics_of


class _Admin(Admin):
    """Counts what it creates."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.created: Counter[str] = Counter()

    async def create(self, topic: str, partitions: int, replication: int, configs: Mapping[str, str]) -> None:
        self.created[topic] += 1
        await super().create(topic, partitions, replication, configs)


class _Publisher(Publisher):
    """Counts what it asks."""

    asked = 0

    async def partitions(self, topic: str) -> int | None:
        self.asked += 1
        return await super().partitions(topic)


async def test_many_first_uses_share_one_creation(kafka_servers: str) -> None:
    topic = _name()
    async with _catalogue(kafka_servers, partitions=5) as (catalogue, admin, publisher):
        counts = await asyncio.gather(*(catalogue.partitions(topic) for _ in range(50)))
        assert set(counts) == {5}
        assert admin.created == {topic: 1}
        # each partition can be used at once
        sent = [publisher.send(_record(topic, part)) for part in range(5)]
        assert await asyncio.gather(*sent) == [Stored(part, 0) for part in range(5)]


async def test_what_is_known_is_not_asked_again(kafka_servers: str) -> None:
    topic = new_topic(kafka_servers)
    async with _catalogue(kafka_servers) as (catalogue, _, publisher):
        for _ in range(3):
            assert await catalogue.partitions(topic) == 1
        assert publisher.asked == 1
        catalogue.forget(topic)
        assert await catalogue.partitions(topic) == 1
        assert publisher.asked == 2


async def test_one_who_no_longer_waits_takes_nothing_from_the_others(kafka_servers: str) -> None:
    topic = _name()
    async with _catalogue(kafka_servers) as (catalogue, admin, _):
        first, second = (asyncio.create_task(catalogue.partitions(topic)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == 8
        assert admin.created == {topic: 1}


async def test_two_bridges_may_create_the_same_topic(kafka_servers: str) -> None:
    topic = _name()
    async with (
        _catalogue(kafka_servers, partitions=3) as (one, _, _),
        _catalogue(kafka_servers, partitions=4) as (other, _, _),
    ):
        first, second = await asyncio.gather(one.partitions(topic), other.partitions(topic))
    assert first == second
    assert first in {3, 4}


async def test_a_topic_that_exists_keeps_its_number(kafka_servers: str) -> None:
    async with _catalogue(kafka_servers, partitions=12) as (catalogue, admin, _):
        assert await catalogue.partitions(new_topic(kafka_servers)) == 1
        assert not admin.created


async def test_partitions_that_are_added_are_seen(kafka_servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "METADATA_AGE", 0)
    topic = new_topic(kafka_servers)
    async with _catalogue(kafka_servers) as (catalogue, _, publisher):
        assert await catalogue.partitions(topic) == 1
        _add_partitions(kafka_servers, topic, 3)
        async with asyncio.timeout(30):
            while await catalogue.partitions(topic) != 3:  # each use has it looked at again
                await publisher.send(_record(topic, 0))
        assert await publisher.send(_record(topic, 2)) == Stored(2, 0)


async def test_where_creating_is_switched_off_a_topic_is_unknown(kafka_servers: str) -> None:
    topic = _name()
    async with _catalogue(kafka_servers, create=False) as (catalogue, admin, _):
        for _ in range(2):
            with pytest.raises(DestinationUnknown, match=topic):
                await catalogue.partitions(topic)
        assert not admin.created
        assert await topics_of(admin, topic) == []


async def test_names_that_kafka_takes_for_one(kafka_servers: str) -> None:
    name = _name()
    async with _catalogue(kafka_servers) as (catalogue, _, _):
        await catalogue.partitions(f"{name}.a")
        with pytest.raises(DestinationInvalid):
            await catalogue.partitions(f"{name}_a")


async def test_more_copies_than_brokers(kafka_servers: str) -> None:
    async with _catalogue(kafka_servers, replication=100) as (catalogue, _, _):
        with pytest.raises(BackendUnavailable, match="fewer brokers"):
            await catalogue.partitions(_name())


async def test_lanes_have_topics_with_as_many_partitions(kafka_servers: str) -> None:
    new, old = _name(), new_topic(kafka_servers)
    async with _catalogue(kafka_servers, lanes=True, partitions=3) as (catalogue, admin, publisher):
        assert await catalogue.partitions(new) == 3
        assert await catalogue.partitions(old) == 1
        for name, number in ((new, 3), (old, 1)):
            for lane in ("", ".oms-hi", ".oms-lo"):
                assert await publisher.partitions(name + lane) == number
        assert set(admin.created) == {new, f"{new}.oms-hi", f"{new}.oms-lo", f"{old}.oms-hi", f"{old}.oms-lo"}


async def test_the_smallest_lane_counts(kafka_servers: str) -> None:
    name = _name()
    async with _catalogue(kafka_servers, lanes=True, partitions=2) as (catalogue, _, _):
        await catalogue.partitions(name)
        _add_partitions(kafka_servers, name, 5)
        catalogue.forget(f"{name}.oms-hi")
        assert await catalogue.partitions(name) == 2


async def test_a_topic_of_the_bridge_is_made_even_so(kafka_servers: str) -> None:
    name = _name()
    async with _catalogue(kafka_servers, create=False) as (catalogue, admin, _):
        for _ in range(2):
            assert await catalogue.ensure(name, 1, {"cleanup.policy": "compact"}) == 1
        assert admin.created == {name: 1}
    resource = ConfigResource(ConfigResourceType.TOPIC, name, {"cleanup.policy": None})
    with closing(KafkaAdminClient(bootstrap_servers=kafka_servers)) as client:
        described = client.describe_configs([resource], config_filter="all")
    assert described["topic"][name]["cleanup.policy"]["value"] == "compact"


async def test_a_group_is_set_to_begin_at_the_end_of_what_it_does_not_know(kafka_servers: str) -> None:
    known, new, group = new_topic(kafka_servers), new_topic(kafka_servers), _name()
    async with _catalogue(kafka_servers) as (_, admin, publisher):
        for topic in (known, known, new):
            await publisher.send(_record(topic, 0))
        assert await admin.group_offsets(group) == {}
        at_one = {Part(known, 0): Commit(1, "é" * 4096)}
        await admin.set_group_offsets(group, at_one)
        await admin.start_at_end(group, [known, new])
        assert await admin.group_offsets(group) == at_one | {Part(new, 0): Commit(1, "")}
        assert await admin.end_offsets([known, new]) == {Part(known, 0): 2, Part(new, 0): 1}


async def test_records_are_deleted_below_an_offset(kafka_servers: str) -> None:
    topic = new_topic(kafka_servers)
    async with _catalogue(kafka_servers) as (_, admin, publisher):
        for body in (b"1", b"2", b"3"):
            await publisher.send(_record(topic, 0)._replace(value=body))
        await admin.delete_records({Part(topic, 0): 2})
        with pytest.raises(DestinationUnknown):
            await admin.delete_records({Part(_name(), 0): 2})
    assert consume(kafka_servers, topic, 1) == [b"3"]


async def test_many_questions_at_once_are_all_answered(kafka_servers: str) -> None:
    topic = new_topic(kafka_servers)
    async with _catalogue(kafka_servers) as (_, admin, _):
        assert await asyncio.gather(*(topics_of(admin, topic) for _ in range(50))) == [[topic]] * 50


@pytest.mark.extended
async def test_a_delay_topic_that_is_created_anew_has_no_purged_records(
    kafka_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offsets begin again, so an earlier purge would drop new messages."""
    monkeypatch.setattr(deletion, "_WAIT", -deletion.FRESH)
    async with _catalogue(kafka_servers, prefix=f"{_name()}.") as (catalogue, admin, publisher):
        options, own = catalogue._options, Own(catalogue._options.prefix)
        writer, reader = (deletion.Purges(Cluster(options, admin, catalogue, publisher)) for _ in range(2))
        assert not await writer.purge(["orders"]), "nothing was delayed yet"
        await asyncio.gather(*(catalogue.ensure(own.delay(level.name), 1, {}) for level in LEVELS))
        first, second = own.delay("8s"), own.delay("due")
        records = {}
        for topic in first, second:
            await publisher.send(_record(topic, 0))
            records[topic] = Record(topic, 0, 0, 0, None, b"", ())
        assert await writer.purge(["orders"])
        await reader.refresh()
        assert [reader.dropped("orders", each) for each in records.values()] == [True, True]
        assert not reader.dropped("other", records[first])
        assert not reader.dropped("orders", records[first]._replace(offset=1))
        await writer.forget(first)
        await reader.refresh()
        assert [reader.dropped("orders", each) for each in records.values()] == [False, True]


@asynccontextmanager
async def _catalogue(servers: str, **options: object) -> AsyncIterator[tuple[Topics, _Admin, _Publisher]]:
    chosen = Options((servers,))._replace(**options)  # type: ignore[arg-type] # of the options' own types
    publisher, admin = _Publisher(chosen), _Admin(chosen)
    await publisher.start()
    catalogue = Topics(chosen, admin, publisher)
    try:
        yield catalogue, admin, publisher
    finally:
        await catalogue.close()
        await publisher.close()
        await admin.close()


def _add_partitions(servers: str, topic: str, total: int) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as client:
        client.create_partitions({topic: total})


def _record(topic: str, partition: int) -> Outgoing:
    return Outgoing(topic, partition, 1_700_000_000_000, None, b"body", [])


def _name() -> str:
    return f"topics-{uuid4().hex}"
