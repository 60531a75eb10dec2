"""A set of numbers kept as runs behaves as a set."""

from hypothesis import given
from hypothesis import strategies as st

from adapters.runs import Runs

numbers = st.integers(0, 40)


@given(st.lists(st.tuples(st.sampled_from(("add", "run", "below")), numbers, st.integers(1, 10))))
def test_runs_are_a_set(steps: list[tuple[str, int, int]]) -> None:
    runs, model = Runs(), set[int]()
    for step, number, length in steps:
        if step == "add":
            runs.add(number)
            model.add(number)
        elif step == "run":
            runs.add_run(number, number + length)
            model.update(range(number, number + length))
        else:
            runs.discard_below(number)
            model = {n for n in model if n >= number}
        members = [n for run in runs for n in run]
        assert members == sorted(model)
        assert list(runs.bounds()) == [(run.start, run.stop) for run in runs]
        assert len(runs) == len(model)
        assert bool(runs) == bool(model)
        assert all(a.stop < b.start for a, b in zip(list(runs), list(runs)[1:], strict=False)), "neighbours are joined"
        for n in range(52):
            assert (n in runs) == (n in model)
            assert runs.past(n) == next(p for p in range(n, 60) if p not in model)
        if model:
            assert runs.first == min(model)


def test_size_follows_the_gaps() -> None:
    runs = Runs()
    for number in range(1, 10_000):
        runs.add(number)
    assert list(runs) == [range(1, 10_000)]
