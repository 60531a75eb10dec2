from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.callbacks.answer import Answer
from bridge.callbacks.schedule import CAP, FIRST, PAUSE_MAX, Ruling, Verdict, backoff, judge

NOW = 1_767_225_600_000


def test_the_table_of_the_documents() -> None:
    longest = [backoff(step, CAP, 1) for step in range(1, 16)]
    assert longest == [1000 * seconds for seconds in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, *[600] * 5)]
    assert [backoff(step, CAP, 0) for step in range(1, 16)] == [pause // 2 for pause in longest]


@given(st.integers(1, 1 << 31), st.integers(FIRST, PAUSE_MAX), st.floats(0, 1))
def test_a_pause_lies_between_half_of_the_longest_and_all_of_it(step: int, cap: int, chance: float) -> None:
    assert backoff(step, cap, 0) <= backoff(step, cap, chance) <= backoff(step, cap, 1) <= cap
    assert backoff(step, cap, 0) >= backoff(step, cap, 1) // 2 >= FIRST // 2


@given(st.integers(1, 1 << 31), st.floats(0, 1))
def test_a_later_pause_is_not_shorter(step: int, chance: float) -> None:
    assert backoff(step, CAP, chance) <= backoff(step + 1, CAP, chance)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
@pytest.mark.parametrize("header", [None, "60"])
def test_a_2xx_acknowledges(status: int, header: str | None) -> None:
    assert judge(Answer(status, header), NOW) == Ruling(Verdict.ACKNOWLEDGE)


@pytest.mark.parametrize("header", [None, "60"])
def test_a_410_stops(header: str | None) -> None:
    assert judge(Answer(410, header), NOW) == Ruling(Verdict.STOP)


@pytest.mark.parametrize("status", [300, 301, 302, 304, 307, 308, 400, 401, 404, 408, 422, 500, 502, 504, 599])
@pytest.mark.parametrize("header", [None, "60"])
def test_anything_else_is_tried_again(status: int, header: str | None) -> None:
    assert judge(Answer(status, header), NOW) == Ruling(Verdict.RETRY)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("header", "pause"),
    [
        ("30", 30_000),
        (" 30 ", 30_000),
        ("1", 1_000),
        ("0", 1_000),
        ("86400", PAUSE_MAX),
        ("86401", PAUSE_MAX),
        ("9" * 5000, PAUSE_MAX),
        (formatdate(NOW / 1000 + 30, usegmt=True), 30_000),
        (formatdate(NOW / 1000 - 30, usegmt=True), 1_000),
        (formatdate(NOW / 1000 + 90_000, usegmt=True), PAUSE_MAX),
        ("Thursday, 01-Jan-26 00:00:30 GMT", 30_000),
        ("Thu Jan  1 00:00:30 2026", 30_000),
        ("Fri, 31 Dec 9999 23:59:59 GMT", PAUSE_MAX),
    ],
)
def test_429_and_503_say_how_long_to_pause(status: int, header: str, pause: int) -> None:
    assert judge(Answer(status, header), NOW) == Ruling(Verdict.PAUSE, pause)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    "header", [None, "", "soon", "-5", "+5", "1.5", "1_0", "\u00b2", "Thu, 99 Jan 2026 00:00:00 GMT"]
)
def test_429_and_503_that_do_not_say_it_are_tried_again(status: int, header: str | None) -> None:
    assert judge(Answer(status, header), NOW) == Ruling(Verdict.RETRY)


@given(st.text(), st.sampled_from([429, 503]))
def test_no_header_breaks_it(header: str, status: int) -> None:
    ruling = judge(Answer(status, header), NOW)
    assert ruling == Ruling(Verdict.RETRY) or 1000 <= ruling.pause <= PAUSE_MAX
