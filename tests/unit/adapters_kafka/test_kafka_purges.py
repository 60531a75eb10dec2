"""What marks in the topic of purges come to."""

import logging

import pytest

from adapters.kafka.deletion import _marks
from adapters.kafka.mapping import Part, Record


def lying(offset: int, key: bytes | None, value: bytes | None) -> Record:
    return Record("oms.purges", 0, offset, 0, key, value, ())


def test_the_last_mark_of_a_topic_counts() -> None:
    first, last = b'[["oms.delay.8s", 1, 7]]', b'[["oms.delay.8s", 1, 9], ["oms.delay.due", 0, 2]]'
    assert _marks([lying(0, b"orders", first), lying(1, b"other", first), lying(2, b"orders", last)]) == {
        "orders": {Part("oms.delay.8s", 1): 9, Part("oms.delay.due", 0): 2},
        "other": {Part("oms.delay.8s", 1): 7},
    }
    assert _marks([lying(0, b"orders", first), lying(1, b"orders", None)]) == {}


@pytest.mark.parametrize("value", [b"x", b"7", b"[7]", b'[["t", 0, null]]', b"\xff"])
def test_what_another_program_has_written_is_skipped(value: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert _marks([lying(0, b"orders", value), lying(1, b"other", b"[]")]) == {"other": {}}
    assert "a record is not a mark of a purge" in caplog.text
