"""A block gives back the messages it was made of, and any other bytes are a `ValueError`."""

import json
from contextlib import suppress
from struct import pack
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.message import Message
from bridge.wire.log_block import HEAD_MAX, BlockWriter, decode, encode_part
from tests.unit.blocks import encode
from tests.unit.strategies import messages

WHOLE = Message("orders", b"\0\xffbody", {"a": "1", "ü": ""}, "id", 5, "born", 0, "gzip", 0, 6, "store", "key", "corr",
                "trace", "tx", 0, 9, 0, 1, 2, "text/plain", "00-a-b-01", "s=1")  # fmt: skip


@given(
    st.lists(messages(), max_size=6),
    st.sets(st.integers(0, 2**62)),
    st.lists(st.tuples(st.integers(0), st.integers(0))),
    st.integers(1, 6),
)
@example([WHOLE], {7}, [], 1)
@example([WHOLE, Message("orders")], {7, 8}, [(1, 2)], 1)
@example([WHOLE, Message("orders")], {7, 8}, [(1, 2)], 2)
@example([Message("orders", priority=0, trace_id="")] * 3 + [Message("orders")], {1, 2, 3, 4}, [], 2)
def test_everything_comes_back(
    given: list[Message], places: set[int], dropped: list[tuple[int, int]], part: int
) -> None:
    offsets = sorted(places)[: len(given)]
    given = [message._replace(destination="orders") for message in given[: len(offsets)]]
    data = encode(given, offsets, 2**62 + 1, dropped, part)
    block = decode(data)
    assert list(block.messages("orders")) == given
    assert list(block.offsets) == offsets
    assert (block.next, block.dropped) == (2**62 + 1, dropped)
    assert decode(bytes(data)) == block


def test_a_value_that_all_have_is_written_once() -> None:
    many = [Message("orders", b"%d" % i, store_host="bridge-1:8080", priority=0) for i in range(100)]
    data = encode(many, range(100), 100, [])
    assert data.count(b"bridge-1:8080") == 1
    assert list(decode(data).messages("orders")) == many


@given(st.lists(messages(), min_size=1, max_size=9), st.integers(1, 4))
@example([Message("orders", properties={"p": "\U0001f680" * 2000})] * 3, 2)
def test_a_block_has_at_most_the_bytes_that_its_writer_counts(given: list[Message], part: int) -> None:
    """One character of a property takes up to twelve bytes."""
    writer = BlockWriter()
    for start in range(0, len(given), part):
        some = given[start : start + part]
        writer.add(encode_part(some, range(start, start + len(some))))
    data = writer.finish(len(given), [])
    assert len(data) <= writer.size <= HEAD_MAX + sum(12 * each.size + 200 for each in given)


def test_the_numbers_are_aligned() -> None:
    for length in range(20):
        data = encode([Message("orders", message_id="x" * length)], [0], 1, [])
        assert (8 + int.from_bytes(data[4:8], "little")) % 8 == 0


@given(st.binary(max_size=200) | st.binary(max_size=100).map(lambda rest: b"OMB1" + rest))
def test_other_bytes_are_no_block(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(data)


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_one_wrong_byte_raises_nothing_else(place: int, byte: int) -> None:
    data = bytearray(encode([WHOLE, WHOLE], [3, 9], 10, [(4, 9)]))
    data[place % len(data)] = byte
    with suppress(ValueError):
        list(decode(bytes(data)).messages("orders"))


def made(starts: tuple[int, int, int] = (0, 1, 2), **changes: Any) -> bytes:  # noqa: ANN401 - whatever JSON holds
    head = {"count": 2, "offsets": 3, "next": 5, "dropped": [], "columns": {}, "properties": None} | changes
    text = json.dumps(head).encode()
    text += b" " * (-(8 + len(text)) % 8)
    return pack("<4sI", b"OMB1", len(text)) + text + pack("<iii", *starts) + b"ab"


def test_what_is_made_by_hand_is_a_block() -> None:
    assert [message.body for message in decode(made()).messages("orders")] == [b"a", b"b"]


def test_a_block_that_contradicts_itself_is_none(subtests: pytest.Subtests) -> None:
    cases: list[dict[str, Any]] = [
        {"count": 1},
        {"starts": (0, 3, 2)},
        {"starts": (0, -1, 2)},
        {"starts": (1, 1, 2)},
        {"starts": (0, 1, 1)},
        {"count": 10**30},
        {"count": -1},
        {"count": True},
        {"offsets": [4, 3]},
        {"offsets": [3, 3]},
        {"offsets": [3]},
        {"offsets": [-1, 3]},
        {"offsets": [1, True]},
        {"offsets": None},
        {"next": "5"},
        {"dropped": [[1]]},
        {"dropped": 5},
        {"columns": {"priority": ["3", "4"]}},
        {"columns": {"message_id": [1, 2]}},
        {"columns": {"message_id": ["a"]}},
        {"columns": {"body": ["a", "b"]}},
        {"columns": {"surplus": ["a", "b"]}},
        {"columns": []},
        {"properties": [{}]},
        {"properties": [{}, {"a": 1}]},
        {"properties": [{}, []]},
    ]
    for changes in cases:
        with subtests.test(changes=changes), pytest.raises(ValueError, match=r"."):
            decode(made(**changes))


def test_deep_nesting_is_no_block() -> None:
    text = b"[" * 100_000
    with pytest.raises(ValueError, match="not a block"):
        decode(pack("<4sI", b"OMB1", len(text)) + text)
