"""`oms-bridge check --migrate` on real topics: good ones, and ones made bad on purpose."""

import gzip
import json
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import confluent_kafka
import pytest
from kafka import KafkaAdminClient, OffsetAndMetadata, TopicPartition
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

from bridge.errors import BridgeError, CannotStart, DestinationUnknown
from bridge.migrate.finding import Verdict
from tests.brokers.provide import own_kafka
from tests.brokers.security import Security
from tests.kafka import natives
from tests.kafka.bridged import backend, bridged
from tests.migrate.commands import run
from tests.migrate.looked import look, of, seen, verdicts

WORKS, DIFFERS, FAILS, UNKNOWN = Verdict.WORKS, Verdict.DIFFERS, Verdict.FAILS, Verdict.UNKNOWN
KEYS = [b"c-%d" % number for number in range(40)]
TEXT = [("region", b"eu")]
PASSWORD = "of-order-7"  # noqa: S105 - of a broker of our own


def place(servers: str, topic: str, **settings: str) -> None:
    """Write the keys as librdkafka places them."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, **settings})
    for key in KEYS:
        producer.produce(topic, key=key, value=b"v")
    assert producer.flush(natives.SECONDS) == 0


def read_some(servers: str, topic: str, group: str, count: int = 1) -> None:
    """Read and commit, as a native program does."""
    with natives.member(servers, topic, group) as consumer:
        natives.take(consumer, count)
        consumer.commit()


async def test_nothing_is_in_the_way_of_an_ordinary_topic(kafka_servers: str) -> None:
    topic = natives.topic_of(kafka_servers, 4)
    natives.write(kafka_servers, topic, [(key, b"v", TEXT) for key in KEYS])
    group = f"g-{uuid4().hex[:8]}"
    read_some(kafka_servers, topic, group, len(KEYS))
    report = await look(f"kafka://{kafka_servers}", topic)
    assert report.fit
    assert set().union(*verdicts(report).values()) == {WORKS}
    assert seen(report, "hash of keys").startswith("40 of 40")
    assert any("lag 0" in finding.seen for finding in of(report, f"group {group}"))


@pytest.mark.parametrize(
    ("configs", "subject", "verdict"),
    [
        ({"cleanup.policy": "compact"}, "cleanup policy", FAILS),
        ({"cleanup.policy": "compact,delete"}, "cleanup policy", FAILS),
        ({"min.insync.replicas": "2"}, "replicas", FAILS),
        ({"retention.ms": "60000"}, "retention", DIFFERS),
        ({"max.message.bytes": "9000000"}, "message size", DIFFERS),
        ({"message.timestamp.type": "LogAppendTime"}, "timestamps", DIFFERS),
    ],
)
async def test_a_setting_that_matters_is_named(
    kafka_servers: str, configs: dict[str, str], subject: str, verdict: Verdict
) -> None:
    report = await look(f"kafka://{kafka_servers}", natives.topic_of(kafka_servers, 2, **configs))
    assert verdicts(report)[subject] == {verdict}
    assert report.fit is (verdict is not FAILS)
    assert all(found == {WORKS} for name, found in verdicts(report).items() if name not in {subject, "sample"})


@pytest.mark.parametrize(
    ("settings", "verdict", "hint"),
    [
        ({}, FAILS, "40 where crc32"),
        ({"partitioner": "fnv1a_random"}, FAILS, "40 where FNV-1a"),
        ({"partitioner": "murmur2_random"}, WORKS, "40 of 40"),
    ],
    ids=["librdkafka's default", "sarama's", "java's"],
)
async def test_the_hash_of_native_producers_is_recognised(
    kafka_servers: str, settings: dict[str, str], verdict: Verdict, hint: str
) -> None:
    topic = natives.topic_of(kafka_servers, 5)
    place(kafka_servers, topic, **settings)
    report = await look(f"kafka://{kafka_servers}", topic)
    assert verdicts(report)["hash of keys"] == {verdict}
    assert hint in seen(report, "hash of keys")


async def test_few_keys_prove_nothing(kafka_servers: str) -> None:
    topic = natives.topic_of(kafka_servers, 2)
    natives.write(kafka_servers, topic, [(b"c-1", b"v", []), (b"c-2", b"v", [])])
    report = await look(f"kafka://{kafka_servers}", topic)
    assert verdicts(report)["hash of keys"] == {UNKNOWN}


@pytest.mark.parametrize(
    ("row", "subject", "verdict"),
    [
        ((None, b"v", []), "null keys", WORKS),
        ((b"\xff\x00", b"v", []), "binary keys", FAILS),
        ((b"k" * 5000, b"v", []), "long keys", DIFFERS),
        ((b"k", None, []), "null values", FAILS),
        ((b"k", gzip.compress(b"v"), []), "bodies in gzip", DIFFERS),
        ((b"k", b"v" * 3000, []), "largest body", FAILS),
        ((b"k", b"v", [("oms_d_due", b"1")]), "headers of the bridge's", FAILS),
        ((b"k", b"v", [("oms_h_priority", b"high")]), "headers like the bridge's", DIFFERS),
        ((b"k", b"v", [("oms_p_region", b"eu")]), "headers like the bridge's", DIFFERS),
        ((b"k", b"v", [("a", b"1"), ("a", b"2")]), "repeated headers", DIFFERS),
        ((b"k", b"v", [("a", b"\xff")]), "binary headers", DIFFERS),
        ((b"k", b"v", [(f"h{n}", b"v" * 5000) for n in range(9)]), "headers too large", FAILS),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_a_record_holds_is_named(
    kafka_servers: str, row: tuple[bytes, bytes, list[tuple[str, bytes]]], subject: str, verdict: Verdict
) -> None:
    topic = natives.topic_of(kafka_servers, 1)
    natives.write(kafka_servers, topic, [(b"k", b"v", TEXT), row])
    report = await look(f"kafka://{kafka_servers}", topic, limits={"body": "2000"})
    assert verdicts(report)[subject] == {verdict}
    assert report.fit is (verdict is not FAILS)


async def test_records_of_a_bridge_are_not_taken_for_native_ones(kafka_servers: str, tmp_path: Path) -> None:
    async with bridged(tmp_path, backend(kafka_servers)) as (_, talk):
        await talk.produce(b"one", messagekey="k", priority=9)
        report = await look(f"kafka://{kafka_servers}", talk.destination)
    assert verdicts(report)["sample"] == {UNKNOWN}
    assert "1 of a bridge" in seen(report, "sample")
    assert report.fit


@pytest.mark.parametrize(
    ("assignor", "verdict"), [(CooperativeStickyAssignor, WORKS), (RangePartitionAssignor, DIFFERS)]
)
async def test_members_that_a_bridge_can_join_are_told_from_others(
    kafka_servers: str, assignor: type, verdict: Verdict
) -> None:
    topic, group = natives.topic_of(kafka_servers, 1), f"g-{uuid4().hex[:8]}"
    natives.write(kafka_servers, topic, [(b"k", b"v", TEXT)])
    with natives.member(kafka_servers, topic, group, partition_assignment_strategy=[assignor]) as consumer:
        natives.take(consumer, 1)
        consumer.commit()
        report = await look(f"kafka://{kafka_servers}", topic)
    [members, offsets] = of(report, f"group {group}")
    assert (members.verdict, offsets.verdict) == (verdict, WORKS)
    assert "1 members" in members.seen


async def test_offsets_that_are_missing_or_gone_are_named(kafka_servers: str) -> None:
    topic, group = natives.topic_of(kafka_servers, 2), f"g-{uuid4().hex[:8]}"
    natives.write(kafka_servers, topic, [(b"k", b"v", [])] * 3, partition=0)
    with closing(KafkaAdminClient(bootstrap_servers=kafka_servers)) as admin:
        admin.alter_group_offsets(group, {TopicPartition(topic, 0): OffsetAndMetadata(1, "", -1)})
        missing = of(await look(f"kafka://{kafka_servers}", topic), f"group {group}")[1]
        admin.delete_records({TopicPartition(topic, 0): 2})
    gone = of(await look(f"kafka://{kafka_servers}", topic), f"group {group}")[1]
    assert missing.verdict is gone.verdict is DIFFERS
    assert missing.advice.startswith("Partitions [1] have no offset")
    assert gone.advice.startswith("Records below the oldest of partitions [0] are gone")


async def test_a_group_that_http_cannot_name_is_in_the_way(kafka_servers: str) -> None:
    topic, group = natives.topic_of(kafka_servers, 1), f"billing team {uuid4().hex[:8]}"
    natives.write(kafka_servers, topic, [(b"k", b"v", TEXT)])
    read_some(kafka_servers, topic, group)
    report = await look(f"kafka://{kafka_servers}", topic)
    assert verdicts(report)[f"group {group}"] == {FAILS}


async def test_looking_changes_nothing(kafka_servers: str) -> None:
    topic, group = natives.topic_of(kafka_servers, 2), f"g-{uuid4().hex[:8]}"
    natives.write(kafka_servers, topic, [(key, b"v", TEXT) for key in KEYS])
    read_some(kafka_servers, topic, group)
    with closing(KafkaAdminClient(bootstrap_servers=kafka_servers)) as admin:

        def state() -> tuple[object, ...]:
            groups = {each["group_id"] for each in admin.list_groups()}
            return sorted(admin.list_topics()), groups, admin.list_group_offsets(group)

        before = state()
        await look(f"kafka://{kafka_servers}", topic)
        with pytest.raises(DestinationUnknown):
            await look(f"kafka://{kafka_servers}", f"{topic}-unknown")
        assert state() == before


async def test_what_the_user_may_not_see_is_said_to_be_unknown(tmp_path: Path) -> None:
    with own_kafka(tmp_path / "kafka", security=Security({"reader": PASSWORD})) as kafka:
        topic = natives.topic_of(kafka.bootstrap, 1)
        natives.write(kafka.bootstrap, topic, [(b"k", b"v", TEXT)])
        read_some(kafka.bootstrap, topic, "billing")
        url = f"kafka://reader:{PASSWORD}@{kafka.bootstrap_of('SASL_PLAINTEXT')}?mechanism=SCRAM-SHA-256"
        with pytest.raises(BridgeError):
            await look(url, topic)
        pattern = ResourcePattern(ResourceType.TOPIC, topic)
        with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap)) as admin:
            admin.create_acls([ACL("User:reader", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)])
        report = await look(url, topic)
    assert report.fit
    assert verdicts(report)["settings"] == {UNKNOWN}
    assert seen(report, "groups") == "none that this user may see"
    assert seen(report, "hash of keys") == "one partition"


async def test_the_command_has_a_status_for_scripts(kafka_servers: str, tmp_path: Path) -> None:
    good, bad = natives.topic_of(kafka_servers, 1), natives.topic_of(kafka_servers, 1, **{"cleanup.policy": "compact"})
    command = ["oms-bridge", "check", "--backend", f"kafka://{kafka_servers}", "--migrate"]
    shown = await run([*command, good], tmp_path, {})
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith(f"topic {good}: ")
    shown = await run([*command, bad], tmp_path, {})
    assert shown.returncode == 1
    assert "WILL NOT WORK\n  cleanup policy: compact\n    Leave its producers native" in shown.stdout
    shown = await run([*command, bad, "--json"], tmp_path, {})
    told = json.loads(shown.stdout)
    assert (shown.returncode, told["topic"], told["fit"]) == (1, bad, False)
    [finding] = [each for each in told["findings"] if each["subject"] == "cleanup policy"]
    assert (finding["seen"], finding["verdict"]) == ("compact", "will not work")
    shown = await run([*command, f"{good}-unknown"], tmp_path, {})
    assert shown.returncode == 1
    assert shown.stderr == f"Error: {good}-unknown: there is no such topic.\n"


async def test_memory_has_nothing_to_look_at() -> None:
    with pytest.raises(CannotStart, match="memory:// has neither"):
        await look("memory://", "orders")


async def test_a_compacted_topic_refuses_what_the_check_says(kafka_servers: str, tmp_path: Path) -> None:
    topic = natives.topic_of(kafka_servers, 1, **{"cleanup.policy": "compact"})
    async with bridged(tmp_path, backend(kafka_servers)) as (_, talk):
        headers = {"x-oms-version": "1.0.0", "x-oms-h-destination": topic}
        keyless = await talk.http.post("/v1/messages", headers=headers, content=b"v")
        keyed = await talk.http.post("/v1/messages", headers=headers | {"x-oms-h-messagekey": "k"}, content=b"v")
    assert keyless.status_code // 100 == 4, keyless.text
    assert keyed.status_code == 200
