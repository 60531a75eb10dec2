"""The planner of the sources in Python: nothing twice, nothing skipped silently, no batch without news."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bridge.mirror.offsets import Gap
from bridge.mirror.sources.ranges import (
    Position,
    capped,
    describe,
    ended,
    from_json,
    gaps,
    moved,
    plan,
    read,
    split,
    to_json,
)

pairs = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda pair: (min(pair), max(pair)))
logs = st.dictionaries(st.sampled_from("abcdef"), pairs, max_size=5)


def test_begins_with_the_oldest_or_as_told() -> None:
    after = plan({}, {"a": (3, 9), "b": (0, 4)}, {"b": 2}, None)
    assert after == {"a": Position(3, 9, 9), "b": Position(2, 4, 4)}
    assert moved({}, after) == {"a": (3, 9), "b": (2, 4)}
    assert gaps({}, after) == []


def test_a_log_without_anything_joins_the_next_batch() -> None:
    assert plan({}, {"a": (3, 3), "b": (0, 0)}, {}, None) == {}
    before = {"a": Position(0, 5, 5)}
    assert plan(before, {"a": (0, 5), "b": (0, 0)}, {}, None) == before
    assert plan(before, {"a": (0, 6), "b": (0, 0)}, {}, None) == {"a": Position(0, 6, 6), "b": Position(0, 0, 0)}


def test_a_log_that_is_empty_at_first_has_no_gap() -> None:
    bounds = {"a": (0, 9), "expired": (100, 100)}
    first = plan({}, bounds, {}, None)
    assert moved({}, first) == {"a": (0, 9)}
    second = plan(first, bounds | {"a": (0, 10)}, {}, None)
    assert gaps(first, second) == []
    third = plan(second, bounds | {"expired": (100, 103)}, {}, None)
    assert (moved(second, third), gaps(second, third)) == ({"expired": (100, 103)}, [])
    fourth = plan(third, bounds | {"expired": (105, 106)}, {}, None)
    assert gaps(third, fourth) == [Gap("expired", 103, 105)]


def test_goes_on_where_it_was() -> None:
    before = plan({}, {"a": (3, 9)}, {}, None)
    after = plan(before, {"a": (4, 12)}, {"a": 3}, None)
    assert moved(before, after) == {"a": (9, 12)}
    assert moved({}, after) == {"a": (3, 12)}


def test_never_goes_back() -> None:
    before = {"a": Position(0, 9, 9)}
    assert plan(before, {"a": (0, 5)}, {}, None) == before


def test_what_went_too_early_is_told_once_and_covered() -> None:
    before = {"a": Position(0, 9, 9)}
    after = plan(before, {"a": (12, 20)}, {}, 3)
    assert after == {"a": Position(0, 15, 20, (9, 12))}
    assert gaps(before, after) == [Gap("a", 9, 12)]
    assert moved(before, after) == {"a": (9, 15)}
    later = plan(after, {"a": (12, 20)}, {}, None)
    assert gaps(after, later) == []
    assert moved(after, later) == {"a": (15, 20)}


def test_a_gap_with_nothing_behind_it_is_told() -> None:
    before = {"a": Position(0, 9, 9)}
    after = plan(before, {"a": (12, 12)}, {}, None)
    assert gaps(before, after) == [Gap("a", 9, 12)]


def test_a_log_that_is_made_meanwhile_begins_at_nought() -> None:
    before = {"a": Position(0, 9, 9)}
    after = plan(before, {"a": (0, 9), "b": (4, 6)}, {}, None)
    assert gaps(before, after) == [Gap("b", 0, 4)]
    assert moved(before, after) == {"b": (0, 6)}


def test_the_end_of_a_log_with_unread_messages_is_a_gap_once() -> None:
    before = {"a": Position(0, 9, 12), "b": Position(0, 1, 1)}
    after = plan(before, {"b": (0, 1)}, {}, None)
    assert gaps(before, after) == [Gap("a", 9, None)]
    assert moved(before, after) == {}
    assert plan(after, {"b": (0, 1)}, {}, None) == after
    later = plan(after, {"b": (0, 2)}, {}, None)
    assert "a" not in later
    assert gaps(after, later) == []


def test_the_end_of_a_log_that_was_read_is_no_gap() -> None:
    before = {"a": Position(0, 9, 9), "b": Position(0, 1, 1)}
    after = plan(before, {"b": (0, 1)}, {}, None)
    assert (moved(before, after), gaps(before, after)) == ({}, [])
    assert ended(after["a"])
    again = plan(after, {"a": (0, 3), "b": (0, 1)}, {}, None)
    assert moved(after, again) == {"a": (0, 3)}, "another log of that name"


def test_without_news_the_text_is_the_same() -> None:
    before = {"b": Position(0, 15, 15, (9, 12)), "a": Position(0, 1, 1)}
    assert json.dumps(to_json(plan(before, {"a": (0, 1), "b": (12, 15)}, {}, None))) == json.dumps(to_json(before))
    assert list(to_json(before)) == ["a", "b"]


def test_the_shortest_backlogs_come_first_and_no_log_waits_for_ever() -> None:
    bounds = {"a": (0, 1000), "b": (0, 3), "c": (0, 500)}
    assert moved({}, plan({}, bounds, {}, 103)) == {"a": (0, 50), "b": (0, 3), "c": (0, 50)}


@given(logs, st.integers(1, 60))
def test_all_is_read_once_whatever_the_limit(bounds: dict[str, tuple[int, int]], limit: int) -> None:
    offset: dict[str, Position] = {}
    seen: dict[str, list[int]] = {}
    for _ in range(1000):
        after = read(json.dumps(to_json(plan(offset, bounds, {}, limit))))
        ranges = moved(offset, after)
        assert sum(end - start for start, end in ranges.values()) <= limit + sum(
            gap.end - gap.start for gap in gaps(offset, after) if gap.end is not None
        )
        for log, (start, end) in ranges.items():
            seen.setdefault(log, []).extend(range(start, end))
        if after == offset:
            break
        offset = after
    # a log that was not in the first batch counts as made meanwhile: it is covered from nought on, with a gap
    for log, (first, end) in bounds.items():
        if first < end:
            assert seen[log][-(end - first) :] == list(range(first, end))
            assert seen[log] == sorted(set(seen[log]))


@given(st.lists(logs, min_size=1, max_size=6), st.integers(1, 60))
def test_whatever_happens_to_the_logs_every_offset_is_covered_once_in_order(
    life: list[dict[str, tuple[int, int]]], limit: int
) -> None:
    offset: dict[str, Position] = {}
    for bounds in life:
        after = plan(offset, bounds, {}, limit)
        assert from_json(json.loads(json.dumps(to_json(after)))) == after
        for log, (start, end) in moved(offset, after).items():
            assert start < end
            if log in offset:
                assert start == (after[log].begin if offset[log].lost == (offset[log].next, None) else offset[log].next)
            for gap in gaps(offset, after):
                assert gap.end is None or gap.log != log or start <= gap.start < gap.end <= end
        offset = after


def test_available_now_stops_where_it_began() -> None:
    assert capped({"a": (2, 9), "b": (0, 3)}, {"a": (0, 5)}) == {"a": (2, 5)}


@given(logs, st.integers(1, 8), st.integers(1, 20))
def test_tasks_share_every_offset_out(ranges: dict[str, tuple[int, int]], tasks: int, least: int) -> None:
    shares = split(ranges, tasks, least)
    assert len(shares) <= tasks
    found: dict[str, list[int]] = {}
    for splits in shares:
        for log, start, end in splits:
            assert start < end
            found.setdefault(log, []).extend(range(start, end))
    assert found == {log: list(range(start, end)) for log, (start, end) in ranges.items() if start < end}
    sizes = [sum(piece.end - piece.start for piece in splits) for splits in shares]
    assert not sizes or max(sizes) <= max(-(-sum(sizes) // tasks), least)


def test_many_logs_become_few_tasks() -> None:
    assert len(split({f"log/{n}": (0, 25) for n in range(8000)}, 2)) == 2


def test_losses_are_named() -> None:
    assert describe([Gap("a", 3, 5), Gap("b", 7, None)]) == "a from 3 to 4; b from 7 on"
    many: list[Any] = [Gap("a", n, n + 1) for n in range(12)]
    assert describe(many).endswith("; and 2 more")
