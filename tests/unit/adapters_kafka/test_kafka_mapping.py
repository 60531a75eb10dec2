"""Message to record and back, and what becomes of native records."""

import gzip
from types import SimpleNamespace
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.field_headers import RECORD_DELAY_MAX
from adapters.gzip_stored_plain import INFLATED_MAX
from adapters.kafka.mapping import PLAIN_NAMES, Headers, Outgoing, Record, fetched, from_record, to_record
from adapters.native_headers import HEADERS_MAX, KEY_MAX
from bridge.message import FIELDS, LONG_MAX, Message
from bridge.wire import headers as wire
from bridge.wire.gzip_body import inflate
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


def stored(record: Outgoing, offset: int = 7) -> Record:
    return Record(record.topic, record.partition, offset, record.timestamp, record.key, record.value, record.headers)


def native(
    headers: Headers = (), key: bytes | None = None, value: bytes | None = b"body", timestamp: int = NOW
) -> Record:
    return Record("orders", 3, 42, timestamp, key, value, headers)


def read(*headers: tuple[str, bytes]) -> Message:
    return from_record(native(headers), "orders")


# Our own


@given(messages())
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    message = complete(message)
    if (message.born_timestamp or 0) + (message.delay_time or 0) > NOW + RECORD_DELAY_MAX:
        message = message._replace(delay_time=None)
    if message.traceparent is not None and message.trace_id is None:
        message = message._replace(trace_id=message.traceparent[3:35])
    record = to_record(message, message.destination)
    assert from_record(stored(record), message.destination) == message


@given(messages())
def test_a_message_with_plain_properties_comes_back_as_it_was(message: Message) -> None:
    message = complete(message)._replace(delay_time=None)
    if message.traceparent is not None and message.trace_id is None:
        message = message._replace(trace_id=message.traceparent[3:35])
    record = to_record(message, message.destination, PLAIN_NAMES.header)
    assert from_record(stored(record), message.destination) == message


def test_plain_properties_are_headers_of_their_own_names() -> None:
    properties = {"region": "eu", "oms_h_priority": "high", "traceparent": "of a dead letter", "OrderId": "4711"}
    message = complete(Message("orders", b"", properties, priority=3))
    headers = dict(to_record(message, "orders", PLAIN_NAMES.header).headers)
    assert (
        headers.items()
        >= {
            "region": b"eu",
            "OrderId": b"4711",
            "oms_h_priority": b"3",
            "oms_p_oms_h_priority": b"high",
            "oms_p_traceparent": b"of a dead letter",
        }.items()
    )
    assert "oms_p_region" not in headers


def test_plain_properties_of_a_bridge_are_kept_whole() -> None:
    message = complete(Message("orders", b"", {f"p{n}": "v" * 100 for n in range(HEADERS_MAX // 100)}))
    record = stored(to_record(message, "orders", PLAIN_NAMES.header))
    assert from_record(record, "orders").properties == message.properties


def test_what_lies_in_kafka() -> None:
    message = Message(
        "orders",
        b"body",
        {"Tenant": "Käse"},
        message_id="id-1",
        born_timestamp=NOW - 5,
        born_host="10.0.0.1",
        partition=3,
        store_timestamp=NOW,
        store_host="bridge-1",
        message_key="Kündin",
        correlation_id="",
        priority=7,
        delay_time=0,
        delivery_count=4,
        content_type="text/plain",
        traceparent=PARENT,
        tracestate="a=b",
    )
    record = to_record(message, "orders.oms-hi")
    assert record[:5] == ("orders.oms-hi", 3, NOW, "Kündin".encode(), b"body")
    assert sorted(record.headers) == [
        ("content-type", b"text/plain"),
        ("oms_h_bornHost", b"10.0.0.1"),
        ("oms_h_bornTimestamp", b"%d" % (NOW - 5)),
        ("oms_h_correlationId", b""),
        ("oms_h_delayTime", b"0"),
        ("oms_h_messageId", b"id-1"),
        ("oms_h_priority", b"7"),
        ("oms_h_storeHost", b"bridge-1"),
        ("oms_p_Tenant", "Käse".encode()),
        ("traceparent", PARENT.encode()),
        ("tracestate", b"a=b"),
    ]


def test_each_field_has_its_place(subtests: pytest.Subtests) -> None:
    """A field added to the table travels automatically, or is one of those that Kafka has another place for."""
    for field in FIELDS:
        with subtests.test(field=field):
            name, attribute, maximum = field.name, field.attribute, field.maximum
            base = complete(Message("orders"))
            message = base._replace(**{attribute: "gzip" if maximum is None else 1})  # type: ignore[arg-type]
            written = dict(to_record(message, "orders").headers)
            elsewhere = {"destination", "partition", "storeTimestamp", "messageKey", "deliveryCount"}
            assert (f"oms_h_{name}" in written) == (name not in elsewhere)


def test_the_destination_is_what_the_caller_says() -> None:
    record = native([("oms_h_destination", b"elsewhere"), ("oms_h_partition", b"5"), ("oms_h_deliveryCount", b"9")])
    message = from_record(record._replace(topic="orders.oms-lo"), "orders")
    assert (message.destination, message.partition, message.delivery_count) == ("orders", 3, None)
    assert message.message_id == "orders.oms-lo-3-42"
    assert message.properties == {
        "oms_h_destination": "elsewhere",
        "oms_h_partition": "5",
        "oms_h_deliveryCount": "9",
    }


@pytest.mark.parametrize("missing", ["partition", "store_timestamp"])
def test_an_incomplete_message_is_refused(missing: str) -> None:
    with pytest.raises(ValueError, match="partition and storeTimestamp"):
        to_record(complete(Message("orders"))._replace(**{missing: None}), "orders")  # type: ignore[arg-type]


@given(broker_messages())
@example(Message("orders", properties={"\ud800": "\udfff"}, message_key="\ud800"))
def test_whatever_is_written_is_text_and_can_be_read(message: Message) -> None:
    """Also what no client can send: the bridge dead-letters native records."""
    record = to_record(message._replace(partition=0, store_timestamp=NOW), "orders")
    for name, _ in record.headers:
        name.encode()
    deliverable(from_record(stored(record), "orders"))


# Traces


def test_a_trace_id_becomes_a_traceparent_for_native_consumers() -> None:
    message = complete(Message("orders", trace_id=TRACE))
    record = to_record(message, "orders")
    parent = dict(record.headers)["traceparent"].decode()
    assert parent[:36] == f"00-{TRACE}-"
    assert is_traceparent(parent.encode())
    assert from_record(stored(record), "orders") == message


def test_another_trace_id_does_not(subtests: pytest.Subtests) -> None:
    cases: list[str] = ["", "order-17", TRACE.upper(), TRACE + "0", "0" * 32, TRACE[:16] + "0" * 16]
    for trace_id in cases:
        with subtests.test(trace_id=trace_id):
            message = complete(Message("orders", trace_id=trace_id))
            record = to_record(message, "orders")
            assert "traceparent" not in dict(record.headers)
            assert from_record(stored(record), "orders") == message


def test_a_producer_s_own_traceparent_is_kept_beside_its_trace_id() -> None:
    message = complete(Message("orders", trace_id=TRACE, traceparent=PARENT, tracestate="a=b"))
    record = to_record(message, "orders")
    assert [value for name, value in record.headers if name == "traceparent"] == [PARENT.encode()]
    assert from_record(stored(record), "orders") == message


def test_a_native_traceparent_says_the_trace_id() -> None:
    message = read(("traceparent", PARENT.encode()), ("tracestate", b"a=b"))
    assert (message.trace_id, message.traceparent, message.tracestate) == (TRACE, PARENT, "a=b")
    assert read(("traceparent", PARENT.encode()), ("oms_h_traceId", b"mine")).trace_id == "mine"


@given(
    st.text(st.sampled_from("0123456789abcdef-f"), max_size=60)
    | st.sampled_from([PARENT, PARENT + "-x", "01" + PARENT[2:] + "-x", "ff" + PARENT[2:]])
)
def test_what_is_a_traceparent_is_what_http_carries(text: str) -> None:
    message = read(("traceparent", text.encode()))
    assert (message.traceparent == text) == is_traceparent(text.encode())
    assert (message.properties == {"traceparent": text}) != is_traceparent(text.encode())
    deliverable(message)


# Compression


def test_a_gzipped_body_lies_plain_in_kafka_and_comes_back_gzipped() -> None:
    message = complete(Message("orders", gzip.compress(b"text " * 99)))._replace(compression="gzip")
    record = to_record(message, "orders")
    assert record.value == b"text " * 99
    assert "oms_h_compression" not in dict(record.headers), "it would be a lie to a native consumer"
    back = from_record(stored(record), "orders")
    assert back.compression == "gzip"
    assert b"".join(inflate(back.body, 1000)) == b"text " * 99
    assert back._replace(body=message.body) == message
    assert back.properties == {}


def test_a_gzipped_gzip_file_is_not_taken_apart() -> None:
    file = gzip.compress(b"text")
    message = complete(Message("orders", gzip.compress(file)))._replace(compression="gzip")
    back = from_record(stored(to_record(message, "orders")), "orders")
    assert b"".join(inflate(back.body, 1000)) == file


def test_several_members_are_one_body() -> None:
    message = complete(Message("orders", gzip.compress(b"a") + gzip.compress(b"b")))._replace(compression="gzip")
    assert to_record(message, "orders").value == b"ab"


def test_a_body_that_inflates_far_stays_packed() -> None:
    body = gzip.compress(bytes(INFLATED_MAX + 1))
    message = complete(Message("orders", body))._replace(compression="gzip")
    record = to_record(message, "orders")
    assert record.value == body
    assert dict(record.headers)["oms_h_compression"] == b"gzip"
    assert from_record(stored(record), "orders") == message


PACKED: Final = gzip.compress(b"text", mtime=0)


def test_a_native_producer_s_claim_is_looked_at(subtests: pytest.Subtests) -> None:
    cases: list[tuple[bytes, bytes | None, str | None]] = [
        (b"gzip", PACKED, "gzip"),
        (b"gzip", b"text", None),
        (b"gzip", PACKED[:-1], None),
        (b"gzip", PACKED + b"rest", None),
        (b"gzip", None, None),
        (b"zstd", PACKED, None),
        (b"\xff", PACKED, None),
    ]
    for claim, value, compression in cases:
        with subtests.test(claim=claim, value=value, compression=compression):
            record = native([("oms_h_compression", claim)], value=value)
            message = from_record(record, "orders")
            assert (message.body, message.compression) == (value or b"", compression)
            assert ("oms_h_compression" in message.properties) == (compression is None)


# Native producers


def test_a_record_without_anything() -> None:
    message = from_record(Record("orders", 3, 42, NOW, None, None, ()), "orders")
    expected = Message("orders", message_id="orders-3-42", born_timestamp=NOW, store_timestamp=NOW, partition=3)
    assert message == expected


def test_a_record_without_a_timestamp() -> None:
    message = from_record(native(timestamp=-1), "orders")
    assert (message.born_timestamp, message.store_timestamp) == (None, None)


def test_headers_of_ours_win_over_what_the_record_says() -> None:
    headers = [("oms_h_messageKey", b"k"), ("oms_h_bornTimestamp", b"5"), ("oms_h_storeTimestamp", b"6")]
    message = from_record(native(headers, key=b"\xff"), "orders")
    assert (message.message_key, message.born_timestamp, message.store_timestamp) == ("k", 5, 6)


def test_keys(subtests: pytest.Subtests) -> None:
    cases: list[tuple[bytes | None, str | None]] = [
        (None, None),
        (b"", ""),
        ("ü".encode(), "ü"),
        (b"\xff\x00", "data:;base64,/wA="),
    ]
    for key, text in cases:
        with subtests.test(key=key, text=text):
            assert from_record(native(key=key), "orders").message_key == text


def test_long_native_keys_are_told_apart_and_travel() -> None:
    assert from_record(native(key=b"k" * KEY_MAX), "orders").message_key == "k" * KEY_MAX
    one, other = (from_record(native(key=b"\xff" * KEY_MAX + end), "orders").message_key or "" for end in (b"1", b"2"))
    assert one != other
    assert one.startswith("sha256:")
    assert len(one) == 71


def test_a_long_key_of_ours_is_kept() -> None:
    message = complete(Message("orders", message_key="k" * 2 * KEY_MAX))
    assert from_record(stored(to_record(message, "orders")), "orders") == message


def test_native_headers_become_properties() -> None:
    message = read(("kind", b"order"), ("X-Tenant", "Käse".encode()), ("seq", b"\0\0\0\x01"), ("raw", b"\xff\xfe"))
    assert message.properties == {
        "kind": "order",
        "X-Tenant": "Käse",
        "seq": "\0\0\0\x01",
        "raw": "data:;base64,//4=",
    }


def test_of_repeated_headers_the_last_keeps_the_name() -> None:
    message = read(("a", b"1"), ("b", b"x"), ("a", b"2"), ("a#1", b"taken"), ("a", b"3"))
    assert message.properties == {"a": "3", "a#2": "1", "a#3": "2", "a#1": "taken", "b": "x"}


def test_a_property_goes_before_a_native_header_of_its_name() -> None:
    assert read(("oms_p_a", b"ours"), ("a", b"theirs")).properties == {"a": "ours", "a#1": "theirs"}
    assert read(("a", b"theirs"), ("oms_p_a", b"ours")).properties == {"a": "ours", "a#1": "theirs"}
    assert read(("oms_p_a", b"1"), ("oms_p_a", b"2")).properties == {"a": "2", "a#1": "1"}
    assert read(("oms_p_a", b"\xff")).properties == {"a": "data:;base64,/w=="}


def test_a_field_that_cannot_be_is_a_property(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, bytes]] = [
        ("priority", b"abc"),
        ("priority", b""),
        ("priority", b"-1"),
        ("priority", b" 1"),
        ("priority", b"1_0"),
        ("priority", "\u0661".encode()),
        ("priority", b"%d" % 2**31),
        ("delayTime", b"-1"),
        ("delayTime", b"9" * 20),
        ("delayTime", b"9" * 5000),
        ("delayTime", b"%d" % LONG_MAX),
        ("delayTime", b"%d" % (RECORD_DELAY_MAX + 1)),
        ("bornTimestamp", b"now"),
        ("qos", b"3"),
        ("correlationId", b"\xff"),
        ("unknown", b"1"),
        ("", b"1"),
    ]
    for name, value in cases:
        with subtests.test(name=name, value=value):
            message = read((f"oms_h_{name}", value))
            shown = value.decode() if value != b"\xff" else "data:;base64,/w=="
            assert message == read()._replace(properties={f"oms_h_{name}": shown})


def test_a_delay_of_a_year_is_one() -> None:
    year = 366 * 24 * 3600 * 1000
    assert read(("oms_h_delayTime", b"%d" % year)).due == NOW + year


def test_a_content_type_that_http_cannot_carry_is_a_property(subtests: pytest.Subtests) -> None:
    for value in (b" text/plain", b"text/pl\xc3\xa4in", b"", b"a\r\nb", b"\xff"):
        with subtests.test(value=value):
            message = read(("content-type", value))
            assert message.content_type is None
            assert "content-type" in message.properties


def test_a_native_content_type() -> None:
    assert read(("content-type", b"text/plain")).content_type == "text/plain"


def test_a_name_that_http_cannot_carry(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        ("", "_"),
        ("oms_p_", "oms_p_"),
        ("x" * 300, "x" * NAME_BYTES_MAX),
        ("ü" * 125, "ü" * 124),
        ("\ud800", "?"),
    ]
    for name, property_ in cases:
        with subtests.test(name=name, property_=property_):
            assert read((name, b"1")).properties == {property_: "1"}


def test_a_fetched_record_is_whole_and_an_empty_header_has_no_bytes() -> None:
    found = SimpleNamespace(
        topic="orders", partition=3, offset=42, timestamp=NOW, key=b"k", value=None, headers=[("a", b"1"), ("b", None)]
    )
    assert fetched(found) == Record("orders", 3, 42, NOW, b"k", None, [("a", b"1"), ("b", b"")])


def test_long_names_that_become_one_are_still_told_apart() -> None:
    message = read(("x" * 300, b"1"), ("x" * 301, b"2"))
    assert message.properties == {"x" * NAME_BYTES_MAX: "2", "x" * (NAME_BYTES_MAX - 2) + "#1": "1"}


def test_more_headers_than_a_client_takes() -> None:
    message = read(("first", b"1"), *((f"big{n}", b"\0" * 1000) for n in range(100)), ("last", b"1"))
    assert {"first", "last", "big0", "oms_left_out"} < set(message.properties)
    assert len(message.properties) - 1 + int(message.properties["oms_left_out"]) == 102
    assert travels(message) <= 60 << 10


def test_many_headers_of_one_name_take_no_longer() -> None:
    message = read(*(("a", b"%d" % n) for n in range(20_000)))
    assert message.properties["a#1"] == "0"


def test_large_properties_of_ours_are_kept() -> None:
    message = complete(Message("orders", properties={"n" * 100: "v" * HEADERS_MAX, "m": "w" * HEADERS_MAX}))
    assert from_record(stored(to_record(message, "orders")), "orders") == message


def test_the_bridge_s_own_headers_are_never_seen() -> None:
    assert read(("oms_d_due", b"1"), ("oms_d_topic", b"x"), ("oms_d_", b"")).properties == {}


names: Final = st.one_of(
    st.text(max_size=20),
    st.sampled_from([f"oms_h_{field.name}" for field in FIELDS]),
    st.sampled_from(
        ["content-type", "traceparent", "tracestate", "oms_p_a", "oms_p_", "oms_d_compression", "a", "a#1"]
    ),
    st.text(st.characters(), max_size=300),
)
values: Final = st.one_of(
    st.binary(max_size=40), st.integers().map(lambda n: str(n).encode()), st.text().map(str.encode)
)


@given(
    st.lists(st.tuples(names, values), max_size=20),
    st.none() | st.binary(max_size=40) | st.binary(min_size=KEY_MAX, max_size=KEY_MAX + 2),
    st.none() | st.binary(max_size=40),
    st.integers(-1, LONG_MAX),
)
def test_whatever_a_native_producer_writes_can_be_delivered(
    headers: list[tuple[str, bytes]], key: bytes | None, value: bytes | None, timestamp: int
) -> None:
    record = native(headers, key, value, timestamp)
    message = from_record(record, "orders")
    assert from_record(record, "orders") == message
    deliverable(message)


def deliverable(message: Message) -> None:
    """Every header arrives at a client that reads as strictly as the bridge itself."""
    back = wire.parse(wire.encode(message)).message(message.body)
    assert back == message._replace(
        content_type=None if message.content_type == wire.OCTETS.decode() else message.content_type
    )
    assert travels(message) <= 64 << 10


def travels(message: Message) -> int:
    return sum(len(name) + len(value) + 32 for name, value in wire.encode(message))
