"""How long a message waits in delay levels."""

import itertools
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from adapters.rabbitmq.delay.levels import APART, LATE, LONGEST, UNIT, KeyOrder, not_before

NOW: Final = 1_700_000_000_000
LANE: Final = ("orders.p0", "key")
SENT: Final = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3000)), min_size=1, max_size=60)
"""Milliseconds since the one before, and until it is due."""


def in_order(waits: list[tuple[int, int]]) -> bool:
    """Whether each takes the path of the one before and is sent after it, or arrives some time after it."""
    return all(
        (wait == next_wait and arrives <= next_arrives) or arrives + APART <= next_arrives
        for (wait, arrives), (next_wait, next_arrives) in itertools.pairwise(waits)
    )


@given(SENT)
def test_nothing_leaves_the_levels_long_before_or_after_it_is_due(sent: list[tuple[int, int]]) -> None:
    pace, now = KeyOrder(), NOW
    for since, ahead in sent:
        now += since
        wait = pace.wait(LANE, now + ahead, now)
        assert wait % UNIT == 0
        assert ahead - APART - UNIT < wait <= max(ahead - APART, 0) + LATE


@given(SENT)
def test_without_a_key_nothing_waits_for_anything(sent: list[tuple[int, int]]) -> None:
    pace, now = KeyOrder(), NOW
    for since, ahead in sent:
        now += since
        assert pace.wait(None, now + ahead, now) == max(ahead - APART, 0) // UNIT * UNIT


@given(st.integers(1, 100_000_000), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 10)), max_size=30))
def test_a_stream_with_one_delay_keeps_its_order(delay: int, sent: list[tuple[int, int]]) -> None:
    """Born one after another, each sent some milliseconds after its birth, none before another."""
    pace, now, born = KeyOrder(), NOW, NOW
    passed: list[tuple[int, int]] = []
    for since, taken in sent:
        born += since
        now = max(now, born + taken)
        wait = pace.wait(LANE, born + delay, now)
        passed.append((wait, now + wait))
        assert wait <= max(born + delay - now, 0) + 2 * UNIT
    assert in_order(passed)


def test_a_burst_for_one_moment_keeps_its_order_however_long_it_takes_to_send() -> None:
    pace = KeyOrder()
    assert in_order([(wait := pace.wait(LANE, NOW + 5000, NOW + sent), NOW + sent + wait) for sent in range(0, 950, 7)])


def test_nothing_waits_for_order_forever() -> None:
    pace = KeyOrder()
    waits = {sent: pace.wait(LANE, NOW + 9000, NOW + sent) for sent in range(0, 2500, 7)}
    late = {sent: sent + wait - 9000 for sent, wait in waits.items()}
    assert max(late.values()) <= LATE
    assert late[max(late)] < LATE - UNIT, "it begins anew"


def test_one_that_is_due_before_the_last_does_not_wait_for_it() -> None:
    pace = KeyOrder()
    pace.wait(LANE, NOW + 1000, NOW)
    assert pace.wait(LANE, NOW + 899, NOW) == 800


def test_keys_do_not_wait_for_each_other() -> None:
    pace = KeyOrder()
    pace.wait(LANE, NOW + 1020, NOW)
    assert pace.wait(("orders.p0", "another"), NOW + 1020, NOW + 5) == 900
    assert pace.wait(LANE, NOW + 1020, NOW + 5) == 1000


def test_what_is_over_does_not_wait_and_nothing_waits_longer_than_the_levels_can() -> None:
    assert KeyOrder().wait(LANE, NOW - 5000, NOW) == 0
    assert KeyOrder().wait(LANE, NOW + 2 * LONGEST, NOW) == LONGEST


@given(st.integers(-5000, LONGEST))
def test_what_the_engine_does_not_hold_is_never_early(ahead: int) -> None:
    wait = not_before(NOW + ahead, NOW)
    assert wait % UNIT == 0
    assert ahead < wait <= max(ahead, 0) + 1 + UNIT or (ahead < 0 and wait == 0) or wait == LONGEST


def test_it_forgets() -> None:
    pace = KeyOrder()
    for number in range(10_000):
        pace.wait(("orders.p0", f"{number}"), NOW + 1000, NOW)
    assert len(pace._last) <= 4096
