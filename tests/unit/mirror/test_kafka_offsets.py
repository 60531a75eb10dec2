"""What lies between two offsets of Spark's connector, and what of it is gone."""

from adapters.kafka.record import Part
from bridge.mirror.offsets import Gap
from bridge.mirror.sources.kafka import source as offsets
from bridge.mirror.sources.kafka.client import Offsets

A, B, C = Part("a", 0), Part("a", 1), Part("c", 0)
NONE: frozenset[str] = frozenset()


def gaps(before: Offsets, after: Offsets, firsts: Offsets, recreated: frozenset[str] = NONE) -> list[Gap]:
    return list(offsets.gaps_between(before, after, firsts, recreated))


def test_offsets_are_read_as_spark_writes_them() -> None:
    assert offsets.read_offsets('{"a":{"0":22,"1":28},"c":{"0":0}}') == {A: 22, B: 28, C: 0}
    assert offsets.read_offsets('\0v1\n{"a":{"0":0}}') == {A: 0}
    assert offsets.read_offsets("{}") == {}


def test_offsets_are_written_so_that_they_are_read() -> None:
    assert offsets.read_offsets(offsets.write_offsets({C: 1, B: 2, A: 3})) == {C: 1, B: 2, A: 3}
    assert offsets.write_offsets({B: 2, A: 3}) == '{"a": {"0": 3, "1": 2}}'


def test_a_start_names_every_partition_and_no_other() -> None:
    told = offsets.starting_offsets({"a/1": 7, "gone/0": 3}, iter([A, B]))
    assert offsets.read_offsets(told) == {A: -2, B: 7}


def test_what_moved() -> None:
    assert offsets.ranges_between({A: 5, B: 5}, {A: 9, B: 5, C: 2}) == {"a/0": (5, 9), "c/0": (0, 2)}


def test_a_range_that_regresses_was_not_read() -> None:
    assert offsets.ranges_between({A: 50}, {A: 5}) == {}


def test_nothing_is_gone() -> None:
    assert gaps({A: 5}, {A: 9, C: 2}, {A: 5, B: 3, C: 0}) == []


def test_a_truncated_range() -> None:
    assert gaps({A: 5}, {A: 9}, {A: 7}) == [Gap("a/0", 5, 7)]
    assert gaps({A: 5}, {A: 9}, {A: 70}) == [Gap("a/0", 5, 9)], "the next batch will name the rest"
    assert gaps({A: 9}, {A: 9}, {A: 70}) == []


def test_a_new_log_that_begins_late() -> None:
    assert gaps({}, {A: 9}, {A: 7}) == [Gap("a/0", 0, 7)]


def test_a_log_that_is_gone() -> None:
    assert gaps({A: 5, B: 5}, {A: 5}, {A: 0}) == [Gap("a/1", 5, None)]
    assert gaps({A: 5}, {A: 9}, {}) == [Gap("a/0", 5, 9)], "after it was planned"


def test_a_topic_made_anew() -> None:
    assert gaps({A: 50}, {A: 5}, {A: 0}) == [Gap("a/0", 50, None), Gap("a/0", 0, 5)]
    assert gaps({A: 50}, {A: 0}, {A: 0}) == [Gap("a/0", 50, None)]


def test_a_topic_made_anew_that_has_grown_past_where_the_old_one_was() -> None:
    assert gaps({A: 50}, {A: 60}, {A: 0}, frozenset({"a"})) == [Gap("a/0", 50, None), Gap("a/0", 0, 50)]
