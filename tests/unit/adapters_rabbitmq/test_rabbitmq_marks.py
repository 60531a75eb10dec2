"""The note of a partition."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.rabbitmq.consume.attempts import AttemptsRecord, decode, encode

COUNTS = st.integers(1, 2**31 - 1)


@given(st.text(), st.dictionaries(st.text(), COUNTS))
def test_what_is_written_is_read(by: str, attempts: dict[str, int]) -> None:
    assert decode(encode(AttemptsRecord(by, attempts))) == AttemptsRecord(by, attempts)


def test_a_thousand_ids_take_little_more_room_than_themselves() -> None:
    attempts = {f"{number:032x}": 1 + number % 3 for number in range(1000)}
    assert len(encode(AttemptsRecord("x" * 32, attempts))) < 1000 * (32 + 4)


@given(st.binary())
def test_bytes_of_others_are_no_note(body: bytes) -> None:
    assert decode(body) is None


def test_what_only_looks_like_a_note_is_none(subtests: pytest.Subtests) -> None:
    cases: list[object] = [
        None,
        [],
        {},
        {"by": "x"},
        {"by": 1, "counts": {}},
        {"by": "x", "counts": []},
        {"by": "x", "counts": {"-1": []}},
        {"by": "x", "counts": {"": []}},
        {"by": "x", "counts": {"1": "ab"}},
        {"by": "x", "counts": {"1": [2]}},
        {"by": "x", "counts": {"²": ["a"]}},
        {"by": "x", "counts": {"1" * 5000: ["a"]}},
    ]
    for held in cases:
        with subtests.test(held=held):
            assert decode(json.dumps(held).encode()) is None


def test_what_is_nested_too_deeply_is_no_note() -> None:
    assert decode(b"[" * 100_000) is None


def test_a_count_is_no_larger_than_the_field_holds() -> None:
    assert decode(b'{"by": "x", "counts": {"9999999999": ["a"]}}') == AttemptsRecord("x", {"a": 2**31 - 1})
