"""The budget of bytes: against a model, and what it says when it refuses."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.engine.client_limits import MemoryBudget
from bridge.errors import BridgeError, LimitReached, TooManyInFlight

A, A2, B, C = "10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1", "10.0.0.3:1"

STEPS = st.lists(st.tuples(st.sampled_from([A, A2, B, C]), st.integers(0, 60), st.booleans()), max_size=40)


@given(STEPS)
def test_no_limit_is_exceeded_and_everything_that_fits_is_taken(steps: list[tuple[str, int, bool]]) -> None:
    budget = MemoryBudget(100, 60, 1)  # 60 for an address, 36 for a connection
    held: Counter[str] = Counter()
    for peer, size, take in steps:
        if not take:
            budget.release(peer, held.pop(peer)) if held[peer] else None
            continue
        of_address = size + sum(held[each] for each in held if each[:8] == peer[:8])
        fits = held.total() + size <= 100 and of_address <= 60 and held[peer] + size <= 36
        try:
            budget.take(peer, size)
        except BridgeError:
            assert not fits
        else:
            assert fits
            held[peer] += size
        assert budget.held == held.total()


def test_the_refusal_says_whose_limit_it_is() -> None:
    budget = MemoryBudget(100, 60, 1)
    budget.take(A, 30)
    for peer, size, error, said in (
        (A, 7, LimitReached, "This connection would hold 37 bytes of memory; its share of limits.memory is 36."),
        (A2, 31, LimitReached, "The client address 10.0.0.1 would hold 61 bytes of memory; its share"),
        (A2, 30, None, ""),
        (B, 36, None, ""),
        (C, 5, TooManyInFlight, "All clients together would hold more than 100 bytes of memory"),
    ):
        if error is None:
            budget.take(peer, size)
            continue
        with pytest.raises(error, match=said) as refused:
            budget.take(peer, size)
        assert refused.value.retry_after == 5


def test_a_share_holds_the_largest_request() -> None:
    budget = MemoryBudget(100, 1, 80)
    budget.take(A, 80)
    with pytest.raises(LimitReached):
        budget.take(A, 1)
    budget.release(A, 80)
    budget.take(A, 80)


def test_what_is_given_back_leaves_nothing_behind() -> None:
    budget = MemoryBudget()
    for port in range(100):
        budget.take(f"10.0.0.1:{port}", 10)
        budget.release(f"10.0.0.1:{port}", 4)
        budget.release(f"10.0.0.1:{port}", 6)
    assert (budget.held, budget._clients, budget._connections) == (0, {}, {})
