"""Rows from Kafka, in the shape in which Spark hands records over, mean what the bridge hands out."""

import gc
from collections.abc import Generator, Sequence

import pyarrow as pa
import pytest

from adapters.kafka.mapping import from_record, to_record
from adapters.kafka.record import Record
from bridge.message import Message
from bridge.mirror.rows import Rows
from bridge.mirror.schema import SOURCE
from bridge.mirror.sources.kafka import records as kafka_rows
from bridge.mirror.sources.kafka.records import convert, destination_of, log_of

_SPARK = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
_TIME = 1_700_000_000_123

_MESSAGE = Message(
    "orders",
    b"body",
    {"region": "eu", "colour": "blau \u2713"},
    message_id="id-1",
    born_timestamp=_TIME - 5,
    partition=3,
    store_timestamp=_TIME,
    message_key="key",
    priority=7,
    delay_time=1000,
)
_WRITTEN = to_record(_MESSAGE, "orders")
_RECORDS = [
    Record("orders", 3, 7, _TIME, _WRITTEN.key, _WRITTEN.value, _WRITTEN.headers),
    Record("orders", 3, 8, _TIME, None, b"native", []),
    Record("orders", 3, 9, -1, b"\xff", None, [("a", b"1"), ("a", b"2"), ("odd", b"\xff\x00"), ("", b"nameless")]),
    Record("other", 0, 0, 0, b"", b"", [("a", b"")]),
]


def batch(records: Sequence[Record]) -> pa.RecordBatch:
    """Return what the connector gives; no headers at all are null there."""
    columns: list[list[object]] = [list(column) for column in zip(*records, strict=True)] or [[] for _ in _SPARK]
    columns[3] = [int(str(time)) * 1000 for time in columns[3]]
    columns[6] = [[{"key": k, "value": v} for k, v in record.headers] or None for record in records]
    arrays = [pa.array(columns[3], pa.int64()).cast(f.type) if f.name == "timestamp" else None for f in _SPARK]
    return pa.record_batch(
        [made or pa.array(column, f.type) for made, column, f in zip(arrays, columns, _SPARK, strict=True)],
        schema=_SPARK,
    )


def rows(*batches: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches(convert(iter(batches)), SOURCE)


def expected(records: Sequence[Record]) -> pa.Table:
    gathered = Rows("kafka")
    for record in records:
        gathered.add(from_record(record, record.topic), f"{record.topic}/{record.partition}", record.offset)
    return pa.Table.from_batches([gathered.take()])


def test_a_row_is_the_message_that_the_bridge_hands_out() -> None:
    assert rows(batch(_RECORDS)).equals(expected(_RECORDS))


def test_a_slice_of_a_batch_is_read_as_itself() -> None:
    """Arrow keeps the headers of the whole batch behind each slice."""
    assert rows(batch(_RECORDS).slice(2, 2)).equals(expected(_RECORDS[2:]))


def test_batches_follow_each_other_and_none_is_too_large() -> None:
    many = [record._replace(offset=at) for at in range(700) for record in (_RECORDS[1],)]
    batches = list(convert(iter([batch(many), batch([]), batch(many)])))
    assert [each.num_rows for each in batches] == [1000, 400]
    assert pa.Table.from_batches(batches).equals(expected([*many, *many]))


def test_nothing_gives_nothing() -> None:
    assert list(convert(iter([]))) == []
    assert list(convert(iter([batch([])]))) == []


def test_a_header_without_a_value_is_empty() -> None:
    plain = batch([_RECORDS[1]])
    headers = pa.array([[{"key": "a", "value": None}, {"key": "b", "value": b"2"}]], _SPARK.field("headers").type)
    [row] = rows(plain.set_column(6, _SPARK.field("headers"), headers)).to_pylist()
    assert row["properties"] == [("a", ""), ("b", "2")]


def test_what_cannot_be_shown_is_in_quarantine_with_its_bytes() -> None:
    forged = Record("orders", 1, 5, 9 * 10**15, b"k", b"bytes", [])
    [good, bad] = rows(batch([_RECORDS[1], forged])).to_pylist()
    assert (good["area"], good["error"]) == ("data", None)
    assert (bad["area"], bad["destination"], bad["body"], bad["log"], bad["offset"]) == (
        *("quarantine", "orders", b"bytes"),
        *("orders/1", 5),
    )
    assert "is not a time" in bad["error"]


def test_whatever_goes_wrong_with_a_record_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(record: Record, destination: str) -> Message:
        if record.offset == 8:
            raise RuntimeError("a defect")
        return from_record(record, destination)

    monkeypatch.setattr(kafka_rows, "from_record", refuse)
    found = rows(batch(_RECORDS)).to_pylist()
    assert [row["area"] for row in found] == ["data", "quarantine", "data", "data"]
    assert (found[1]["error"], found[1]["body"], found[1]["offset"]) == ("RuntimeError: a defect", b"native", 8)


def test_the_collector_of_cycles_is_left_as_it_was() -> None:
    for enabled in True, False:
        (gc.enable if enabled else gc.disable)()
        try:
            converted = convert(iter([batch(_RECORDS)]))
            next(converted)
            assert not gc.isenabled()
            assert isinstance(converted, Generator)
            converted.close()
            assert gc.isenabled() is enabled
        finally:
            gc.enable()


def test_a_lane_lies_under_its_destination(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        ("orders", "orders"),
        ("orders.oms-hi", "orders"),
        ("orders.oms-lo", "orders"),
        ("orders.dlq.oms-hi", "orders.dlq"),
        ("oms-hi", "oms-hi"),
        (".oms-hi", ".oms-hi"),
        ("orders.oms-lo.oms-hi", "orders.oms-lo"),
        ("orders.oms-hi.x", "orders.oms-hi.x"),
    ]
    for topic, destination in cases:
        with subtests.test(topic=topic, destination=destination):
            assert destination_of(topic) == destination


def test_a_lane_is_a_log_of_its_own() -> None:
    assert log_of("orders.oms-hi", 3) == "orders.oms-hi/3"
