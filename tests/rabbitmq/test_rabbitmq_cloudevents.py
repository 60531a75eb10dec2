"""`format=cloudevents`: programs with the official SDK on RabbitMQ, and HTTP producers and consumers of the bridge."""

import asyncio
from pathlib import Path

from cloudevents.core.bindings import rabbitmq
from cloudevents.core.v1.event import CloudEvent
from pika import BasicProperties

from tests.rabbitmq import natives
from tests.rabbitmq.bridged import backend, bridged


async def test_the_sdk_and_the_bridge_read_each_other(tmp_path: Path, rabbitmq_url: str) -> None:
    url = backend(rabbitmq_url, format="cloudevents", partitions=1)
    async with bridged(tmp_path, url) as (_, talk):
        await talk.produce(b"creates the exchange")
        queue = await asyncio.to_thread(natives.queue_of, rabbitmq_url, "quorum", exchange=talk.destination)
        pairs = [(b"x-oms-p-region", b"eu"), (b"content-type", b"application/json")]
        await talk.produce(b'{"a": 1}', pairs, messagekey="k")
        (got,) = await asyncio.to_thread(natives.take, rabbitmq_url, queue, 1)
        slots = got.properties
        message = rabbitmq.RabbitMQMessage(slots.headers, slots.content_type, got.body)
        event = rabbitmq.from_rabbitmq_event(message)
        attributes = event.get_attributes()
        assert (attributes["region"], attributes["partitionkey"], event.get_data()) == ("eu", "k", {"a": 1})
        assert event.get_source() == f"urn:openmessaging-bridge:destination:{talk.destination}"
        sent = rabbitmq.to_binary_event(CloudEvent({"id": "7", "source": "/shop", "type": "created"}, b"native"))
        native = natives.Sent(sent.body, "p0", BasicProperties(headers=sent.headers))
        await asyncio.to_thread(natives.write, rabbitmq_url, talk.destination, [native])
        taken = {each.body: each.headers for each in await talk.take_all(3)}
        produced, read = taken[b'{"a": 1}'], taken[b"native"]
        assert {name for name in produced if name.startswith("x-oms-p-")} == {"x-oms-p-region"}
        assert (read["x-oms-h-messageid"], read["x-oms-p-source"], read["x-oms-p-type"]) == ("7", "/shop", "created")
