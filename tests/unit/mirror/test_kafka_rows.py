"""Rows from Kafka mean what the bridge hands out."""

from typing import Any

import pytest

from adapters.kafka.mapping import Part, Record, from_record, to_record
from bridge.message import Message
from bridge.mirror.schema import Rows
from bridge.mirror.sources.kafka import reader
from bridge.mirror.sources.kafka.reader import add
from bridge.mirror.sources.kafka.topics import Topic, destination_of, part_of

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
    Record("orders", 3, 9, -1, b"\xff", b"", [("a", b"1"), ("a", b"2"), ("odd", b"\xff\x00"), ("", b"nameless")]),
    Record("other", 0, 0, 0, b"", b"", [("a", b"")]),
]


def rows(*records: Record) -> list[dict[str, Any]]:
    gathered = Rows("kafka")
    for record in records:
        log = f"id/{record.topic}/{record.partition}"
        add(gathered, Part(record.topic, record.partition), record, destination_of(record.topic), log)
    found: list[dict[str, Any]] = gathered.take().to_pylist()
    return found


def test_a_row_is_the_message_that_the_bridge_hands_out() -> None:
    expected = Rows("kafka")
    for record in _RECORDS:
        expected.add(from_record(record, record.topic), f"id/{record.topic}/{record.partition}", record.offset)
    assert rows(*_RECORDS) == expected.take().to_pylist()


def test_what_has_no_value_is_null_and_what_is_empty_is_empty() -> None:
    headers: list[Any] = [("a", None), ("a", b""), ("b", b""), ("b", None), ("oms_p_c", None), ("content-type", None)]
    tombstone = Record("orders", 1, 5, _TIME, b"k", None, headers)
    [null, empty] = rows(tombstone, tombstone._replace(value=b"", headers=[("a", b"")]))
    assert (null["body"], null["body_size"], null["content_type"]) == (None, 0, None)
    assert dict(null["properties"]) == {"a#1": None, "a": "", "b#1": "", "b": None, "c": None}
    assert (empty["body"], dict(empty["properties"])) == (b"", {"a": ""})


def test_whatever_goes_wrong_with_a_record_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(record: Record, destination: str) -> Message:
        if record.offset == 8:
            raise RuntimeError("a defect")
        return from_record(record, destination)

    monkeypatch.setattr(reader, "from_record", refuse)
    found = rows(*_RECORDS)
    assert [row["area"] for row in found] == ["data", "quarantine", "data", "data"]
    assert (found[1]["error"], found[1]["body"], found[1]["offset"]) == ("RuntimeError: a defect", b"native", 8)


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


def test_a_lane_has_a_log() -> None:
    [*_, log] = Topic("orders.oms-hi", "id", 4).logs()
    assert log == "id/orders.oms-hi/3"
    assert part_of(log) == Part("orders.oms-hi", 3)


def test_the_body_of_a_json_record_is_text_too() -> None:
    written = to_record(_MESSAGE._replace(body=b'{"a": 1}', content_type="application/json"), "orders")
    own = Record("orders", 3, 7, _TIME, written.key, written.value, written.headers)
    native = own._replace(headers=[("content-type", b"application/vnd.order+json")])
    tombstone = own._replace(value=None)
    assert [row["json"] for row in rows(own, native, tombstone)] == ['{"a": 1}', '{"a": 1}', None]
