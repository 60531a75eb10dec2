"""`oms-bridge check --migrate` on real topics: good ones, and ones made bad on purpose."""

import gzip
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

import confluent_kafka
import pytest
from kafka import KafkaAdminClient, OffsetAndMetadata, TopicPartition
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

from bridge.errors import BridgeError, CannotStart, DestinationUnknown
from bridge.migrate.report import Verdict
from tests.brokers.provide import own_kafka
from tests.brokers.security import Security
from tests.kafka import natives
from tests.kafka.bridged import backend, bridged
from tests.migrate.commands import run
from tests.migrate.reports import findings_about, report_on, seen, verdicts

WORKS, DIFFERS, FAILS, UNKNOWN = Verdict.WORKS, Verdict.DIFFERS, Verdict.FAILS, Verdict.UNKNOWN
KEYS = [b"c-%d" % number for number in range(40)]
TEXT = [("region", b"eu")]
PASSWORD = "of-order-7"  # noqa: S105 - of a broker of our own


class Setting(NamedTuple):
    """A setting of a topic, and what is said of it."""

    name: str
    value: str
    subject: str
    verdict: Verdict


class Row(NamedTuple):
    """A record, and what is said of it."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]
    subject: str
    verdict: Verdict


SETTINGS: Final = (
    Setting("cleanup.policy", "compact", "cleanup policy", FAILS),
    Setting("cleanup.policy", "compact,delete", "cleanup policy", FAILS),
    Setting("min.insync.replicas", "2", "replicas", FAILS),
    Setting("retention.ms", "60000", "retention", DIFFERS),
    Setting("max.message.bytes", "9000000", "message size", DIFFERS),
    Setting("message.timestamp.type", "LogAppendTime", "timestamps", DIFFERS),
)
ROWS: Final = (
    Row(None, b"v", [], "null keys", WORKS),
    Row(b"\xff\x00", b"v", [], "binary keys", FAILS),
    Row(b"k" * 5000, b"v", [], "long keys", DIFFERS),
    Row(b"k", None, [], "null values", FAILS),
    Row(b"k", gzip.compress(b"v"), [], "gzip bodies", DIFFERS),
    Row(b"k", b"v" * 3000, [], "largest body", FAILS),
    Row(b"k", b"v", [("oms_d_due", b"1")], "reserved headers", FAILS),
    Row(b"k", b"v", [("oms_h_priority", b"high")], "headers with a bridge's prefix", DIFFERS),
    Row(b"k", b"v", [("oms_p_region", b"eu")], "headers with a bridge's prefix", DIFFERS),
    Row(b"k", b"v", [("a", b"1"), ("a", b"2")], "repeated headers", DIFFERS),
    Row(b"k", b"v", [("a", b"\xff")], "binary headers", DIFFERS),
    Row(b"k", b"v", [(f"h{n}", b"v" * 5000) for n in range(9)], "headers too large", FAILS),
)
BODY_LIMIT: Final = "2000"


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
    report = await report_on(f"kafka://{kafka_servers}?properties=plain", topic)
    assert report.fit
    assert set().union(*verdicts(report).values()) == {WORKS}
    prefixed = verdicts(await report_on(f"kafka://{kafka_servers}", topic))
    assert {name for name, found in prefixed.items() if found != {WORKS}} == {"headers of HTTP producers"}
    assert seen(report, "partitioner").startswith("40 of 40")
    assert any("lag 0" in finding.seen for finding in findings_about(report, f"group {group}"))


async def test_every_fault_of_one_topic_is_named(kafka_servers: str) -> None:
    faults = [*SETTINGS[:1], *SETTINGS[3:]]  # with two replicas asked for, nothing could be written
    topic = natives.topic_of(kafka_servers, 2, **{each.name: each.value for each in faults})
    rows = [row for row in ROWS if row.key is not None]  # a compacted topic takes no record without a key
    natives.write(kafka_servers, topic, [(b"k", b"v", TEXT), *(row[:3] for row in rows)])
    report = await report_on(f"kafka://{kafka_servers}", topic, limits={"body": BODY_LIMIT})
    found = verdicts(report)
    expected = {each.subject: {each.verdict} for each in faults} | {row.subject: {row.verdict} for row in rows}
    assert {subject: found.get(subject) for subject in expected} == expected
    assert not report.fit


@pytest.mark.extended
async def test_a_setting_that_matters_is_named(kafka_servers: str, subtests: pytest.Subtests) -> None:
    for each in SETTINGS:
        with subtests.test(msg=f"{each.name}={each.value}"):
            topic = natives.topic_of(kafka_servers, 2, **{each.name: each.value})
            report = await report_on(f"kafka://{kafka_servers}", topic)
            assert verdicts(report)[each.subject] == {each.verdict}
            assert report.fit is (each.verdict is not FAILS)
            others = {subject: said for subject, said in verdicts(report).items() if subject != each.subject}
            assert all(said == {WORKS} for subject, said in others.items() if subject != "sample"), others


@pytest.mark.extended
async def test_the_hash_of_native_producers_is_recognised(kafka_servers: str, subtests: pytest.Subtests) -> None:
    cases: tuple[tuple[str, dict[str, str], Verdict, str], ...] = (
        ("librdkafka's default", {}, FAILS, "40 match crc32"),
        ("sarama's", {"partitioner": "fnv1a_random"}, FAILS, "40 match FNV-1a"),
        ("java's", {"partitioner": "murmur2_random"}, WORKS, "40 of 40"),
    )
    for name, settings, verdict, hint in cases:
        with subtests.test(msg=name):
            topic = natives.topic_of(kafka_servers, 5)
            place(kafka_servers, topic, **settings)
            report = await report_on(f"kafka://{kafka_servers}", topic)
            assert verdicts(report)["partitioner"] == {verdict}
            assert hint in seen(report, "partitioner")


@pytest.mark.extended
async def test_few_keys_prove_nothing(kafka_servers: str) -> None:
    topic = natives.topic_of(kafka_servers, 2)
    natives.write(kafka_servers, topic, [(b"c-1", b"v", []), (b"c-2", b"v", [])])
    report = await report_on(f"kafka://{kafka_servers}", topic)
    assert verdicts(report)["partitioner"] == {UNKNOWN}


@pytest.mark.extended
async def test_what_a_record_holds_is_named(kafka_servers: str, subtests: pytest.Subtests) -> None:
    for row in ROWS:
        with subtests.test(msg=row.subject, headers=str(row.headers)[:80]):
            topic = natives.topic_of(kafka_servers, 1)
            natives.write(kafka_servers, topic, [(b"k", b"v", TEXT), row[:3]])
            report = await report_on(f"kafka://{kafka_servers}", topic, limits={"body": BODY_LIMIT})
            assert verdicts(report)[row.subject] == {row.verdict}
            assert report.fit is (row.verdict is not FAILS)


@pytest.mark.extended
async def test_records_of_a_bridge_are_not_taken_for_native_ones(kafka_servers: str, tmp_path: Path) -> None:
    async with bridged(tmp_path, backend(kafka_servers)) as (_, talk):
        await talk.produce(b"one", messagekey="k", priority=9)
        report = await report_on(f"kafka://{kafka_servers}", talk.destination)
    assert verdicts(report)["sample"] == {UNKNOWN}
    assert "1 of a bridge" in seen(report, "sample")
    assert report.fit


@pytest.mark.extended
async def test_members_that_a_bridge_can_join_are_told_from_others(
    kafka_servers: str, subtests: pytest.Subtests
) -> None:
    for assignor, verdict in ((CooperativeStickyAssignor, WORKS), (RangePartitionAssignor, DIFFERS)):
        with subtests.test(msg=assignor.__name__):
            topic, group = natives.topic_of(kafka_servers, 1), f"g-{uuid4().hex[:8]}"
            natives.write(kafka_servers, topic, [(b"k", b"v", TEXT)])
            with natives.member(kafka_servers, topic, group, partition_assignment_strategy=[assignor]) as consumer:
                natives.take(consumer, 1)
                consumer.commit()
                report = await report_on(f"kafka://{kafka_servers}", topic)
            [members, offsets] = findings_about(report, f"group {group}")
            assert (members.verdict, offsets.verdict) == (verdict, WORKS)
            assert "1 members" in members.seen


@pytest.mark.extended
async def test_offsets_that_are_missing_or_gone_are_named(kafka_servers: str) -> None:
    topic, group = natives.topic_of(kafka_servers, 2), f"g-{uuid4().hex[:8]}"
    natives.write(kafka_servers, topic, [(b"k", b"v", [])] * 3, partition=0)
    with closing(KafkaAdminClient(bootstrap_servers=kafka_servers)) as admin:
        admin.alter_group_offsets(group, {TopicPartition(topic, 0): OffsetAndMetadata(1, "", -1)})
        missing = findings_about(await report_on(f"kafka://{kafka_servers}", topic), f"group {group}")[1]
        admin.delete_records({TopicPartition(topic, 0): 2})
    gone = findings_about(await report_on(f"kafka://{kafka_servers}", topic), f"group {group}")[1]
    assert missing.verdict is gone.verdict is DIFFERS
    assert missing.advice.startswith("Partitions [1] have no offset")
    assert gone.advice.endswith("Kafka has deleted unread records of partitions [0].")


@pytest.mark.extended
async def test_a_group_that_http_cannot_name_is_in_the_way(kafka_servers: str) -> None:
    topic, group = natives.topic_of(kafka_servers, 1), f"billing team {uuid4().hex[:8]}"
    natives.write(kafka_servers, topic, [(b"k", b"v", TEXT)])
    read_some(kafka_servers, topic, group)
    report = await report_on(f"kafka://{kafka_servers}", topic)
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
        await report_on(f"kafka://{kafka_servers}", topic)
        with pytest.raises(DestinationUnknown):
            await report_on(f"kafka://{kafka_servers}", f"{topic}-unknown")
        assert state() == before


@pytest.mark.extended
async def test_what_the_user_may_not_see_is_said_to_be_unknown(tmp_path: Path) -> None:
    with own_kafka(tmp_path / "kafka", security=Security({"reader": PASSWORD})) as kafka:
        topic = natives.topic_of(kafka.bootstrap, 1)
        natives.write(kafka.bootstrap, topic, [(b"k", b"v", TEXT)])
        read_some(kafka.bootstrap, topic, "billing")
        url = f"kafka://reader:{PASSWORD}@{kafka.bootstrap_of('SASL_PLAINTEXT')}?mechanism=SCRAM-SHA-256"
        with pytest.raises(BridgeError):
            await report_on(url, topic)
        pattern = ResourcePattern(ResourceType.TOPIC, topic)
        with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap)) as admin:
            admin.create_acls([ACL("User:reader", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)])
        report = await report_on(url, topic)
    assert report.fit
    assert verdicts(report)["settings"] == {UNKNOWN}
    assert seen(report, "groups") == "none that the user may see"
    assert seen(report, "partitioner") == "one partition"


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
        await report_on("memory://", "orders")


@pytest.mark.extended
async def test_a_compacted_topic_refuses_what_the_check_says(kafka_servers: str, tmp_path: Path) -> None:
    topic = natives.topic_of(kafka_servers, 1, **{"cleanup.policy": "compact"})
    async with bridged(tmp_path, backend(kafka_servers)) as (_, talk):
        headers = {"x-oms-version": "1.0.0", "x-oms-h-destination": topic}
        keyless = await talk.http.post("/v1/messages", headers=headers, content=b"v")
        keyed = await talk.http.post("/v1/messages", headers=headers | {"x-oms-h-messagekey": "k"}, content=b"v")
    assert keyless.status_code // 100 == 4, keyless.text
    assert keyed.status_code == 200
