from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bridge.callbacks.breaker import COOLDOWN_CAP, THRESHOLD, Breaker


def opened() -> Breaker:
    breaker = Breaker()
    for _ in range(THRESHOLD):
        breaker.fail(0, 1)
    return breaker


def test_it_opens_after_so_many_failures_in_a_row() -> None:
    breaker = Breaker()
    for _ in range(THRESHOLD - 1):
        breaker.fail(5, 1)
    assert breaker.closed
    breaker.succeed()
    for _ in range(THRESHOLD - 1):
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
    for _ in range(THRESHOLD):
        assert breaker.closed
        breaker.fail(7, 1)
    assert breaker.until == 1007, "the cool-down starts anew"


class Outcomes(RuleBasedStateMachine):
    """Any mix of outcomes and times, against what a person would work out from the list of them."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker()
        self.now = 0
        self.in_a_row = 0
        self.probes_failed = 0

    @rule(ms=st.integers(0, 2 * COOLDOWN_CAP))
    def wait(self, ms: int) -> None:
        self.now += ms

    @rule()
    def wait_for_the_probe(self) -> None:
        self.now = max(self.now, self.breaker.until)

    @rule()
    def succeed(self) -> None:
        self.breaker.succeed()
        self.in_a_row = self.probes_failed = 0

    @rule(chance=st.floats(0, 1), times=st.integers(1, THRESHOLD))
    def fail(self, chance: float, times: int) -> None:
        for _ in range(times):
            late = self.probes_failed and self.now < self.breaker.until
            before = self.breaker.until
            self.breaker.fail(self.now, chance)
            if late:
                assert self.breaker.until == before
                continue
            self.in_a_row += 1
            if self.in_a_row >= THRESHOLD:
                self.probes_failed += 1
                longest = min(1000 * 2 ** (self.probes_failed - 1), COOLDOWN_CAP)
                assert longest // 2 <= self.breaker.until - self.now <= longest

    @invariant()
    def it_is_open_after_the_threshold(self) -> None:
        assert self.breaker.closed == (self.in_a_row < THRESHOLD)


Outcomes.TestCase.settings = settings(stateful_step_count=60)
TestOutcomes = Outcomes.TestCase
