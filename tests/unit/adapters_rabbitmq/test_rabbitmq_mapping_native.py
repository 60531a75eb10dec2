"""What native producers write becomes a message that every client can take, and the same one each time."""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pika import BasicProperties

from adapters.amqp.messages import Arrival
from adapters.amqp.properties import Properties
from adapters.field_headers import RECORD_DELAY_MAX
from adapters.rabbitmq.headers import ACQUIRED_COUNT, BROKERS, DELIVERY_COUNT
from adapters.rabbitmq.mapping import (
    ATTEMPTS_MAX,
    broker_attempts,
    copied,
    from_arrival,
    message_id,
    to_properties,
)
from bridge.message import FIELDS, LONG_MAX, Message
from bridge.wire import headers as wire
from tests.unit.strategies import messages

NOW: Final = 1_700_000_000_000


def arrived(body: bytes = b"body", key: str = "p3", redelivered: bool = False, **slots: Any) -> Arrival:  # noqa: ANN401
    return Arrival(1, redelivered, key, Properties(**slots), body)


def over_the_wire(properties: BasicProperties) -> Properties:
    return Properties().decode(b"".join(properties.encode()))


def read(*, key: str = "p3", **slots: Any) -> Message:  # noqa: ANN401
    return from_arrival(arrived(key=key, **slots), "orders", 3)


def properties_of(headers: Mapping[str, object]) -> Mapping[str, str]:
    return read(headers=headers).properties


def test_a_message_without_anything() -> None:
    message = read()
    assert message == Message("orders", b"body", message_id=message.message_id, partition=3)
    assert message.message_id is not None
    assert message.message_id.startswith("amqp-")


def test_native_slots_are_fields() -> None:
    message = read(
        message_id="m", correlation_id="c", content_type="text/plain", priority=8, timestamp=NOW // 1000, expiration="9"
    )
    assert message == Message(
        "orders",
        b"body",
        message_id="m",
        correlation_id="c",
        content_type="text/plain",
        priority=9,
        born_timestamp=NOW,
        store_timestamp=NOW,
        partition=3,
    )


def test_slots_without_a_field_are_properties() -> None:
    message = read(reply_to="rpc", type="order.created", app_id="shop", user_id="guest", cluster_id="c", priority=10)
    assert message.priority is None
    assert message.properties == {
        "amqp_reply_to": "rpc",
        "amqp_type": "order.created",
        "amqp_app_id": "shop",
        "amqp_user_id": "guest",
        "amqp_cluster_id": "c",
        "amqp_priority": "10",
    }


def test_the_routing_key_is_a_property_where_it_says_something(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str | None]] = [("p3", None), ("", None), ("p4", "p4"), ("orders.eu", "orders.eu")]
    for key, shown in cases:
        with subtests.test(key=key, shown=shown):
            assert read(key=key).properties.get("amqp_routing_key") == shown


def test_of_our_own_it_is_none() -> None:
    """After a delay digits stand before it."""
    properties, _ = to_properties(Message("orders", message_id="m", store_timestamp=NOW))
    message = from_arrival(Arrival(1, False, "0.0.0.0.0.0.0.0.5.orders.p3", properties, b""), "orders", 3)
    assert message.properties == {}
    assert message.priority is None


def test_native_priorities(subtests: pytest.Subtests) -> None:
    for priority in range(10):
        with subtests.test(priority=priority):
            assert read(priority=priority).priority == priority + 1
            assert read(priority=priority, headers={"oms_h_priority": 3}).priority == 3


def test_times_in_seconds_and_what_was_meant_in_milliseconds(subtests: pytest.Subtests) -> None:
    cases: list[tuple[int, int | None]] = [
        (0, 0),
        (1, 1000),
        (NOW, NOW),
        (10**11 - 1, (10**11 - 1) * 1000),
        (2**64 - 1, None),
    ]
    for timestamp, milliseconds in cases:
        with subtests.test(timestamp=timestamp, milliseconds=milliseconds):
            message = read(timestamp=timestamp)
            assert (message.born_timestamp, message.store_timestamp) == (milliseconds, milliseconds)


def test_headers_of_ours_win_over_native_slots() -> None:
    headers = {"oms_h_messageId": "ours", "oms_h_correlationId": "ours", "oms_h_bornTimestamp": 5}
    message = read(headers=headers, message_id="native", correlation_id="native", timestamp=1)
    assert (message.message_id, message.correlation_id, message.born_timestamp) == ("ours", "ours", 5)


def test_native_headers_become_properties() -> None:
    assert properties_of(
        {
            "kind": "order",
            "Größe": "Käse",
            "n": -5,
            "yes": True,
            "half": 1.5,
            "raw": b"\xff\xfe",
            "text in bytes": b"abc",
            "nothing": None,
            "price": Decimal("12.50"),
            "at": datetime(2026, 11, 21, 9, 30, tzinfo=UTC),
            "list": ["a", 1, None, True, b"\xff", Decimal("0.1"), datetime(2026, 11, 21, tzinfo=UTC)],
            "table": {"a": {"b": ["ü"]}},
        }
    ) == {
        "kind": "order",
        "Größe": "Käse",
        "n": "-5",
        "yes": "true",
        "half": "1.5",
        "raw": "data:;base64,//4=",
        "text in bytes": "abc",
        "nothing": "",
        "price": "12.50",
        "at": "2026-11-21T09:30:00Z",
        "list": '["a",1,null,true,"data:;base64,/w==","0.1","2026-11-21T00:00:00Z"]',
        "table": '{"a":{"b":["ü"]}}',
    }


def test_a_property_goes_before_a_native_header_of_its_name() -> None:
    assert properties_of({"a": "theirs", "oms_p_a": "ours"}) == {"a": "ours", "a#1": "theirs"}
    assert properties_of({"oms_p_a": 5}) == {"a": "5"}
    assert properties_of({"oms_p_": "x", "": "y"}) == {"oms_p_": "x", "_": "y"}


def test_what_the_broker_and_the_bridge_note_is_never_seen() -> None:
    noted: dict[str, object] = dict.fromkeys(BROKERS, "x")
    death = [{"count": 1, "queue": "q", "reason": "expired", "time": datetime(2026, 1, 1, tzinfo=UTC)}]
    assert properties_of(noted | {"x-death": death, "oms_d_due": 1, "oms_d_marker": "x", "oms_d_": 1}) == {}
    assert properties_of({"x-tenant": "a", "x-deathly": "b"}) == {"x-tenant": "a", "x-deathly": "b"}


def test_a_field_that_cannot_be_is_a_property(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, object, str]] = [
        ("priority", "high", "high"),
        ("priority", -1, "-1"),
        ("priority", 2**31, str(2**31)),
        ("priority", True, "true"),
        ("priority", 5.0, "5.0"),
        ("priority", None, ""),
        ("priority", " 1", " 1"),
        ("priority", "\u0661", "\u0661"),
        ("qos", 3, "3"),
        ("bornTimestamp", datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00Z"),
        ("delayTime", "9" * 20, "9" * 20),
        ("delayTime", LONG_MAX, str(LONG_MAX)),
        ("delayTime", RECORD_DELAY_MAX + 1, str(RECORD_DELAY_MAX + 1)),
        ("correlationId", b"\xff", "data:;base64,/w=="),
        ("correlationId", 5, "5"),
        ("messageId", ["a"], '["a"]'),
        ("contentType", "a\r\nb", "a\r\nb"),
        ("unknown", 1, "1"),
        ("", 1, "1"),
    ]
    for name, value, shown in cases:
        with subtests.test(name=name, value=value, shown=shown):
            slots: dict[str, Any] = {"message_id": "m", "timestamp": 0}
            found = "content-type" if name == "contentType" else f"oms_h_{name}"
            assert read(headers={f"oms_h_{name}": value}, **slots) == read(**slots)._replace(properties={found: shown})


def test_numbers_may_come_in_digits() -> None:
    message = read(headers={"oms_h_priority": "9", "oms_h_expireTime": "5", "oms_h_messageKey": "k"})
    assert (message.priority, message.expire_time, message.message_key) == (9, 5, "k")


@pytest.mark.parametrize("slot", ["message_id", "correlation_id"])
def test_a_slot_that_is_no_text_is_a_data_url(slot: str) -> None:
    """As from clients that put 16 bytes of a UUID there."""
    chosen: dict[str, Any] = {slot: b"\xff"}
    assert getattr(read(**chosen), slot) == "data:;base64,/w=="


def test_a_content_type_that_http_cannot_carry_is_a_property(subtests: pytest.Subtests) -> None:
    cases: list[str | bytes] = [" a", "a\r\nb", "tüxt", "", b"\xff"]
    for kind in cases:
        with subtests.test(kind=kind):
            message = read(content_type=kind)
            assert message.content_type is None
            assert message.properties == {"content-type": kind if isinstance(kind, str) else "data:;base64,/w=="}


# The same each time


def test_an_id_is_the_same_wherever_it_is_read_and_different_for_different_messages() -> None:
    headers: dict[str, object] = {"a": 1, "b": b"\xff"}
    one = arrived(headers=headers, correlation_id="c")
    noted = arrived(key="p1", redelivered=True, headers=headers | {DELIVERY_COUNT: 3, "oms_d_x": 1}, correlation_id="c")
    in_a_log = arrived(headers={"b": b"\xff", "a": 1}, correlation_id="c")
    live = arrived(headers=headers | {"list": [1], "table": {}}, correlation_id="c")
    assert message_id(one) == message_id(noted) == message_id(in_a_log) == message_id(live)
    others = [
        arrived(b"other", headers=headers, correlation_id="c"),
        arrived(headers=headers),
        arrived(headers=headers, correlation_id="c", timestamp=5),
        arrived(headers={"a": 2, "b": b"\xff"}, correlation_id="c"),
        arrived(headers={"a": 1, "c": b"\xff"}, correlation_id="c"),
        arrived(headers={"a": 1}, correlation_id="c"),
        arrived(headers={"a1": "", "b": b"\xff"}, correlation_id="c"),
    ]
    assert len({message_id(each) for each in (one, *others)}) == len(others) + 1


names: Final = st.one_of(
    st.text(max_size=20),
    st.sampled_from([f"oms_h_{field.name}" for field in FIELDS]),
    st.sampled_from(["traceparent", "tracestate", "oms_p_a", "oms_p_", "oms_d_x", "a", "CC", *sorted(BROKERS)]),
    st.text(max_size=250).filter(lambda name: len(name.encode()) <= 255),
)
values: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), LONG_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.binary(max_size=20)
    | st.text(max_size=20)
    | st.integers(0, 2**38 // 2).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
short: Final = st.text(max_size=40) | st.binary(max_size=40)
slots: Final = st.fixed_dictionaries(
    {"headers": st.none() | st.dictionaries(names, values, max_size=8)},
    optional={
        "priority": st.integers(0, 255),
        "timestamp": st.integers(0, 2**64 - 1),
        **dict.fromkeys(
            (
                *("content_type", "content_encoding", "correlation_id", "reply_to", "message_id", "type", "user_id"),
                "app_id",
            ),
            short,
        ),
    },
)


@given(slots, st.binary(max_size=40), st.text(max_size=40), st.booleans())
def test_whatever_a_native_producer_writes_can_be_delivered_and_buried(
    chosen: dict[str, Any], body: bytes, key: str, redelivered: bool
) -> None:
    arrival = Arrival(1, redelivered, key, over_the_wire(Properties(**chosen)), body)
    message = from_arrival(arrival, "orders", 3)
    assert message == from_arrival(arrival, "orders", 3)
    assert message.message_id == message_id(arrival)
    assert broker_attempts(arrival) >= int(redelivered)
    parsed = wire.parse(wire.encode(message)).message(message.body)
    assert parsed == message._replace(
        content_type=None if message.content_type == wire.OCTETS.decode() else message.content_type
    )
    buried, written = to_properties(message._replace(store_timestamp=message.store_timestamp or NOW))
    again = from_arrival(Arrival(2, False, "p3", over_the_wire(buried), written), "orders", 3)
    assert again.properties.keys() == message.properties.keys()
    assert (again.message_id, again.body) == (message.message_id, message.body)


# Copies


@given(slots, st.binary(max_size=40), st.text(max_size=40))
@example({"headers": {"oms_h_priority": None}, "priority": 0}, b"", "")
@example({"headers": {"oms_h_priority": "high"}, "priority": 3}, b"", "")
def test_a_copy_in_another_queue_is_read_as_the_message_is(chosen: dict[str, Any], body: bytes, key: str) -> None:
    arrival = Arrival(1, False, key, over_the_wire(Properties(**chosen)), body)
    copy = over_the_wire(copied(arrival))
    assert copy.user_id is None, "the broker compares it with who publishes"
    assert copy.priority is None, "RabbitMQ 4 would deliver it before or after the mark that ends the history"
    assert not {"CC", "BCC", *BROKERS} & copy.headers.keys()
    there = Arrival(9, False, "orders.g.h3", copy, body)
    one, two = from_arrival(arrival, "orders", 3), from_arrival(there, "orders", 3)
    assert two.properties.keys() == one.properties.keys()
    assert two._replace(properties={}) == one._replace(properties={})


def test_a_copy_goes_where_it_is_sent_and_nowhere_else() -> None:
    """The broker takes `CC` for more routing keys from every publisher, and refuses another user's name."""
    headers = {"CC": ["a"], "BCC": ["b"], "x-death": [], "region": "eu", "half": 0.5}
    copy = over_the_wire(copied(arrived(key="orders.eu", headers=headers, user_id="shop", expiration="5")))
    assert copy.headers == {
        "oms_p_CC": ["a"],
        "oms_p_BCC": ["b"],
        "region": "eu",
        "half": 0.5,
        "oms_p_amqp_user_id": "shop",
        "oms_d_routing_key": "orders.eu",
    }
    assert (copy.user_id, copy.expiration) == (None, "5")


def test_a_copy_keeps_a_priority_that_the_bridge_has_none_for() -> None:
    assert copied(arrived(priority=10)).headers["oms_p_amqp_priority"] == "10"


@given(messages())
def test_a_copy_of_our_own_is_the_same(message: Message) -> None:
    properties, body = to_properties(message._replace(store_timestamp=NOW))
    arrival = Arrival(1, False, "p3", properties, body)
    copy = copied(arrival)
    assert copy.expiration is None
    assert copy.headers == properties.headers
    assert from_arrival(arrival._replace(properties=copy, routing_key="x"), "orders", 3) == from_arrival(
        arrival, "orders", 3
    )


# Attempts


def test_attempts(subtests: pytest.Subtests) -> None:
    cases: list[tuple[bool, dict[str, object] | None, str | None, int]] = [
        (False, None, DELIVERY_COUNT, 0),
        (False, {DELIVERY_COUNT: 99, ACQUIRED_COUNT: 99}, DELIVERY_COUNT, 0),
        (True, None, DELIVERY_COUNT, 1),
        (True, {DELIVERY_COUNT: 0}, DELIVERY_COUNT, 1),
        (True, {DELIVERY_COUNT: 3, ACQUIRED_COUNT: 99}, DELIVERY_COUNT, 3),
        (True, {DELIVERY_COUNT: 99, ACQUIRED_COUNT: 3}, ACQUIRED_COUNT, 3),
        (True, {DELIVERY_COUNT: 99, ACQUIRED_COUNT: 99}, None, 1),
        (True, {DELIVERY_COUNT: "3"}, DELIVERY_COUNT, 1),
        (True, {DELIVERY_COUNT: -3}, DELIVERY_COUNT, 1),
        (False, {"oms_d_attempts": 4}, DELIVERY_COUNT, 4),
        (True, {"oms_d_attempts": 4, DELIVERY_COUNT: 2}, DELIVERY_COUNT, 6),
        (False, {"oms_d_attempts": LONG_MAX}, DELIVERY_COUNT, ATTEMPTS_MAX),
        (True, {"oms_d_attempts": LONG_MAX}, DELIVERY_COUNT, ATTEMPTS_MAX),
        (False, {"oms_d_attempts": b"4"}, DELIVERY_COUNT, 0),
    ]
    for redelivered, headers, counter, attempts in cases:
        with subtests.test(redelivered=redelivered, headers=headers, counter=counter, attempts=attempts):
            arrival = Arrival(1, redelivered, "p0", BasicProperties(headers=headers), b"")
            assert broker_attempts(arrival, counter) == attempts
