"""A program that uses kafka-python and its successor that uses `bridge.client`: each goes on where the other was."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer

from bridge.client import Client
from bridge.message import Message
from tests.kafka import natives
from tests.kafka.bridged import backend, bridged

Handle = Callable[[str, bytes], None]


def native_order(servers: str, topic: str, customer: str, body: bytes) -> None:
    producer = KafkaProducer(bootstrap_servers=servers)
    producer.send(topic, body, key=customer.encode(), headers=[("region", b"eu")]).get(10)
    producer.close()


def native_bill(servers: str, topic: str, group: str, handle: Handle) -> None:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=3000,
    )
    for record in consumer:
        handle(record.key.decode(), record.value)
        consumer.commit()
    consumer.close()


async def order(url: str, topic: str, customer: str, body: bytes) -> None:
    async with Client(url) as client:
        await client.produce(Message(topic, body, {"region": "eu"}, message_key=customer))


async def bill(url: str, topic: str, group: str, handle: Handle) -> None:
    async with Client(url) as client, client.push(topic, group, wait_ms=3000) as messages:
        async for delivery in messages:
            handle(delivery.message.message_key or "", delivery.message.body)


@pytest.mark.extended
async def test_they_continue_each_other(tmp_path: Path, kafka_servers: str) -> None:
    topic = natives.topic_of(kafka_servers, 3)
    group = f"b-{topic}"
    came: list[tuple[str, bytes]] = []

    def handle(customer: str, body: bytes) -> None:
        came.append((customer, body))

    async with bridged(tmp_path, backend(kafka_servers)) as (bridge, _):
        native_order(kafka_servers, topic, "c-1", b"native")
        await order(bridge.url, topic, "c-2", b"bridged")
        await asyncio.to_thread(native_bill, kafka_servers, topic, group, handle)
        assert sorted(came) == [("c-1", b"native"), ("c-2", b"bridged")]
        native_order(kafka_servers, topic, "c-1", b"native again")
        await bill(bridge.url, topic, group, handle)
        assert came[2:] == [("c-1", b"native again")]
        assert bridge.terminate() == 0
    native_order(kafka_servers, topic, "c-3", b"back")
    await asyncio.to_thread(native_bill, kafka_servers, topic, group, handle)
    assert came[3:] == [("c-3", b"back")]
    headers = [dict(record.headers).get("oms_p_region") for record in natives.everything(kafka_servers, topic)]
    assert headers.count(b"eu") == 1, "the bridge's property is a header"
