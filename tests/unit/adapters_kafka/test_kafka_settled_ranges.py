"""What a group has read of a partition, against a naive model, with crashes at any point."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from adapters.kafka.consume.settled_ranges import SPAN_MAX, LogReplaced, SettledRanges
from adapters.kafka.mapping import Commit

START = 2**62

choices = st.integers(0, 10**6)


class Crashes(RuleBasedStateMachine):
    """A log with gaps, read, settled, committed and read again by a process that is killed now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[int] = []
        self.end = 0
        self.written: Commit | None = None
        self.written_settled: set[int] = set()
        self.written_attempts: dict[int, int] = {}

    @initialize(start=st.sampled_from((0, 1, 1000, 2**62)))
    def begin(self, start: int) -> None:
        self.end = start
        self.restart()

    def restart(self) -> None:
        self.progress = SettledRanges(self.written)
        self.next = 0 if self.written is None else self.written.offset
        self.low = None if self.written is None else self.written.offset
        self.settled = set(self.written_settled)
        self.attempts = dict(self.written_attempts)
        self.open: set[int] = set()

    @rule(gaps=st.lists(st.sampled_from((0, 0, 0, 0, 1, 2, 70)), min_size=1, max_size=40))
    def append(self, gaps: list[int]) -> None:
        for gap in gaps:
            self.log.append(self.end + gap)
            self.end += gap + 1

    @rule(count=st.integers(1, 60))
    def fetch(self, count: int) -> None:
        for offset in [offset for offset in self.log if offset >= self.next][:count]:
            if self.low is None:
                self.low = self.next = offset
            self.settled.update(range(self.next, offset))
            self.next = offset + 1
            expected = None if offset in self.settled else self.attempts.get(offset, 0)
            assert self.progress.fetched(offset) == expected
            if expected is not None:
                self.open.add(offset)

    @precondition(lambda self: self.open)
    @rule(choice=choices, run=st.integers(1, 30))
    def settle(self, choice: int, run: int) -> None:
        ordered = sorted(self.open)
        at = choice % len(ordered)
        for offset in ordered[at : at + run]:
            self.progress.settle(offset)
            self.progress.settle(offset)
            self.open.discard(offset)
            self.settled.add(offset)

    @precondition(lambda self: self.open)
    @rule(choice=choices, run=st.integers(1, 30), count=st.sampled_from((0, 1, 1, 2, 3, 40, 2000)))
    def attempt(self, choice: int, run: int, count: int) -> None:
        ordered = sorted(self.open)
        at = choice % len(ordered)
        for offset in ordered[at : at + run]:
            self.progress.attempt(offset, count)
            self.attempts[offset] = count

    @rule(choice=choices)
    def outcomes_of_what_is_not_open(self, choice: int) -> None:
        """Settled long ago, in a gap, not fetched yet, of nothing at all."""
        for offset in (choice % 300, self.next, self.next + choice % 5, self.end, *list(self.settled)[:3]):
            if offset not in self.open:
                self.progress.settle(offset)
                self.progress.attempt(offset, 7)

    @rule()
    def commit(self) -> None:
        self.written = self.progress.commit()
        assert (self.written is None) == (self.low is None)
        self.written_settled = set(self.settled)
        self.written_attempts = dict(self.attempts)

    @rule()
    def crash(self) -> None:
        self.restart()

    @rule(choice=choices, run=st.integers(1, 10))
    def compact(self, choice: int, run: int) -> None:
        """Records go, settled or not; those that were handed out already are settled some time all the same."""
        unread = [offset for offset in self.log if offset >= self.next]
        if unread:
            at = choice % len(unread)
            self.log = [offset for offset in self.log if offset not in unread[at : at + run]]

    @precondition(lambda self: self.written is not None)
    @rule(choice=choices)
    def another_tool_moves_the_position(self, choice: int) -> None:
        """And leaves the text beside it: it is void, and what lies before the position is over."""
        assert self.written is not None
        oldest = self.log[0] if self.log else self.end
        moved = oldest + choice % (self.end - oldest + 1)
        if moved != self.written.offset and f":{moved}:" not in self.written.metadata:
            self.written = self.written._replace(offset=moved)
            self.written_settled, self.written_attempts = set(), {}
            self.restart()

    @invariant()
    def low_is_the_first_unsettled(self) -> None:
        if self.low is not None:
            while self.low in self.settled:
                self.low += 1
            assert not self.open or self.low == min(self.open)
        assert self.progress.low == self.low

    @invariant()
    def span_says_whether_there_is_room(self) -> None:
        ahead = 0 if self.low is None else max(self.next - self.low, 0)
        assert self.progress.span == max(min(ahead, 100 * len(self.open)), ahead // 50)

    @invariant()
    def the_text_fits_and_is_printable(self) -> None:
        commit = self.progress.commit()
        if commit is not None:
            assert commit.offset == self.low
            assert len(commit.metadata) <= 4096
            assert commit.metadata.isascii()
            assert commit.metadata.isprintable()


TestCrashes = Crashes.TestCase
TestCrashes.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def read(progress: SettledRanges, *offsets: int) -> list[int | None]:
    return [progress.fetched(offset) for offset in offsets]


def test_nothing_known_yet() -> None:
    progress = SettledRanges(None)
    assert (progress.low, progress.span, progress.commit()) == (None, 0, None)
    progress.settle(0)
    progress.attempt(0, 1)
    assert (progress.low, progress.span, progress.commit()) == (None, 0, None)


def test_what_was_committed_is_committed_again() -> None:
    assert SettledRanges(Commit(5, "")).commit() == Commit(5, "")


def test_in_order_there_is_no_text() -> None:
    progress = SettledRanges(Commit(5, ""))
    assert read(progress, 5, 6, 7) == [0, 0, 0]
    progress.settle(5)
    assert progress.commit() == Commit(6, "")
    progress.settle(6)
    progress.settle(7)
    assert progress.commit() == Commit(8, "")


def test_after_a_restart_only_the_unsettled_come_again() -> None:
    progress = SettledRanges(None)
    read(progress, *range(10, 20))
    for offset in (11, 13, 14, 19):
        progress.settle(offset)
    progress.attempt(12, 3)
    after = SettledRanges(progress.commit())
    assert after.low == 10
    assert read(after, *range(10, 21)) == [0, None, 3, None, None, 0, 0, 0, 0, None, 0]


def test_a_second_restart_before_all_is_read_again_forgets_nothing() -> None:
    progress = SettledRanges(None)
    read(progress, *range(10))
    progress.settle(8)
    progress.attempt(7, 2)
    again = SettledRanges(progress.commit())
    read(again, 0, 1)
    again.settle(0)
    assert read(SettledRanges(again.commit()), *range(1, 10)) == [0, 0, 0, 0, 0, 0, 2, None, 0]


def test_what_was_compacted_away_meanwhile_is_forgotten() -> None:
    progress = SettledRanges(None)
    read(progress, *range(6))
    for offset in (2, 3, 5):
        progress.attempt(offset, offset)
    after = SettledRanges(progress.commit())
    read(after, 0, 1, 4, 5)
    commit = after.commit()
    assert commit is not None
    assert read(SettledRanges(commit), *range(6)) == [0, 0, None, None, 0, 5]


def test_offsets_that_the_fetch_skips_are_settled() -> None:
    progress = SettledRanges(Commit(0, ""))
    read(progress, 4, 9)
    assert progress.low == 4
    progress.settle(4)
    assert progress.low == 9
    progress.settle(9)
    assert progress.commit() == Commit(10, "")


def test_gaps_do_not_break_runs() -> None:
    """Every transaction leaves a marker: 10,000 of them must not take 10,000 places in the text."""
    progress = SettledRanges(None)
    read(progress, *range(0, 20_000, 2))
    for offset in range(2, 20_000, 2):
        progress.settle(offset)
    commit = progress.commit()
    assert commit is not None
    assert len(commit.metadata) < 20


@pytest.mark.parametrize("committed", [None, Commit(6, "")])
def test_an_offset_that_comes_again_says_that_the_log_was_replaced(committed: Commit | None) -> None:
    progress = SettledRanges(committed)
    read(progress, 6, 7)
    for offset in (7, 6, 0):
        with pytest.raises(LogReplaced):
            progress.fetched(offset)
    assert progress.commit() == Commit(6, ""), "it has changed nothing"


def test_an_older_offset_than_the_committed_one_says_so_too() -> None:
    with pytest.raises(LogReplaced):
        SettledRanges(Commit(6, "")).fetched(0)


def test_one_stuck_message_does_not_stop_a_partition() -> None:
    progress = SettledRanges(None)
    for offset in range(500_000):
        progress.fetched(offset)
        if offset:
            progress.settle(offset)
    assert progress.span < SPAN_MAX
    commit = progress.commit()
    assert commit is not None
    assert read(SettledRanges(commit), 0, 1, 499_999, 500_000) == [0, None, None, 0]


def test_it_does_in_the_end() -> None:
    progress = SettledRanges(Commit(0, ""))
    progress.fetched(0)
    progress.fetched(50 * SPAN_MAX)
    assert progress.span == SPAN_MAX


def test_whatever_is_settled_when_fetching_pauses_is_in_the_commit(subtests: pytest.Subtests) -> None:
    """One in so many is unsettled until fetching pauses, then one in so many of 3,000 that were on their way."""
    for then in (1, 2, 50):
        for unsettled_in in (1, 2, 13, 99, 101, 1000):
            with subtests.test(then=then, unsettled_in=unsettled_in):
                progress = SettledRanges(Commit(START, ""))
                unsettled = set[int]()
                offset = START
                while progress.span < SPAN_MAX:
                    one(progress, offset, unsettled, unsettled_in)
                    offset += 1
                for _ in range(3000):
                    one(progress, offset, unsettled, then)
                    offset += 1
                commit = progress.commit()
                assert commit is not None
                assert len(commit.metadata) <= 4096
                after = SettledRanges(commit)
                assert {again for again in range(START, offset) if after.fetched(again) is not None} == unsettled


def one(progress: SettledRanges, offset: int, unsettled: set[int], unsettled_in: int) -> None:
    progress.fetched(offset)
    if (offset - START) % unsettled_in:
        progress.settle(offset)
    else:
        progress.attempt(offset, 1 + offset % 5)
        unsettled.add(offset)
