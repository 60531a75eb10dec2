"""What exists already is taken over, topics of others and groups at their committed offsets, and can be given back."""

import time
from contextlib import closing
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor

from tests.conformance.conversation import Conversation, refused
from tests.kafka import natives
from tests.kafka.bridged import backend, bridged
from tests.kafka.console import console_of

COUNT: Final = 20


@pytest.fixture
def topic(kafka_servers: str) -> str:
    """Return a topic of three partitions with numbered records, made and filled without the bridge."""
    name = natives.topic_of(kafka_servers, 3)
    natives.write(kafka_servers, name, [(b"key %d" % (n % 7), b"%d" % n, ()) for n in range(COUNT)])
    return name


async def test_an_existing_topic_keeps_its_partitions(tmp_path: Path, topic: str, kafka_servers: str) -> None:
    async with bridged(tmp_path, backend(kafka_servers, create="false", partitions=8)) as (_, talk):
        talk.destination = topic
        answer = await talk.produce(b"through the bridge", messagekey="key 1")
        native = natives.read(kafka_servers, topic, COUNT + 1)
        [ours] = [record for record in native if record.value == b"through the bridge"]
        assert ours.partition == next(record.partition for record in native if record.key == b"key 1")
        assert answer.headers["x-oms-h-partition"] == str(ours.partition)
        refused(await talk.post(partition=3), 400, "partition-unknown")


async def test_no_topic_is_made_where_the_settings_say_so(tmp_path: Path, kafka_servers: str) -> None:
    async with bridged(tmp_path, backend(kafka_servers, create="false")) as (_, talk):
        assert talk.destination in refused(await talk.post(b"nowhere"), 404, "destination-unknown")
        refused(await talk.get(), 404, "destination-unknown")
        with closing(KafkaAdminClient(bootstrap_servers=kafka_servers)) as admin:
            assert talk.destination not in admin.list_topics()
            topics = talk.destination, f"{talk.destination}.dlq"
            admin.create_topics({name: {"num_partitions": 2} for name in topics}, wait_for_metadata=True)
        await talk.produce(b"there now")
        assert (await talk.take()).body == b"there now"


async def test_a_group_goes_on_where_a_native_program_left_it(tmp_path: Path, topic: str, kafka_servers: str) -> None:
    group = f"g-{uuid4().hex}"
    with natives.member(kafka_servers, topic, group) as consumer:
        done = {record.value or b"" for record in natives.take(consumer, COUNT // 2)}
        consumer.commit()
    async with bridged(tmp_path, backend(kafka_servers)) as (_, talk):
        talk.destination, talk.group = topic, group
        came = [taken.body for taken in await talk.take_all(COUNT - len(done))]
        await talk.nothing()
    assert sorted([*came, *done], key=int) == [b"%d" % number for number in range(COUNT)]


@pytest.mark.extended
async def test_a_group_goes_on_where_it_was_reset_to(tmp_path: Path, topic: str, kafka_servers: str) -> None:
    """By hand, with Kafka's own tool, as one does to replay."""
    console = console_of(tmp_path / "tools", kafka_servers)
    group = f"g-{uuid4().hex}"
    async with bridged(tmp_path / "first", backend(kafka_servers)) as (bridge, talk):
        talk.destination, talk.group = topic, group
        await talk.take_all(COUNT)
        assert bridge.terminate() == 0
    which = (f"--group={group}", f"--topic={topic}")
    console.run("kafka-consumer-groups.sh", "--reset-offsets", *which, "--to-earliest", "--execute")
    async with bridged(tmp_path / "second", backend(kafka_servers)) as (_, talk):
        talk.destination, talk.group = topic, group
        assert len(await talk.take_all(COUNT)) == COUNT
        await talk.nothing()


async def test_a_native_program_goes_on_at_the_first_that_is_not_settled(tmp_path: Path, kafka_servers: str) -> None:
    topic, group = natives.topic_of(kafka_servers, 1), f"g-{uuid4().hex}"
    natives.write(kafka_servers, topic, [(None, b"%d" % number, ()) for number in range(COUNT)])
    async with bridged(tmp_path / "first", backend(kafka_servers)) as (bridge, talk):
        talk.destination, talk.group = topic, group
        taken = [await talk.take() for _ in range(10)]
        for one in *taken[:4], *taken[5:]:
            await talk.ack(one.receipt)
        assert bridge.terminate() == 0
    with natives.member(kafka_servers, topic, group) as consumer:
        seen = [record.value for record in natives.take(consumer, COUNT - 4)]
        assert seen == [b"%d" % number for number in range(4, COUNT)]
        consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(8, "", -1)})
    # what the bridge noted beyond its offset is gone with the foreign commit: the offset alone counts
    async with bridged(tmp_path / "second", backend(kafka_servers)) as (_, talk):
        talk.destination, talk.group = topic, group
        assert [one.body for one in await talk.take_all(COUNT - 8)] == [b"%d" % n for n in range(8, COUNT)]
        await talk.nothing()


@pytest.mark.extended
async def test_kafkas_own_tool_shows_lag_and_members(tmp_path: Path, topic: str, kafka_servers: str) -> None:
    console = console_of(tmp_path / "tools", kafka_servers)
    async with bridged(tmp_path, backend(kafka_servers, instance="bridge-7")) as (bridge, talk):
        talk.destination = topic
        await talk.take_all(5)
        rows = console.group(talk.group)
        assert {row["TOPIC"] for row in rows} == {topic}
        assert sum(int(row["LAG"]) for row in rows if row["LAG"] != "-") == COUNT - 5
        [member] = console.group(talk.group, "--members", "--verbose")
        assert "bridge-7" in member["GROUP-INSTANCE-ID"]
        assert member["#PARTITIONS"] == "3"
        await talk.take_all(COUNT - 5)
        assert [row["LAG"] for row in console.group(talk.group)] == ["0", "0", "0"]
        assert bridge.terminate() == 0


@pytest.mark.extended
async def test_with_a_java_member_the_partitions_are_shared(tmp_path: Path, topic: str, kafka_servers: str) -> None:
    """Java's default offers the bridge's assignor too: such members share a group while a program is migrated."""
    console = console_of(tmp_path / "tools", kafka_servers)
    async with bridged(tmp_path, backend(kafka_servers)) as (_, talk):
        talk.destination = topic
        await talk.take_all(COUNT)
        java = console.start("kafka-console-consumer.sh", f"--topic={topic}", f"--group={talk.group}")
        try:
            came = sent = 0
            deadline = time.monotonic() + natives.SECONDS
            while not (came and java.printed):
                assert time.monotonic() < deadline, f"of {sent} the bridge got {came}, Java {java.printed!r}"
                for partition in range(3):
                    natives.write(kafka_servers, topic, [(None, b"more", ())], partition)
                    sent += 1
                came += len(await _whatever_comes(talk))
            while came + java.printed.count(b"more") < sent:
                assert time.monotonic() < deadline, f"of {sent} the bridge got {came}, Java {java.printed!r}"
                came += len(await _whatever_comes(talk))
            shares = {row["CLIENT-ID"]: row["#PARTITIONS"] for row in console.group(talk.group, "--members")}
            assert len(shares) == 2
            assert sorted(shares.values()) == ["1", "2"]
        finally:
            java.stop()


@pytest.mark.extended
async def test_beside_a_native_member_with_another_assignor(tmp_path: Path, topic: str, kafka_servers: str) -> None:
    """The members of the group have no common assignor: it says so, and recovers when the other member leaves."""
    group = f"g-{uuid4().hex}"
    async with bridged(tmp_path, backend(kafka_servers)) as (_, talk):
        talk.destination, talk.group = topic, group
        with natives.member(
            kafka_servers, topic, group, partition_assignment_strategy=[RangePartitionAssignor]
        ) as consumer:
            natives.take(consumer, 1)
            sentence = refused(await talk.get(waitmills=20_000), 503, "backend-unavailable")
            assert group in sentence
            assert "assignor" in sentence
        came: list[bytes] = []
        deadline = time.monotonic() + natives.SECONDS
        while len(came) < COUNT:
            assert time.monotonic() < deadline, came
            came += await _whatever_comes(talk)
        await talk.nothing()


async def _whatever_comes(talk: Conversation) -> list[bytes]:
    """Pull until nothing comes, as a consumer that takes a 503 for a pause."""
    came = []
    while (answer := await talk.get(ack="false", waitmills=500)).status_code == 200:
        came.append(answer.content)
    assert answer.status_code in {204, 503}, answer.text
    return came
