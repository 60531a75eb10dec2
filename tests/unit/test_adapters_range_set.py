"""A set of numbers kept as ranges behaves as a set."""

from hypothesis import given
from hypothesis import strategies as st

from adapters.range_set import RangeSet

numbers = st.integers(0, 40)


@given(st.lists(st.tuples(st.sampled_from(("add", "range", "below")), numbers, st.integers(1, 10))))
def test_ranges_are_a_set(steps: list[tuple[str, int, int]]) -> None:
    ranges, model = RangeSet(), set[int]()
    for step, number, length in steps:
        if step == "add":
            ranges.add(number)
            model.add(number)
        elif step == "range":
            ranges.add_range(number, number + length)
            model.update(range(number, number + length))
        else:
            ranges.discard_below(number)
            model = {n for n in model if n >= number}
        members = [n for each in ranges for n in each]
        assert members == sorted(model)
        assert list(ranges.bounds()) == [(each.start, each.stop) for each in ranges]
        assert len(ranges) == len(model)
        assert bool(ranges) == bool(model)
        assert all(a.stop < b.start for a, b in zip(list(ranges), list(ranges)[1:], strict=False)), (
            "neighbours are joined"
        )
        for n in range(52):
            assert (n in ranges) == (n in model)
            assert ranges.past(n) == next(p for p in range(n, 60) if p not in model)
        if model:
            assert ranges.first == min(model)


def test_size_follows_the_gaps() -> None:
    ranges = RangeSet()
    for number in range(1, 10_000):
        ranges.add(number)
    assert list(ranges) == [range(1, 10_000)]
