from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mirror.layout import AREAS
from bridge.mirror.manifest import Gap
from bridge.mirror.watch.events import (
    Ended,
    Event,
    Idled,
    OutageBegan,
    OutageEnded,
    Progressed,
    Started,
    Stopped,
    Unmirrored,
)
from bridge.mirror.watch.state import GAPS, SPEEDS, Condition, State
from tests.unit.mirror.watched import BEGIN, batch, busy, told

STARTED = Started("run", BEGIN)
AWAY = OutageBegan("it does not answer", BEGIN + 5)


def progressed(rows: int, when: int, lag: dict[str, int] | None = None) -> Progressed:
    return Progressed(rows, 2300, lag, BEGIN + when)


def test_a_batch_adds_to_the_totals() -> None:
    state = told([batch(1, {"data": 5, "quarantine": 1}), batch(2, {"dead-letters": 2})])
    assert state.rows == {"data": 5, "dead-letters": 2, "quarantine": 1}
    assert (state.total, state.batches, state.files, state.bytes) == (8, 2, 8, 700_000)
    assert state.last == batch(2, {"dead-letters": 2})


@given(st.lists(st.dictionaries(st.sampled_from(AREAS), st.integers(0, 10**9))))
def test_totals_are_the_sums(areas: list[dict[str, int]]) -> None:
    state = told(batch(number, rows) for number, rows in enumerate(areas))  # type: ignore[arg-type]
    assert state.rows == {area: sum(rows.get(area, 0) for rows in areas) for area in AREAS}


def test_a_state_is_never_changed() -> None:
    first = told([STARTED, batch(1, {"data": 5})])
    told([batch(2, {"data": 5}), progressed(5, 10), Stopped(None, BEGIN)], first)
    assert (first.rows["data"], first.speeds, first.condition) == (5, (), "running")


@pytest.mark.parametrize(
    ("events", "condition", "reason"),
    [
        ([], "starting", None),
        ([STARTED], "running", None),
        ([STARTED, AWAY], "waiting", "it does not answer"),
        ([AWAY], "waiting", "it does not answer"),
        ([STARTED, AWAY, OutageEnded(BEGIN)], "running", None),
        ([STARTED, AWAY, progressed(1, 10)], "running", None),
        ([STARTED, AWAY, progressed(0, 10)], "waiting", "it does not answer"),
        ([STARTED, Ended("run", "it broke", BEGIN)], "starting", "it broke"),
        ([STARTED, Ended("run", "it broke", BEGIN), Started("again", BEGIN)], "running", None),
        ([STARTED, Started("again", BEGIN), Ended("run", "it broke", BEGIN)], "running", None),
        ([STARTED, Stopped("disk full", BEGIN)], "stopped", "disk full"),
        ([STARTED, Stopped(None, BEGIN)], "stopped", None),
        ([STARTED, AWAY, Stopped(None, BEGIN)], "stopped", None),
        ([STARTED, Stopped(None, BEGIN), Ended("run", None, BEGIN)], "stopped", None),
    ],
)
def test_the_condition(events: list[Event], condition: Condition, reason: str | None) -> None:
    state = told(events)
    assert (state.condition, state.reason) == (condition, reason)


def test_an_outage_goes_on_with_its_last_reason() -> None:
    state = told([STARTED, AWAY, OutageBegan("it refuses", BEGIN + 50)])
    assert state.waiting == OutageBegan("it refuses", AWAY.when)


def test_each_run_after_the_first_is_a_restart() -> None:
    assert told([]).restarts == 0
    assert told([STARTED]).restarts == 0
    assert told([STARTED, Ended("run", "x", BEGIN), Started("2", BEGIN), Started("3", BEGIN)]).restarts == 2


def test_the_speed_is_of_rows_mirrored_from_trigger_to_trigger() -> None:
    state = told([STARTED, batch(1, {"data": 90, "dead-letters": 10}), progressed(200, 4_000)])
    assert state.speed == 25
    state = told([batch(2, {"data": 50}), progressed(100, 9_000), Idled(BEGIN + 10_000)], state)
    assert state.speeds == (25, 10, 0)
    assert told([batch(3, {"data": 50}), Idled(BEGIN + 15_000)], state).speed == 10


def test_the_speed_begins_anew_with_a_run() -> None:
    state = told([STARTED, batch(1, {"data": 100}), progressed(1, 1_000), Started("again", BEGIN + 100_000)])
    assert told([batch(2, {"data": 50}), progressed(1, 102_000)], state).speed == 25


def test_two_triggers_at_the_same_moment_do_no_harm() -> None:
    assert told([STARTED, batch(1, {"data": 1}), progressed(1, 0), progressed(1, 0)]).speeds == (1000, 0)


@pytest.mark.parametrize("last", [AWAY, Stopped(None, BEGIN), Ended("run", None, BEGIN)])
def test_nothing_is_fast_while_nothing_runs(last: Event) -> None:
    assert told([last], busy()).speed == 0


def test_the_lag() -> None:
    assert told([STARTED]).behind is None
    assert told([progressed(1, 1, {})]).behind == 0
    state = told([progressed(1, 1, {"a": 3, "b": 5, "c": 1})])
    assert state.behind == 9
    assert state.worst(2) == [("b", 5), ("a", 3)]
    assert told([progressed(1, 2, None)], state).behind is None


def test_what_is_kept_is_bounded() -> None:
    gaps = [Gap("log", n, n + 1) for n in range(GAPS * 2)]
    events = [event for n in range(SPEEDS * 2) for event in (batch(n, {}, tuple(gaps[:3])), progressed(0, n))]
    state = told([*events, batch(0, {}, tuple(gaps))])
    assert (len(state.speeds), len(state.gaps)) == (SPEEDS, GAPS)
    assert state.gap_count == SPEEDS * 2 * 3 + len(gaps)
    assert state.gaps[-1] == gaps[-1]


def test_rows_that_come_are_seen_and_an_empty_trigger_is_not() -> None:
    state = told([STARTED, progressed(5, 1_000), progressed(0, 9_000)])
    assert (state.seen, state.trigger) == (BEGIN + 1_000, 2300)
    assert told([batch(1, {"data": 1}, when=BEGIN + 50_000)], state).seen == BEGIN + 50_000
    assert told([batch(1, {"data": 0}, when=BEGIN + 50_000)], state).seen == BEGIN + 1_000


def test_destinations_that_are_not_mirrored_are_those_told_last() -> None:
    state = told([Unmirrored({"a": "x"}), Unmirrored({"d": "full", "c": "old"})])
    assert list(state.unmirrored.items()) == [("c", "old"), ("d", "full")]


def test_totals_never_fall() -> None:
    events: list[Event] = [STARTED, batch(1, {"data": 1}), AWAY, Started("2", BEGIN), batch(2, {"data": 1})]
    states = [told(events[:count]) for count in range(len(events) + 1)]
    assert all(a.total <= b.total and a.batches <= b.batches for a, b in pairwise(states))
    assert State(BEGIN).total == 0
