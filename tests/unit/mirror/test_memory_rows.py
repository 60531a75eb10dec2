"""A block's columns become the same rows as its messages would, one by one."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from bridge.message import Message
from bridge.mirror.schema import SOURCE, TIME_MAX, Rows
from bridge.mirror.sources.memory import destination_of, to_batch
from bridge.wire.log_block import decode
from tests.unit.blocks import encode
from tests.unit.strategies import messages

LOG = "00c0ffee00c0ffee/orders.x/3"
HOSTILE = Message("orders.x", b"\xff", {"\ud800": "a"}, message_id="\udfff", store_timestamp=TIME_MAX + 1)


def expected(given: list[Message], log: str) -> list[dict[str, Any]]:
    rows = Rows("memory")
    for offset, message in enumerate(given, 5):
        rows.add(message, log, offset)
    found: list[dict[str, Any]] = rows.take().to_pylist()
    return found


@given(st.lists(messages(), max_size=5), st.integers(0, 6))
@example([HOSTILE], 5)
@example([Message("x"), HOSTILE, Message("x", b"b", {"a": "1"})], 2)
@example([Message("x", store_timestamp=TIME_MAX + 1)], 1)
@example([Message("x", store_timestamp=TIME_MAX, born_timestamp=0, priority=0)], 1)
@example([Message("x", b'{"a": 1}', content_type="application/json"), Message("x", b'{"a": 1}')], 2)
@example([Message("x", b"{", content_type="application/json")], 1)
def test_the_rows_are_those_of_the_messages(given: list[Message], count: int) -> None:
    given = [message._replace(destination="orders.x") for message in given]
    block = decode(encode(given, range(5, 5 + len(given)), 99, []))
    batch = to_batch(block, LOG, 5 + count)
    assert batch.schema == SOURCE
    batch.validate(full=True)
    assert batch.to_pylist() == expected(given[:count], LOG)


def test_dead_letters_go_where_they_belong() -> None:
    block = decode(encode([Message("a.dlq")], [0], 1, []))
    assert to_batch(block, "e/a.dlq/0", 1)["area"].to_pylist() == ["dead-letters"]


def test_only_what_was_bad_is_quarantined() -> None:
    given = [Message("x", b"a"), HOSTILE, Message("x", b"b")]
    batch = to_batch(decode(encode(given, [1, 2, 4], 5, [])), LOG, 5)
    assert batch["area"].to_pylist() == ["data", "quarantine", "data"]
    assert batch["offset"].to_pylist() == [1, 2, 4]


def test_a_log_names_its_destination() -> None:
    assert destination_of(LOG) == "orders.x"
