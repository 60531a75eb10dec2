"""AMQP's tables against pika's own reader and writer, and what those cannot do."""

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import BasicProperties, data, frame

from adapters.amqp.connection import Connection
from adapters.amqp.field_tables import DEPTH_MAX, SHORT_MAX, read_table, write_table
from adapters.amqp.properties import Properties
from bridge.message import LONG_MAX

texts: Final = st.text(max_size=30)
names: Final = st.text(max_size=20)
both_know: Final = st.one_of(
    texts,
    st.booleans(),
    st.none(),
    st.integers(-(2**63), LONG_MAX),
    st.binary(max_size=20),
    st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(9999, 1, 1), timezones=st.just(UTC)).map(  # noqa: DTZ001 - hypothesis adds it
        lambda time: time.replace(microsecond=0)
    ),
    st.builds(
        lambda digits, scale: Decimal(digits).scaleb(-scale), st.integers(-(2**31), 2**31 - 1), st.integers(0, 9)
    ),
)
values: Final = st.recursive(
    both_know | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)


def entry(name: bytes, kind: bytes, payload: bytes) -> bytes:
    return bytes((len(name),)) + name + kind + payload


def read(*entries: bytes) -> dict[str, Any]:
    raw = b"".join(entries)
    return read_table(b"before" + raw + b"after", 6, 6 + len(raw))


@given(st.dictionaries(names, values, max_size=6))
def test_whatever_is_written_is_read_again(table: dict[str, Any]) -> None:
    raw = write_table(table)
    assert struct.unpack_from(">I", raw)[0] == len(raw) - 4
    assert read_table(raw, 4, len(raw)) == table


@given(st.dictionaries(names, both_know | st.lists(both_know) | st.dictionaries(names, both_know), max_size=6))
def test_pika_reads_what_is_written(table: dict[str, Any]) -> None:
    raw = write_table(table)
    assert data.decode_table(raw, 0) == (table, len(raw))


@given(st.dictionaries(names, both_know | st.lists(both_know) | st.dictionaries(names, both_know), max_size=6))
def test_what_pika_writes_is_read(table: dict[str, Any]) -> None:
    pieces: list[bytes] = []
    data.encode_table(pieces, table)
    raw = b"".join(pieces)
    assert read_table(raw, 4, len(raw)) == table


def test_numbers_are_long() -> None:
    """Whatever they are: a consumer in another language finds one type under one name."""
    assert write_table({"n": 1}) == struct.pack(">I", 11) + entry(b"n", b"l", struct.pack(">q", 1))


def test_types_of_other_clients(subtests: pytest.Subtests) -> None:
    cases: list[tuple[bytes, bytes, object]] = [
        (b"t", b"\2", True),
        (b"b", b"\xff", -1),
        (b"B", b"\xff", 255),
        (b"s", b"\xff\xfe", -2),
        (b"U", b"\xff\xfe", -2),
        (b"u", b"\xff\xfe", 65534),
        (b"I", b"\xff\xff\xff\xfe", -2),
        (b"i", b"\xff\xff\xff\xfe", 2**32 - 2),
        (b"L", b"\xff" * 8, -1),
        (b"l", b"\xff" * 8, -1),
        (b"f", struct.pack(">f", 1.5), 1.5),
        (b"d", struct.pack(">d", -0.25), -0.25),
        (b"D", b"\2\0\0\x30\x39", Decimal("123.45")),
        (b"T", struct.pack(">Q", 86_400), datetime(1970, 1, 2, tzinfo=UTC)),
        (b"T", struct.pack(">Q", 1_700_000_000_000), 1_700_000_000_000),
        (b"T", b"\xff" * 8, 2**64 - 1),
        (b"V", b"", None),
        (b"S", b"\0\0\0\2\xff\xfe", b"\xff\xfe"),
        (b"x", b"\0\0\0\2ab", b"ab"),
        (b"A", b"\0\0\0\3Vt\1", [None, True]),
        (b"F", b"\0\0\0\4\1at\0", {"a": False}),
    ]
    for kind, payload, value in cases:
        with subtests.test(kind=kind, payload=payload, value=value):
            found = read(entry(b"first", kind, payload), entry(b"last", b"V", b""))
            assert found == {"first": value, "last": None}
            assert type(found["first"]) is type(value)


def test_tables_within_tables_are_read_to_a_depth() -> None:
    inner = b""
    for _ in range(20_000):
        inner = entry(b"a", b"F", struct.pack(">I", len(inner)) + inner)
    found: Any = read(inner, entry(b"b", b"V", b""))
    assert found.keys() == {"a", "b"}
    for _ in range(DEPTH_MAX):
        found = found["a"]
    assert isinstance(found["a"], bytes)


@given(st.binary(max_size=60))
def test_no_bytes_are_too_odd(raw: bytes) -> None:
    """A broker checks tables when they are published; the bridge need not rely on it."""
    size = len(raw)
    payload = struct.pack(">HI", 1 << 13, size) + raw
    assert isinstance(Properties().decode(payload).headers, dict)


def test_a_name_that_is_no_utf_8_is_read() -> None:
    assert read(entry(b"\xff", b"V", b""), entry(b"a\xff", b"V", b"")) == {"\ufffd": None, "a\ufffd": None}


def test_what_has_no_type_is_bytes_and_the_rest_is_read() -> None:
    payload = (
        struct.pack(">HI", 1 << 13 | 1 << 11, 12) + entry(b"a", b"V", b"") + entry(b"z", b"Z", b"whatever?")[:9] + b"\7"
    )
    found = Properties().decode(payload)
    assert (found.headers, found.priority) == ({"a": None, "z": b"Zwhateve"[:7]}, 7)


def test_what_amqp_has_no_type_for_is_text(subtests: pytest.Subtests) -> None:
    cases: list[tuple[object, object]] = [
        (2**63, str(2**63)),
        (-(2**63) - 1, str(-(2**63) - 1)),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (Decimal("1E+9"), "1E+9"),
        (Decimal(2**31), str(2**31)),
        (Decimal("NaN"), "NaN"),
        (Decimal("1E-300"), "1E-300"),
        (datetime(1969, 1, 1, tzinfo=UTC), "1969-01-01 00:00:00+00:00"),
        ((1, 2), [1, 2]),
    ]
    for value, found in cases:
        with subtests.test(value=value, found=found):
            raw = write_table({"a": value})
            assert data.decode_table(raw, 0)[0] == {"a": found}


def test_a_name_that_is_too_long_is_cut() -> None:
    raw = write_table({"ü" * 128: "1", "b": "2"})
    assert data.decode_table(raw, 0)[0] == {"ü" * 127: "1", "b": "2"}


short: Final = st.text(max_size=60)
slots: Final = st.fixed_dictionaries(
    {},
    optional={
        "headers": st.dictionaries(names, both_know, max_size=3),
        "delivery_mode": st.sampled_from((1, 2)),
        "priority": st.integers(0, 255),
        "timestamp": st.integers(0, 2**64 - 1),
    }
    | dict.fromkeys(
        (
            *("content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id", "type"),
            *("user_id", "app_id", "cluster_id"),
        ),
        short,
    ),
)


@given(slots)
def test_properties_are_those_of_pika(chosen: dict[str, Any]) -> None:
    ours, theirs = Properties(**chosen), BasicProperties(**chosen)
    assert BasicProperties().decode(b"".join(ours.encode())).__dict__ == theirs.__dict__
    assert Properties().decode(b"".join(theirs.encode())).__dict__ == ours.__dict__


@pytest.mark.parametrize("chosen", [{"message_id": "ü" * 128}, {"priority": 256}, {"priority": -1}])
def test_what_has_no_room_is_refused(chosen: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"255|256"):
        Properties(**chosen).encode()


def test_frames_are_read_as_they_come() -> None:
    """Byte by byte, several at once, between those that pika reads itself."""
    chosen = Properties(headers={"t": 1.5, "n" * SHORT_MAX: "v"}, message_id="id")
    stream = b"".join(
        part.marshal()
        for part in (frame.Header(7, 4, chosen), frame.Body(7, b"body"), frame.Heartbeat(), frame.Header(8, 0, chosen))
    )
    connection = Connection.__new__(Connection)
    seen: list[Any] = []
    connection._unread = b""
    connection._process_frame = seen.append
    connection.bytes_received = 0
    connection.confirmed, connection.delivered = {}, {}
    for byte in stream:
        connection.data_received(bytes((byte,)))
    connection.data_received(stream)
    assert [type(part).__name__ for part in seen] == ["Header", "Body", "Heartbeat", "Header"] * 2
    for part in seen[0], seen[3], seen[4], seen[7]:
        assert part.properties.headers == chosen.headers
    assert [(part.channel_number, part.body_size) for part in (seen[0], seen[3])] == [(7, 4), (8, 0)]
