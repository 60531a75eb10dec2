"""`format=cloudevents`: programs with the official SDK on Kafka, and HTTP producers and consumers of the bridge."""

from pathlib import Path

from cloudevents.core.bindings import kafka
from cloudevents.core.v1.event import CloudEvent

from tests.kafka import natives
from tests.kafka.bridged import backend, bridged


async def test_the_sdk_and_the_bridge_read_each_other(tmp_path: Path, kafka_servers: str) -> None:
    url = backend(kafka_servers, format="cloudevents", partitions=1)
    async with bridged(tmp_path, url) as (_, talk):
        await talk.produce(
            b'{"a": 1}', [(b"x-oms-p-region", b"eu"), (b"content-type", b"application/json")], messagekey="k"
        )
        record = natives.read(kafka_servers, talk.destination, 1)[0]
        event = kafka.from_kafka_event(kafka.KafkaMessage(dict(record.headers), record.key, record.value or b""))
        attributes = event.get_attributes()
        assert (attributes["region"], attributes["partitionkey"], event.get_data()) == ("eu", "k", {"a": 1})
        assert event.get_source() == f"urn:openmessaging-bridge:destination:{talk.destination}"
        sent = kafka.to_binary_event(CloudEvent({"id": "7", "source": "/shop", "type": "created"}, b"native"))
        natives.write(kafka_servers, talk.destination, [(b"k", sent.value, tuple(sent.headers.items()))])
        first, second = await talk.take_all(2)
        assert (first.body, first.headers["x-oms-p-region"]) == (b'{"a": 1}', "eu")
        assert {name for name in first.headers if name.startswith("x-oms-p-")} == {"x-oms-p-region"}
        assert (second.body, second.headers["x-oms-h-messageid"]) == (b"native", "7")
        assert (second.headers["x-oms-p-source"], second.headers["x-oms-p-type"]) == ("/shop", "created")
