"""`format=cloudevents`: messages in the headers of both brokers, with the official SDK on the other side."""

from datetime import UTC, datetime
from typing import Any, Final

import pytest
from cloudevents.core.bindings import amqp, kafka, rabbitmq
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from pika import BasicProperties

from adapters.amqp.messages import Arrival
from adapters.amqp.properties import Properties
from adapters.cloud_events import EventHeaders
from adapters.kafka.mapping import Record, from_record, to_record
from adapters.property_names import prefixed_header
from adapters.rabbitmq.mapping import from_arrival, message_id, to_properties
from bridge.message import Message
from tests.unit.strategies import messages

NOW: Final = 1_700_000_000_000
ON_KAFKA: Final = EventHeaders("ce_", prefixed_header)
ON_RABBITMQ: Final = EventHeaders("ce-", prefixed_header)
EVENT: Final = CloudEvent(
    {
        "id": "7 \u00fc",
        "source": "/shop",
        "type": "created",
        "subject": "\u00e4 b",
        "partitionkey": "k",
        "datacontenttype": "application/json",
        "extension": "x",
    },
    {"total": 12.5},
)


def complete(message: Message) -> Message:
    """Return a message as the engine passes it on, as far as every backend keeps it."""
    parent = message.traceparent
    return message._replace(
        message_id=message.message_id or "id-1",
        born_timestamp=NOW,
        born_host=message.born_host or "127.0.0.1",
        store_timestamp=NOW,
        partition=0,
        delivery_count=None,
        compression=None,
        delay_time=None,
        trace_id=message.trace_id or (parent[3:35] if parent else None),
    )


def on_kafka(message: Message) -> Record:
    record = to_record(message, "orders", ON_KAFKA)
    return Record("orders", 0, 7, NOW, record.key, record.value, record.headers)


def on_rabbitmq(message: Message) -> Arrival:
    properties, body = to_properties(message, ON_RABBITMQ)
    return Arrival(1, False, "p0", Properties().decode(b"".join(properties.encode())), body)


@given(messages())
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    message = complete(message)
    assert from_record(on_kafka(message), message.destination) == message
    assert from_arrival(on_rabbitmq(message), message.destination, 0) == message


def test_the_sdk_reads_what_a_bridge_writes() -> None:
    properties = {"source": "/shop", "region": "eu", "id": "a property", "OrderId": "7", "subject": ""}
    message = complete(Message("orders", b"{}", properties, message_key="k", content_type="application/json"))
    record, arrival = on_kafka(message), on_rabbitmq(message)
    slots = arrival.properties
    found: list[Any] = [
        kafka.from_kafka_event(kafka.KafkaMessage(dict(record.headers), record.key, record.value or b"")),
        rabbitmq.from_rabbitmq_event(rabbitmq.RabbitMQMessage(slots.headers, slots.content_type, arrival.body)),
    ]
    for event in found:
        attributes = event.get_attributes()
        assert (attributes["id"], attributes["source"], attributes["type"]) == (
            *("id-1", "/shop"),
            "io.openmessaging.message",
        )
        assert (attributes["region"], attributes["partitionkey"], event.get_data()) == ("eu", "k", {})
        assert event.get_time().timestamp() == NOW / 1000
    assert dict(record.headers)["oms_p_OrderId"] == b"7"
    assert slots.headers["oms_p_id"] == "a property"


def test_a_bridge_reads_what_the_sdk_writes() -> None:
    of_kafka, of_rabbitmq = kafka.to_binary_event(EVENT), rabbitmq.to_binary_event(EVENT)
    record = Record("orders", 0, 7, NOW, b"key", of_kafka.value, tuple(of_kafka.headers.items()))
    slots = BasicProperties(headers=of_rabbitmq.headers, content_type=of_rabbitmq.content_type, message_id="slot")
    arrival = Arrival(1, False, "p0", slots, of_rabbitmq.body)
    for message, key in ((from_record(record, "orders"), "key"), (from_arrival(arrival, "orders", 0), "k")):
        assert (message.message_id, message.message_key, message.body) == ("7 \u00fc", key, b'{"total": 12.5}')
        assert message.content_type == "application/json"
        assert message.properties == {"source": "/shop", "type": "created", "subject": "\u00e4 b", "extension": "x"}
        born = EVENT.get_time()
        assert born is not None
        assert message.born_timestamp == int(born.timestamp() * 1000)
    assert message_id(arrival) == "7 \u00fc"


@pytest.mark.parametrize("prefix", ["cloudEvents:", "cloudEvents_"])
def test_the_names_of_the_amqp_binding_are_read_as_well(prefix: str) -> None:
    """As AMQP 1.0 clients send them, and Spring on AMQP 0-9-1. A timestamp of AMQP 0-9-1 has seconds."""
    sent, born = amqp.to_binary_event(EVENT), datetime(2026, 11, 23, tzinfo=UTC)
    sent.application_properties["cloudEvents_time"] = born
    headers = {prefix + name[len("cloudEvents_") :]: value for name, value in sent.application_properties.items()}
    slots = BasicProperties(headers=headers, content_type="application/json")
    arrival = Arrival(1, False, "p0", slots, sent.application_data)
    message = from_arrival(arrival, "orders", 0)
    assert (message.message_id, message.message_key, message.content_type) == ("7 \u00fc", "k", "application/json")
    assert message.properties == {"source": "/shop", "type": "created", "subject": "\u00e4 b", "extension": "x"}
    assert message.born_timestamp == born.timestamp() * 1000
    assert message_id(arrival) == "7 \u00fc"


def test_what_is_no_event_stays_as_it_is() -> None:
    for name in ("ce_id", "ce_specversion"):
        headers = {n: v for n, v in kafka.to_binary_event(EVENT).headers.items() if n != name}
        message = from_record(Record("orders", 0, 7, NOW, None, b"", tuple(headers.items())), "orders")
        assert message.message_id == "orders-0-7"
        assert {header for header in headers if header.startswith("ce_")} <= message.properties.keys()
