"""Message to properties and body and back."""

import gzip
from typing import Any, Final

import pytest
from hypothesis import example, given
from pika import BasicProperties

from adapters.amqp.messages import Arrival
from adapters.amqp.properties import Properties
from adapters.field_headers import RECORD_DELAY_MAX
from adapters.gzip_stored_plain import INFLATED_MAX
from adapters.native_headers import HEADERS_MAX
from adapters.rabbitmq.headers import PLAIN_NAMES
from adapters.rabbitmq.mapping import EXPIRATION_MAX, from_arrival, is_marker, message_id, to_properties
from bridge.message import FIELDS, LONG_MAX, Message
from bridge.wire.header_text import NAME_BYTES_MAX, is_traceparent
from tests.unit.strategies import broker_messages, messages

NOW: Final = 1_700_000_000_000
TRACE: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT: Final = f"00-{TRACE}-00f067aa0ba902b7-01"


def complete(message: Message) -> Message:
    """As the engine hands it on: with a partition, times, and no count of deliveries."""
    return message._replace(
        message_id=message.message_id or "id-1",
        born_timestamp=NOW if message.born_timestamp is None else message.born_timestamp,
        born_host=message.born_host or "127.0.0.1",
        store_timestamp=NOW,
        partition=message.partition or 0,
        delivery_count=None,
        compression=None,
    )


def delivered(properties: BasicProperties, body: bytes = b"", key: str = "p0") -> Arrival:
    """Over the wire, as the bridge reads it; pika's own writer and reader would do as well."""
    return Arrival(1, False, key, Properties().decode(b"".join(properties.encode())), body)


def back(message: Message) -> Message:
    return from_arrival(delivered(*to_properties(message)), message.destination, message.partition or 0)


def headers_of(message: Message) -> dict[str, Any]:
    return dict(to_properties(message)[0].headers)


@given(messages())
@example(Message("orders", correlation_id="c" * 256, message_id="ü" * 128, content_type="text/" + "x" * 255))
@example(Message("orders", correlation_id="\0", message_id="a\0b"))
@example(Message("orders", properties={"ü" * 124: "1", "x" * NAME_BYTES_MAX: "v" * 70_000}))
@example(Message("orders", born_timestamp=LONG_MAX, expire_time=LONG_MAX, priority=2**31 - 1))
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    message = complete(message)
    if (message.born_timestamp or 0) + (message.delay_time or 0) > NOW + RECORD_DELAY_MAX:
        message = message._replace(delay_time=None)
    if message.traceparent is not None and message.trace_id is None:
        message = message._replace(trace_id=message.traceparent[3:35])
    found = back(message)
    assert found == message
    numbers = [value for value in found if isinstance(value, int)]
    assert all(type(number) is int for number in numbers), "pika's own kinds of numbers print as 5L"


@given(messages())
def test_a_message_with_plain_properties_comes_back_as_it_was(message: Message) -> None:
    message = complete(message)._replace(delay_time=None)
    if message.traceparent is not None and message.trace_id is None:
        message = message._replace(trace_id=message.traceparent[3:35])
    assert plain_and_back(message) == message


def plain_and_back(message: Message) -> Message:
    arrival = delivered(*to_properties(message, PLAIN_NAMES.header))
    return from_arrival(arrival, message.destination, message.partition or 0)


def test_plain_properties_are_headers_of_their_own_names() -> None:
    reserved = {"oms_h_priority": "high", "traceparent": "of a dead letter", "x-death": "a dead letter's", "CC": "x"}
    message = complete(Message("orders", b"", {"region": "eu", "OrderId": "4711", **reserved}, priority=3))
    headers = to_properties(message, PLAIN_NAMES.header)[0].headers
    assert (headers["region"], headers["OrderId"], headers["oms_h_priority"]) == ("eu", "4711", 3)
    assert {name: headers[f"oms_p_{name}"] for name in reserved} == reserved
    assert not {"oms_p_region", "traceparent", "x-death", "CC"} & headers.keys()
    assert plain_and_back(message).properties == message.properties
    assert [name for name in message.properties if PLAIN_NAMES.refusal(name)] == list(reserved)


def test_plain_properties_of_a_bridge_are_kept_whole() -> None:
    message = complete(Message("orders", b"", {f"p{n}": "v" * 100 for n in range(HEADERS_MAX // 100)}))
    assert plain_and_back(message).properties == message.properties


@given(messages())
def test_a_message_comes_back_through_pika_s_reader_too(message: Message) -> None:
    """Every value is of a type that native consumers have."""
    message = complete(message)._replace(delay_time=None, traceparent=None, tracestate=None)
    properties, body = to_properties(message)
    read = BasicProperties().decode(b"".join(properties.encode()))
    assert from_arrival(Arrival(1, False, "p0", read, body), message.destination, message.partition or 0) == message


@given(broker_messages())
@example(Message("orders", properties={"\ud800": "\udfff"}, message_key="\ud800", message_id="\ud800"))
@example(Message("orders", properties={"n" * 300: "v"}, priority=300, correlation_id="\ud800" * 300))
def test_whatever_is_written_can_be_sent_and_read(message: Message) -> None:
    """Also what no client can send: the bridge dead-letters native messages."""
    message = message._replace(store_timestamp=NOW, delivery_count=None)
    properties, body = to_properties(message)
    BasicProperties().decode(b"".join(properties.encode()))
    assert properties.priority in range(10)
    from_arrival(delivered(properties, body), "orders", 0)


def test_what_lies_in_rabbitmq() -> None:
    message = Message(
        "orders",
        b"body",
        {"Tenant": "Käse"},
        message_id="id-1",
        born_timestamp=NOW - 1,
        born_host="10.0.0.1",
        partition=3,
        store_timestamp=NOW,
        message_key="Kündin",
        correlation_id="",
        priority=7,
        expire_time=NOW + 60_000,
        delivery_count=4,
        content_type="text/plain",
        traceparent=PARENT,
        tracestate="a=b",
    )
    properties, body = to_properties(message)
    assert body == b"body"
    assert properties.__dict__ == {
        **BasicProperties().__dict__,
        "content_type": "text/plain",
        "delivery_mode": 2,
        "priority": 6,
        "correlation_id": "",
        "expiration": "60000",
        "message_id": "id-1",
        "timestamp": NOW // 1000 - 1,
        "headers": {
            "oms_h_bornHost": "10.0.0.1",
            "oms_h_bornTimestamp": NOW - 1,
            "oms_h_expireTime": NOW + 60_000,
            "oms_h_messageKey": "Kündin",
            "oms_h_priority": 7,
            "oms_h_storeTimestamp": NOW,
            "oms_p_Tenant": "Käse",
            "traceparent": PARENT,
            "tracestate": "a=b",
        },
    }


def test_each_field_has_its_place(subtests: pytest.Subtests) -> None:
    """A field added to the table travels automatically, or is one of those that RabbitMQ has another place for."""
    for field in FIELDS:
        with subtests.test(field=field):
            message = complete(Message("orders"))._replace(**{field.attribute: "gzip" if field.maximum is None else 1})  # type: ignore[arg-type]
            elsewhere = {"destination", "partition", "compression", "deliveryCount", "messageId", "correlationId"}
            assert (f"oms_h_{field.name}" in headers_of(message)) == (field.name not in elsewhere)


def test_a_message_without_a_time_is_refused() -> None:
    with pytest.raises(ValueError, match="storeTimestamp"):
        to_properties(Message("orders", partition=0))


def test_priorities(subtests: pytest.Subtests) -> None:
    cases: list[tuple[int | None, int]] = [
        (None, 4),
        (1, 0),
        (5, 4),
        (10, 9),
        (0, 4),
        (11, 4),
        (300, 4),
        (2**31 - 1, 4),
    ]
    for priority, native in cases:
        with subtests.test(priority=priority, native=native):
            message = complete(Message("orders", priority=priority))
            assert to_properties(message)[0].priority == native
            assert back(message).priority == priority


def test_what_the_broker_is_to_write_down(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, int], int]] = [
        ({}, 2),
        ({"durability": 1}, 2),
        ({"durability": 0}, 1),
        ({"qos": 0}, 2),
        ({"qos": 1}, 1),
        ({"qos": 2}, 2),
    ]
    for fields, mode in cases:
        with subtests.test(fields=fields, mode=mode):
            assert to_properties(complete(Message("orders", **fields)))[0].delivery_mode == mode  # type: ignore[arg-type]


def test_how_long_native_consumers_may_have_it(subtests: pytest.Subtests) -> None:
    """At or before bornTimestamp means never; on its way through delays the broker would drop it, or let it out."""
    cases: list[tuple[int | None, int | None, str | None]] = [
        (None, None, None),
        (NOW + 1, None, "1"),
        (NOW + 1, 0, "1"),
        (NOW + 5000, 1000, None),
        (NOW, None, None),
        (NOW - 1, None, None),
        (NOW - 10, None, None),
        (0, None, None),
        (NOW + EXPIRATION_MAX, None, str(EXPIRATION_MAX)),
        (NOW + EXPIRATION_MAX + 1, None, None),
        (LONG_MAX, None, None),
    ]
    for expire_time, delay, expiration in cases:
        with subtests.test(expire_time=expire_time, delay=delay, expiration=expiration):
            message = complete(Message("orders", expire_time=expire_time, delay_time=delay, born_timestamp=NOW - 9))
            assert to_properties(message)[0].expiration == expiration
            assert back(message) == message


@pytest.mark.parametrize("text", ["x" * 256, "ü" * 128, "a\0b"])
def test_what_amqp_has_no_room_for_is_a_header(text: str) -> None:
    message = complete(Message("orders", message_id=text, correlation_id=text))
    properties, _ = to_properties(message)
    assert (properties.message_id, properties.correlation_id) == (None, None)
    assert (properties.headers["oms_h_messageId"], properties.headers["oms_h_correlationId"]) == (text, text)
    assert back(message) == message
    assert message_id(delivered(properties)) == text


@pytest.mark.parametrize("text", ["x" * 255, "ü" * 127, "x"])
def test_what_fits_is_a_property(text: str) -> None:
    properties, _ = to_properties(complete(Message("orders", message_id=text, correlation_id=text)))
    assert (properties.message_id, properties.correlation_id) == (text, text)
    assert not {"oms_h_messageId", "oms_h_correlationId"} & properties.headers.keys()


def test_the_place_says_destination_and_partition() -> None:
    forged = {"oms_h_destination": "elsewhere", "oms_h_partition": 5, "oms_h_deliveryCount": 9}
    message = from_arrival(delivered(Properties(headers=forged, message_id="m")), "orders", 3)
    assert (message.destination, message.partition, message.delivery_count) == ("orders", 3, None)
    assert message.properties == {name: str(value) for name, value in forged.items()} | {"amqp_routing_key": "p0"}


def test_marks_of_the_bridge() -> None:
    assert is_marker(Properties(headers={"oms_d_marker": "a"}))
    assert not is_marker(Properties(headers={"marker": "a"}))
    assert not is_marker(Properties())


# Traces


def test_a_trace_id_becomes_a_traceparent_for_native_consumers() -> None:
    message = complete(Message("orders", trace_id=TRACE))
    parent = headers_of(message)["traceparent"]
    assert parent[:36] == f"00-{TRACE}-"
    assert is_traceparent(parent.encode())
    assert back(message) == message


def test_another_trace_id_does_not(subtests: pytest.Subtests) -> None:
    cases: list[str] = ["", "order-17", TRACE.upper(), "0" * 32]
    for trace_id in cases:
        with subtests.test(trace_id=trace_id):
            message = complete(Message("orders", trace_id=trace_id))
            assert "traceparent" not in headers_of(message)
            assert back(message) == message


def test_a_producer_s_own_traceparent_is_kept_beside_its_trace_id() -> None:
    message = complete(Message("orders", trace_id=TRACE, traceparent=PARENT, tracestate="a=b"))
    assert headers_of(message)["traceparent"] == PARENT
    assert back(message) == message


# Compression


def test_a_gzipped_body_stays_gzipped_and_says_so() -> None:
    body = gzip.compress(b"text " * 99)
    message = complete(Message("orders", body))._replace(compression="gzip")
    properties, written = to_properties(message)
    assert (properties.content_encoding, written) == ("gzip", body)
    assert back(message) == message


def test_a_body_that_inflates_far_comes_back() -> None:
    message = complete(Message("orders", gzip.compress(bytes(INFLATED_MAX + 1))))._replace(compression="gzip")
    assert back(message) == message


PACKED: Final = gzip.compress(b"text", mtime=0)


def test_gzip_that_is_none_is_a_property(subtests: pytest.Subtests) -> None:
    cases: list[bytes] = [b"text", b"", PACKED[:-1], PACKED + b"rest"]
    for body in cases:
        with subtests.test(body=body):
            slot = from_arrival(delivered(Properties(content_encoding="gzip"), body), "orders", 0)
            assert (slot.compression, slot.properties, slot.body) == (None, {"amqp_content_encoding": "gzip"}, body)
            header = from_arrival(delivered(Properties(headers={"oms_h_compression": "gzip"}), body), "orders", 0)
            assert (header.compression, header.properties, header.body) == (None, {"oms_h_compression": "gzip"}, body)


@pytest.mark.parametrize(
    "claims", [{"content_encoding": "gzip"}, {"headers": {"oms_h_compression": "gzip"}, "content_encoding": "gzip"}]
)
def test_gzip_of_a_native_producer(claims: dict[str, Any]) -> None:
    message = from_arrival(delivered(Properties(**claims), PACKED), "orders", 0)
    assert (message.compression, message.properties) == ("gzip", {})


def test_another_coding_is_a_property(subtests: pytest.Subtests) -> None:
    cases: list[str | bytes] = ["utf-8", "zstd", "", b"\xff"]
    for coding in cases:
        with subtests.test(coding=coding):
            message = from_arrival(delivered(Properties(content_encoding=coding), PACKED), "orders", 0)
            assert message.compression is None
            assert message.properties == {
                "amqp_content_encoding": coding if isinstance(coding, str) else "data:;base64,/w=="
            }
