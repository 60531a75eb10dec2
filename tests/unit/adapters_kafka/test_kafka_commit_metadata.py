"""The text beside a commit: what it says comes back, it always fits, and other tools' text means nothing."""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.kafka.consume.commit_metadata import CHARACTERS_MAX, decode, encode
from adapters.range_set import RangeSet


def runs_of(*offsets: int) -> RangeSet:
    runs = RangeSet()
    for offset in offsets:
        runs.add(offset)
    return runs


def members(runs: RangeSet) -> list[int]:
    return [offset for run in runs for offset in run]


lows = st.sampled_from((0, 1, 99, 2**31, 2**63 - 100_000))


def scattered(seed: int, share: float) -> set[int]:
    rng = random.Random(seed)  # noqa: S311
    return {place for place in range(1, 3000) if rng.random() < share}


places = st.one_of(
    st.sets(st.integers(1, 60)),
    st.sets(st.integers(1, 5000), max_size=60),
    st.builds(scattered, st.integers(), st.floats(0, 1)),
)


@given(lows, places, st.dictionaries(st.integers(0, 3000), st.integers(1, 2**31), max_size=100))
def test_marks_come_back(low: int, settled: set[int], attempts: dict[int, int]) -> None:
    runs = runs_of(*(low + place for place in settled))
    counts = {low + place: count for place, count in attempts.items() if place not in settled}
    text = encode(low, runs, counts)
    assert len(text) <= CHARACTERS_MAX
    assert text.isascii()
    assert text.isprintable()
    back, back_counts = decode(text, low)
    assert members(back) == members(runs)
    assert back_counts == counts


def test_the_text() -> None:
    """It is written down in a cluster, and read by the next version: it must not change by accident."""
    assert encode(100, RangeSet(), {}) == ""
    assert encode(100, runs_of(101, 102, 140), {100: 1, 103: 40}) == "oms1:100:rBClBB:BBBoB"
    assert encode(100, runs_of(*range(101, 180, 2)), {}) == "oms1:100:bVVVVVVVVVVVVVQAA:"
    settled, attempts = decode("oms1:100:rBClBB:BBBoB", 100)
    assert members(settled) == [101, 102, 140]
    assert attempts == {100: 1, 103: 40}


def test_a_position_that_was_moved_makes_it_void(subtests: pytest.Subtests) -> None:
    for offset in (99, 101, 10, 1000):
        with subtests.test(offset=offset):
            settled, attempts = decode("oms1:100:rBClBB:BBBoB", offset)
            assert not settled
            assert attempts == {}


def test_text_of_another_tool_says_nothing(subtests: pytest.Subtests) -> None:
    cases: list[str] = [
        "",
        "NO_METADATA",
        "oms2:100:rBC:",
        "oms1:0100:rBC:",
        "oms1:100:rBC",
        "oms1:100:rBC::",
        "oms1:100:xBC:",
        "oms1:100:rB:",
        "oms1:100:rBg:",
        "oms1:100:rAB:",
        "oms1:100:rBA:",
        "oms1:100:rB!:",
        "oms1:100:bVV:",
        "oms1:100:bgAAA:",
        "oms1:100:bVV V:",
        "oms1:100:rBC:B",
        "oms1:100:rBC:" + "_____B" * 9,
        "oms1:100:rBC:" + "__DA" * 900,
        "ü" * 4096,
        "oms1:100:rBC:ü",
    ]
    for text in cases:
        with subtests.test(text=text):
            settled, attempts = decode(text, 100)
            assert not settled
            assert attempts == {}


@given(st.text(st.sampled_from("oms1:0rbABCg_-9"), max_size=60))
@example("r" + "_" * 4000)
def test_nothing_raises(text: str) -> None:
    decode("oms1:7:" + text, 7)
    decode(text, 7)


def test_the_settled_fit_and_high_attempts_go_before_low_ones(subtests: pytest.Subtests) -> None:
    """20,000 offsets at random, each unsettled one handed out 1 to 3 times: not all of the counts fit."""
    for share in (0.01, 0.1, 0.5, 0.9):
        with subtests.test(share=share):
            rng = random.Random(7)  # noqa: S311
            settled = [offset for offset in range(1, 20_000) if rng.random() < share]
            unsettled = sorted({*range(20_000)} - {*settled})
            counts = {offset: rng.choice((1, 1, 1, 1, 1, 1, 1, 2, 2, 3)) for offset in unsettled}
            text = encode(0, runs_of(*settled), counts)
            assert len(text) <= CHARACTERS_MAX
            back, kept = decode(text, 0)
            assert members(back) == settled
            floor = min(kept.values(), default=4)
            assert kept == {offset: count for offset, count in counts.items() if count >= floor}


def test_few_high_counts_stay_when_many_low_ones_go() -> None:
    counts = dict.fromkeys(range(0, 20_000, 2), 1) | dict.fromkeys(range(0, 20_000, 400), 9)
    _, kept = decode(encode(0, runs_of(*range(1, 20_000, 4)), counts), 0)
    assert kept == dict.fromkeys(range(0, 20_000, 400), 9)


def test_a_thousand_different_counts_take_no_longer_to_drop() -> None:
    counts = {offset: 1 + offset * 7919 % 10_000 for offset in range(0, 20_000, 2)}
    _, kept = decode(encode(0, runs_of(*range(1, 20_000, 2)), counts), 0)
    floor = min(kept.values())
    assert kept == {offset: count for offset, count in counts.items() if count >= floor}
    assert len(kept) > 100


def test_a_long_run_takes_no_room() -> None:
    runs = RangeSet()
    runs.add_range(1, 1_000_000)
    text = encode(0, runs, {0: 3})
    assert len(text) < 20
    assert len(decode(text, 0)[0]) == 999_999


def test_beyond_every_limit_the_lowest_marks_are_kept() -> None:
    """It should not happen; then too the text fits, and says nothing false."""
    settled = range(1, 60_000, 2)
    far = runs_of(*settled)
    far.add_range(60_001, 1_000_000)
    text = encode(0, far, {0: 1, 59_998: 2, 1_000_000: 2})
    assert len(text) <= CHARACTERS_MAX
    back, counts = decode(text, 0)
    kept = members(back)
    assert len(kept) > 11_000
    assert kept == list(settled)[: len(kept)]
    assert counts == {0: 1}
