"""How long a message waits on the ladder."""

import itertools
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from adapters.rabbitmq.pace import APART, LATE, Pace

NOW: Final = 1_700_000_000_000
SENT: Final = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3000)), min_size=1, max_size=60)
"""Milliseconds since the one before, and until it is due."""


@given(SENT)
def test_nothing_is_early_and_little_is_late(sent: list[tuple[int, int]]) -> None:
    pace, now = Pace(), NOW
    for since, ahead in sent:
        now += since
        wait = pace.wait("orders.p0", now + ahead, now)
        assert ahead < wait <= ahead + 1 + LATE


@given(st.integers(1, 100_000_000), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 10)), max_size=60))
def test_a_stream_with_one_delay_keeps_its_order(delay: int, sent: list[tuple[int, int]]) -> None:
    """Born one after another, each sent some milliseconds after its birth, none before another."""
    pace, now, born = Pace(), NOW, NOW
    passed: list[tuple[int, int]] = []
    for since, taken in sent:
        born += since
        now = max(now, born + taken)
        wait = pace.wait("orders.p0", born + delay, now)
        passed.append((wait, now + wait))
    for (wait, arrives), (next_wait, next_arrives) in itertools.pairwise(passed):
        assert (wait == next_wait and arrives <= next_arrives) or arrives + APART <= next_arrives


def test_a_burst_for_one_moment_takes_one_path() -> None:
    pace = Pace()
    waits = {pace.wait("orders.p0", NOW + 1000, NOW + sent) for sent in range(LATE + 1)}
    assert waits == {1001}


def test_one_that_is_due_before_the_last_does_not_wait_for_it() -> None:
    pace = Pace()
    pace.wait("orders.p0", NOW + 1000, NOW)
    assert pace.wait("orders.p0", NOW + 999, NOW) == 1000


def test_partitions_do_not_wait_for_each_other() -> None:
    pace = Pace()
    pace.wait("orders.p0", NOW + 1000, NOW)
    assert pace.wait("orders.p1", NOW + 1000, NOW + 5) == 996


def test_what_is_over_waits_as_short_as_can_be() -> None:
    assert Pace().wait("orders.p0", NOW - 5000, NOW) == 1


def test_it_forgets() -> None:
    pace = Pace()
    for number in range(10_000):
        pace.wait(f"orders{number}.p0", NOW + 1000, NOW)
    assert len(pace._last) <= 4096
