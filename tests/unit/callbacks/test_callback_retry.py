import time
from collections.abc import Iterator
from email.utils import formatdate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bridge.callbacks.retry_policy import (
    FAILURE_THRESHOLD,
    FIRST_BACKOFF,
    MAX_BACKOFF,
    MAX_COOLDOWN,
    PAUSE_MAX,
    CircuitBreaker,
    EndpointResponse,
    ResponseAction,
    RetryDecision,
    backoff,
    classify_response,
)

NOW = 1_767_225_600_000


def test_the_table_of_the_documents() -> None:
    longest = [backoff(step, MAX_BACKOFF, 1) for step in range(1, 16)]
    assert longest == [1000 * seconds for seconds in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, *[600] * 5)]
    assert [backoff(step, MAX_BACKOFF, 0) for step in range(1, 16)] == [pause // 2 for pause in longest]


@given(st.integers(1, 1 << 31), st.integers(FIRST_BACKOFF, PAUSE_MAX), st.floats(0, 1))
def test_a_pause_lies_between_half_of_the_longest_and_all_of_it(step: int, cap: int, chance: float) -> None:
    assert backoff(step, cap, 0) <= backoff(step, cap, chance) <= backoff(step, cap, 1) <= cap
    assert backoff(step, cap, 0) >= backoff(step, cap, 1) // 2 >= FIRST_BACKOFF // 2


@given(st.integers(1, 1 << 31), st.floats(0, 1))
def test_a_later_pause_is_not_shorter(step: int, chance: float) -> None:
    assert backoff(step, MAX_BACKOFF, chance) <= backoff(step + 1, MAX_BACKOFF, chance)


def test_a_2xx_acknowledges(subtests: pytest.Subtests) -> None:
    cases: list[str | None] = [None, "60"]
    for header in cases:
        for status in (200, 201, 202, 204, 299):
            with subtests.test(header=header, status=status):
                assert classify_response(EndpointResponse(status, header), NOW) == RetryDecision(
                    ResponseAction.ACKNOWLEDGE
                )


@pytest.mark.parametrize("header", [None, "60"])
def test_a_410_stops(header: str | None) -> None:
    assert classify_response(EndpointResponse(410, header), NOW) == RetryDecision(ResponseAction.STOP)


def test_anything_else_is_tried_again(subtests: pytest.Subtests) -> None:
    cases: list[str | None] = [None, "60"]
    for header in cases:
        for status in (300, 301, 302, 304, 307, 308, 400, 401, 404, 408, 422, 500, 502, 504, 599):
            with subtests.test(header=header, status=status):
                assert classify_response(EndpointResponse(status, header), NOW) == RetryDecision(ResponseAction.RETRY)


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kolkata", "XXX-14"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the test in another time zone."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("zone")
def test_429_and_503_say_how_long_to_pause(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, int]] = [
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
        ("Thu, 01 Jan 2026 00:00:30 -0000", 30_000),
        ("Thu, 01 Jan 2026 01:00:30 +0100", 30_000),
        ("Thu, 01 Jan 2026 00:00:30", 30_000),
        ("Thu, 01 Jan 2026 00:00:60 GMT", 60_000),
        ("Fri, 31 Dec 9999 23:59:59 GMT", PAUSE_MAX),
    ]
    for header, pause in cases:
        for status in (429, 503):
            with subtests.test(header=header, pause=pause, status=status):
                assert classify_response(EndpointResponse(status, header), NOW) == RetryDecision(
                    ResponseAction.PAUSE, pause
                )


def test_429_and_503_that_do_not_say_it_are_tried_again(subtests: pytest.Subtests) -> None:
    cases: list[str | None] = [None, "", "soon", "-5", "+5", "1.5", "1_0", "\u00b2", "Thu, 99 Jan 2026 00:00:00 GMT"]
    cases += ["Thu, 01 Jan 2026 00:00:61 GMT", "Thu, 01 Jan 2026 24:00:00 GMT"]
    for header in cases:
        for status in (429, 503):
            with subtests.test(header=header, status=status):
                assert classify_response(EndpointResponse(status, header), NOW) == RetryDecision(ResponseAction.RETRY)


@given(st.text(), st.sampled_from([429, 503]))
def test_no_header_breaks_it(header: str, status: int) -> None:
    decision = classify_response(EndpointResponse(status, header), NOW)
    assert decision == RetryDecision(ResponseAction.RETRY) or 1000 <= decision.pause <= PAUSE_MAX


def opened() -> CircuitBreaker:
    breaker = CircuitBreaker()
    for _ in range(FAILURE_THRESHOLD):
        breaker.fail(0, 1)
    return breaker


def test_it_opens_after_so_many_failures_in_a_row() -> None:
    breaker = CircuitBreaker()
    for _ in range(FAILURE_THRESHOLD - 1):
        breaker.fail(5, 1)
    assert breaker.closed
    breaker.succeed()
    for _ in range(FAILURE_THRESHOLD - 1):
        breaker.fail(5, 1)
    assert breaker.closed
    breaker.fail(5, 1)
    assert not breaker.closed
    assert breaker.until == 1005


def test_each_failed_probe_doubles_the_time_to_the_next() -> None:
    breaker, waits, now = opened(), [], 0
    for _ in range(12):
        waits.append(breaker.until - now)
        now = breaker.until
        breaker.fail(now, 1)
    assert waits == [1000 * seconds for seconds in (1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300)]


def test_late_failures_do_not_make_it_longer() -> None:
    breaker = opened()
    for _ in range(50):
        breaker.fail(999, 1)
    assert breaker.until == 1000


def test_one_success_closes_it_and_forgets() -> None:
    breaker = opened()
    breaker.succeed()
    assert (breaker.closed, breaker.until) == (True, 0)
    for _ in range(FAILURE_THRESHOLD):
        assert breaker.closed
        breaker.fail(7, 1)
    assert breaker.until == 1007, "the cool-down starts anew"


class Outcomes(RuleBasedStateMachine):
    """Any mix of outcomes and times, against what a person would work out from the list of them."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = CircuitBreaker()
        self.now = 0
        self.in_a_row = 0
        self.probes_failed = 0

    @rule(ms=st.integers(0, 2 * MAX_COOLDOWN))
    def wait(self, ms: int) -> None:
        self.now += ms

    @rule()
    def wait_for_the_probe(self) -> None:
        self.now = max(self.now, self.breaker.until)

    @rule()
    def succeed(self) -> None:
        self.breaker.succeed()
        self.in_a_row = self.probes_failed = 0

    @rule(chance=st.floats(0, 1), times=st.integers(1, FAILURE_THRESHOLD))
    def fail(self, chance: float, times: int) -> None:
        for _ in range(times):
            late = self.probes_failed and self.now < self.breaker.until
            before = self.breaker.until
            self.breaker.fail(self.now, chance)
            if late:
                assert self.breaker.until == before
                continue
            self.in_a_row += 1
            if self.in_a_row >= FAILURE_THRESHOLD:
                self.probes_failed += 1
                longest = min(1000 * 2 ** (self.probes_failed - 1), MAX_COOLDOWN)
                assert longest // 2 <= self.breaker.until - self.now <= longest

    @invariant()
    def it_is_open_after_the_threshold(self) -> None:
        assert self.breaker.closed == (self.in_a_row < FAILURE_THRESHOLD)


Outcomes.TestCase.settings = settings(stateful_step_count=60)
TestOutcomes = Outcomes.TestCase
