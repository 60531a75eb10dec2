"""The bridge's own topics were made by an operator or a tool, with other settings: it says what to set, and waits."""

from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from adapters.kafka.adapter import KafkaAdapter
from adapters.kafka.names import Own
from adapters.kafka.options import Options
from adapters.kafka.own_topics import COMPACTED, DELAYED, TRANSACTIONS, configs_of
from bridge.errors import BackendUnavailable, Refused
from bridge.message import Message
from tests.brokers.provide import own_kafka
from tests.kafka.delays import wall

WEEK = 7 * 24 * 3_600_000
WRONG = {
    "delay.8s": (DELAYED, {"retention.ms": str(WEEK)}),
    "delay.2097152s": (DELAYED, {"retention.ms": "3600000"}),
    "delay.due": (DELAYED, {"retention.bytes": "1000000"}),
    "delay.1s": (DELAYED, {"cleanup.policy": "compact"}),
    "delay.64s": (DELAYED, {"cleanup.policy": "[compact,delete]", "retention.ms": "60000"}),
    "transactions": (TRANSACTIONS, {"retention.ms": str(WEEK - 1)}),
    "notes": (COMPACTED, {"cleanup.policy": "delete"}),
    "purges": (COMPACTED, {"cleanup.policy": "[compact,delete]"}),
}


@pytest.fixture
def admin(kafka_servers: str) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=kafka_servers)) as client:
        yield client


@pytest.fixture
async def adapter(kafka_servers: str) -> AsyncIterator[KafkaAdapter]:
    made = KafkaAdapter(_options(kafka_servers))
    try:
        yield made
    finally:
        await made.close()


def _options(servers: str) -> Options:
    return Options(tuple(servers.split(",")), prefix=f"own{uuid4().hex[:8]}.", hold=0)


def _make(admin: KafkaAdminClient, topic: str, configs: dict[str, str], partitions: int = 1) -> None:
    admin.create_topics({topic: {"num_partitions": partitions, "configs": configs}}, wait_for_metadata=True)


@pytest.mark.parametrize("topic", WRONG)
async def test_a_start_says_what_to_set_and_waits_for_it(
    topic: str, adapter: KafkaAdapter, admin: KafkaAdminClient
) -> None:
    name = adapter._options.prefix + topic
    wanted, wrong = WRONG[topic]
    wrong = {key: value.strip("[]") for key, value in wrong.items()}
    _make(admin, name, {**wanted, **wrong})
    with pytest.raises(BackendUnavailable) as refused:
        await adapter.start()
    said = str(refused.value.detail)
    assert name in said
    for key, value in wrong.items():
        assert f"{key}={wanted[key]} (it is {value})" in said
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {key: wanted[key] for key in wrong})])
    await adapter.start()


async def test_a_topic_with_the_brokers_defaults_gets_no_delayed_message(
    adapter: KafkaAdapter, admin: KafkaAdminClient
) -> None:
    """It is made after the start, before the first message is delayed."""
    await adapter.start()
    _make(admin, f"{adapter._options.prefix}delay.512s", {}, 4)
    now = wall()
    message = Message(
        "orders", b"", message_id="1", born_timestamp=now, store_timestamp=now, delay_time=9 * WEEK, partition=0
    )
    with pytest.raises(Refused, match=r"delay\.512s: set retention\.ms=-1 \(it is 604800000\)"):
        await adapter.publish(message)


async def test_topics_that_keep_more_are_accepted(adapter: KafkaAdapter, admin: KafkaAdminClient) -> None:
    own = Own(adapter._options.prefix)
    _make(admin, own.transactions, {**TRANSACTIONS, "retention.ms": "-1"})
    _make(admin, own.notes, {**COMPACTED, "retention.ms": "60000"})
    await adapter.start()


async def test_the_topics_that_the_bridge_makes_are_accepted(kafka_servers: str, admin: KafkaAdminClient) -> None:
    options = _options(kafka_servers)
    for topic, configs in configs_of(options.prefix).items():
        _make(admin, topic, dict(configs))
    adapter = KafkaAdapter(options)
    try:
        await adapter.start()
    finally:
        await adapter.close()


@pytest.mark.extended
async def test_fewer_replicas_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with own_kafka(tmp_path / "kafka", nodes=2) as kafka:
        options = _options(kafka.bootstrap)._replace(replication=2)
        with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap)) as admin:
            topic = {"num_partitions": 1, "replication_factor": 1, "configs": dict(COMPACTED)}
            admin.create_topics({f"{options.prefix}notes": topic}, wait_for_metadata=True)
        adapter = KafkaAdapter(options)
        try:
            await adapter.start()
        finally:
            await adapter.close()
    assert f"{options.prefix}notes has 1, not 2" in caplog.text
