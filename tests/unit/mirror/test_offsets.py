"""The record of offsets that a commit carries."""

import json

import pytest

from bridge.mirror.offsets import GAPS, Gap, Record, complete, from_json, to_json


def test_a_record_comes_back() -> None:
    record = Record("q", 3, 5, {"a": (0, 4), "b": (3, 9)}, (Gap("a", 1, 2), Gap("b", 3, None)), 7)
    assert from_json(to_json(record)) == record
    assert from_json(to_json(record, {"b"})) == record._replace(covered={"b": (3, 9)}, is_whole=False)
    assert from_json("of another program") is None
    with pytest.raises(ValueError, match="later version"):
        from_json(json.dumps({"oms-mirror": 2}))


def test_the_newest_is_put_together_from_what_moved() -> None:
    first = Record("q", 0, 1).after("q", 0, 5, {"a": (0, 4), "b": (0, 2)}, ())
    second = first.after("q", 1, 6, {"a": (4, 9)}, (Gap("a", 4, 5),))
    third = second.after("q", 2, 7, {"c": (7, 8)}, ())
    written = [from_json(to_json(third, {"c"})), from_json(to_json(second, {"a"})), from_json(to_json(first))]
    assert complete(record for record in written if record) == third
    assert third.covered == {"a": (0, 9), "b": (0, 2), "c": (7, 8)}
    assert complete(record for record in written[:2] if record) is None


def test_a_record_keeps_the_ranges_of_logs_that_have_ended() -> None:
    first = Record("q", 0, 5, {"orders/0": (0, 4), "orders/1": (3, 9)}, (Gap("orders/0", 1, 2),))
    ended = Gap("orders/1", 9, None)
    after = first.after("q", 1, 6, {"orders/0": (4, 7), "new/0": (0, 2)}, [ended])
    covered = {"orders/0": (0, 7), "orders/1": (3, 9), "new/0": (0, 2)}
    assert after == Record("q", 1, 6, covered, (*first.gaps, ended), 1)
    assert after.next == {"orders/0": 7, "orders/1": 9, "new/0": 2}


def test_a_range_that_is_held_already_is_found() -> None:
    record = Record("q", 0, 1, {"a": (3, 9)})
    assert record.overlap({"a": (9, 12), "b": (0, 5)}) is None
    assert record.overlap({"a": (8, 12)}) == ("a", 8, 9)


def test_only_the_newest_gaps_are_kept() -> None:
    record = Record("q", 0, 1, gaps=tuple(Gap("a", n, n + 1) for n in range(GAPS)))
    later = record.with_gaps([Gap("b", 0, 1)])
    assert (len(later.gaps), later.gaps[-1], later.sequence) == (GAPS, Gap("b", 0, 1), 1)
