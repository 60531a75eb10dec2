"""Messages become rows whatever they hold, and what no Parquet file can show goes to quarantine."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.message import FIELDS, Message
from bridge.mirror.schema import BATCH_BYTES, BATCH_ROWS, MESSAGE, SOURCE, TIME_MAX, Rows

texts = st.none() | st.text(st.characters(codec="utf-8"), max_size=20)
times = st.none() | st.integers(0, TIME_MAX)
values = {
    field.attribute: texts if field.maximum is None else st.none() | st.integers(0, field.maximum)
    for field in FIELDS
    if field.name != "destination"
} | {"born_timestamp": times, "store_timestamp": times, "content_type": texts}
messages = st.builds(
    Message,
    destination=st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
    body=st.binary(max_size=50),
    properties=st.dictionaries(
        st.text(st.characters(codec="utf-8"), max_size=5), st.text(st.characters(codec="utf-8"))
    ),
    **values,
)


def taken(rows: Rows) -> list[dict[str, Any]]:
    batch = rows.take()
    assert batch.schema == SOURCE
    batch.validate(full=True)
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


def as_message(row: dict[str, Any]) -> Message:
    fields = {column.name: row[column.name] for column in MESSAGE}
    fields["properties"] = dict(fields["properties"])
    for name in ("born_timestamp", "store_timestamp"):
        if (time := fields[name]) is not None:
            fields[name] = pa.scalar(time, pa.timestamp("us", tz="UTC")).value // 1000
    return Message(row["destination"], **fields)


@given(st.lists(messages, max_size=5))
def test_every_field_comes_back(given: list[Message]) -> None:
    rows = Rows("memory")
    for number, message in enumerate(given):
        rows.add(message, "orders/0", number)
    found = taken(rows)
    assert [as_message(row) for row in found] == given
    assert [(row["backend"], row["log"], row["offset"], row["error"]) for row in found] == [
        ("memory", "orders/0", number, None) for number in range(len(given))
    ]
    assert [row["body_size"] for row in found] == [len(message.body) for message in given]
    assert not len(rows)
    assert taken(rows) == []


def test_dead_letters_are_no_data(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [("orders", "data"), ("orders.dlq", "dead-letters"), ("orders.dlq.x", "data")]
    for destination, area in cases:
        with subtests.test(destination=destination, area=area):
            rows = Rows("kafka")
            rows.add(Message(destination), "x", 0)
            assert [row["area"] for row in taken(rows)] == [area]


def test_what_no_file_can_show_is_in_quarantine_alone(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"expire_time": 2**63}, "OverflowError"),
        ({"message_key": "half a \ud800 pair"}, "UnicodeEncodeError"),
        ({"properties": {"a": "\udfff"}}, "UnicodeEncodeError"),
        ({"properties": {"a": 5}}, "Arrow"),
        ({"destination": "or\ud800ders"}, "UnicodeEncodeError"),
        ({"priority": "high"}, "Arrow"),
    ]
    for change, says in cases:
        with subtests.test(change=change, says=says):
            rows = Rows("kafka")
            good = Message("orders", b"good", {"a": "b"}, store_timestamp=1)
            for number, message in enumerate([good, good._replace(body=b"\xffraw", **change), good]):
                rows.add(message, "orders/3", number)
            found = taken(rows)
            assert [row["area"] for row in found] == ["data", "quarantine", "data"]
            assert [as_message(row) for row in found[::2]] == [good, good]
            bad = found[1]
            assert says in bad["error"]
            assert (bad["body"], bad["log"], bad["offset"]) == (b"\xffraw", "orders/3", 1)
            assert bad["destination"].startswith("or")


def test_a_time_that_no_file_can_show_is_a_property(subtests: pytest.Subtests) -> None:
    for number in (TIME_MAX + 1, 2**63 - 1, -1):
        with subtests.test(number=number):
            rows = Rows("kafka")
            good = Message("orders", b"good", {"a": "b"}, store_timestamp=1)
            for offset, message in enumerate([good, good._replace(store_timestamp=number, born_timestamp=5), good]):
                rows.add(message, "orders/3", offset)
            found = taken(rows)
            assert [row["area"] for row in found] == ["data", "data", "data"]
            kept = {"a": "b", "oms_store_timestamp": str(number)}
            assert as_message(found[1]) == good._replace(store_timestamp=None, born_timestamp=5, properties=kept)


def test_a_record_that_cannot_be_read_keeps_its_bytes() -> None:
    rows = Rows("rabbitmq")
    rows.add_bad("ValueError: no", b"\0raw", "orders", "orders.log", 7)
    [row] = taken(rows)
    assert (row["area"], row["destination"], row["body"], row["error"]) == (
        *("quarantine", "orders", b"\0raw"),
        "ValueError: no",
    )
    assert (row["log"], row["offset"], row["body_size"], row["message_id"]) == ("orders.log", 7, 4, None)


def test_a_batch_is_full_by_rows_or_by_bytes() -> None:
    rows = Rows("memory")
    for number in range(BATCH_ROWS - 1):
        rows.add(Message("a"), "x", number)
    assert not rows.full
    rows.add(Message("a"), "x", BATCH_ROWS)
    assert rows.full
    rows.take()
    rows.add(Message("a", b"x" * (BATCH_BYTES - 1)), "x", 0)
    assert not rows.full
    rows.add_bad("", b"x", "a", "x", 1)
    assert rows.full
    rows.take()
    rows.add(Message("a", properties={"p": "x" * (BATCH_BYTES - 2)}), "x", 0)
    assert not rows.full
    rows.add(Message("a", properties={"p": ""}), "x", 0)
    assert rows.full
