"""Dead letters and nacks with a delay, as a native consumer of Kafka sees them."""

import asyncio
from contextlib import closing
from pathlib import Path

from kafka import KafkaAdminClient

from tests.conformance.conversation import refused
from tests.kafka.bridged import backend, bridged
from tests.kafka.delays import wall
from tests.kafka.natives import everything, read, topic_of


async def test_a_dead_letter_tells_its_reason(kafka_servers: str, tmp_path: Path) -> None:
    settings = {"OMS_DELIVERY__MAX_DELIVERIES": "2"}
    async with bridged(tmp_path, backend(kafka_servers), **settings) as (_, talk):
        await talk.produce(b"poison", (("x-oms-p-colour", "blue"),), messagekey="key", priority=7)
        for _ in range(2):
            await talk.nack((await talk.take()).receipt)
        [record] = await asyncio.to_thread(read, kafka_servers, f"{talk.destination}.dlq", 1)
        headers = {name: value.decode() for name, value in record.headers}
        assert (record.key, record.value) == (b"key", b"poison")
        assert {name: headers[name] for name in headers if "dead-letter" in name} == {
            "oms_p_oms-dead-letter-reason": "max-deliveries",
            "oms_p_oms-dead-letter-source": talk.destination,
            "oms_p_oms-dead-letter-group": talk.group,
            "oms_p_oms-dead-letter-count": "2",
        }
        assert (headers["oms_p_colour"], headers["oms_h_priority"]) == ("blue", "7")
        await talk.nothing()


async def test_a_dead_letter_of_a_delayed_message_is_not_delayed_again(kafka_servers: str, tmp_path: Path) -> None:
    url = backend(kafka_servers, hold=200)
    async with bridged(tmp_path, url, OMS_DELIVERY__MAX_DELIVERIES="1") as (_, talk):
        await talk.produce(b"poison", delaytime=1_000)
        message = await talk.take()
        await talk.nack(message.receipt)
        [record] = await asyncio.to_thread(read, kafka_servers, f"{talk.destination}.dlq", 1)
        headers = dict(record.headers)
        assert headers["oms_h_messageId"].decode() == message.headers["x-oms-h-messageid"]
        assert "oms_h_delayTime" not in headers
        assert not [name for name in headers if name.startswith("oms_d_")]


async def test_a_nack_with_a_delay_brings_it_back_then(kafka_servers: str, tmp_path: Path) -> None:
    async with bridged(tmp_path, backend(kafka_servers, hold=200)) as (_, talk):
        await talk.produce(b"body")
        message = await talk.take()
        before = wall()
        await talk.nack(message.receipt, delaymills=1_500)
        await talk.nothing()
        again = await talk.take()
        assert wall() >= before + 1_500
        assert (again.body, again.count) == (b"body", 2)
        await talk.ack(again.receipt)
        assert len(everything(kafka_servers, talk.destination)) == 1


async def test_a_group_is_refused_if_its_dead_letters_could_not_be_stored(kafka_servers: str, tmp_path: Path) -> None:
    """Neither may the bridge create their topic, nor is it there."""
    url = backend(kafka_servers, create="false")
    async with bridged(tmp_path, url, OMS_DELIVERY__MAX_DELIVERIES="1") as (_, talk):
        talk.destination = topic_of(kafka_servers, 1)
        missing = f"{talk.destination}.dlq"
        await talk.produce(b"poison", messagekey="k")
        assert f"its groups need {missing}" in refused(await talk.get(), 404, "destination-unknown")
        with closing(KafkaAdminClient(bootstrap_servers=kafka_servers)) as admin:
            admin.create_topics({missing: {"num_partitions": 1}}, wait_for_metadata=True)
        await talk.nack((await talk.take()).receipt)
        [record] = await asyncio.to_thread(read, kafka_servers, missing, 1)
        assert record.value == b"poison"
