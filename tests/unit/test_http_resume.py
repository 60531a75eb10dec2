"""Going on where a browser stopped: which messages are sent again, and how much is kept for it."""

import asyncio

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bridge.engine.engine import GroupName
from bridge.http import resume
from bridge.http.resume import MESSAGES, Event, Tail, Tails
from bridge.message import Message
from bridge.wire.streams import Line

APP = GroupName("orders", "app")
NOW = 1_700_000_000_000


def line(body: bytes, receipt: str | None = None, expire_time: int | None = None) -> Line:
    return Line(Message("orders", body, born_timestamp=1, expire_time=expire_time), receipt, 0)


def sent(tail: Tail, count: int, size: int = 0) -> list[Event]:
    return [tail.add(line(b"%d" % number + bytes(size))) for number in range(count)]


def again(tails: Tails, last: str, name: GroupName = APP) -> tuple[Tail, list[Event]]:
    return tails.open(name, last.encode("latin-1"), NOW)


def bodies(events: list[Event]) -> list[bytes]:
    return [event.line.message.body for event in events]


def test_what_was_sent_after_the_last_event_is_sent_again_under_the_same_ids() -> None:
    tails = Tails()
    tail, missed = again(tails, "")
    assert missed == []
    events = sent(tail, 5)
    assert len({event.id for event in events}) == 5
    for seen in range(5):
        assert again(tails, events[seen].id)[1] == events[seen + 1 :]


def test_an_answer_that_is_lost_as_well_loses_nothing() -> None:
    """The browser's last event is still the old one when the answer to its return never reached it."""
    tails = Tails()
    first, _ = again(tails, "")
    seen, lost = sent(first, 2)
    second, _ = again(tails, seen.id)
    more = second.add(line(b"more"))
    _, missed = again(tails, seen.id)
    assert missed == [lost, more]


def test_two_streams_have_nothing_in_common() -> None:
    tails = Tails()
    (first, _), (second, _) = again(tails, ""), again(tails, "")
    one, other = sent(first, 1)[0], sent(second, 1)[0]
    assert one.id != other.id
    assert again(tails, one.id)[1] == []
    assert again(tails, other.id)[0] is second


@pytest.mark.parametrize("number", ["", "\xb2", "9" * 19, "9" * 5000, "-1", "+1", " 1", "1\n", "1_0"])
def test_an_id_that_is_none_of_ours_begins_a_stream(number: str) -> None:
    """Python takes "\xb2" for a digit and cannot turn it into a number."""
    tails = Tails()
    tail, _ = again(tails, "")
    sent(tail, 2)
    fresh, missed = again(tails, f"{tail.token}-{number}")
    assert fresh is not tail
    assert missed == []


@pytest.mark.parametrize("last", ["", "-", "x", "\xff", "0" * 16 + "-1"])
def test_an_unknown_id_begins_a_stream(last: str) -> None:
    assert again(Tails(), last)[1] == []


def test_an_id_of_another_group_begins_a_stream() -> None:
    tails = Tails()
    tail, _ = again(tails, "")
    (event,) = sent(tail, 1)
    for name in (GroupName("orders", "other"), GroupName("other", "app")):
        fresh, missed = again(tails, event.id.replace("-1", "-0"), name)
        assert fresh is not tail
        assert missed == []


def test_what_is_leased_is_not_kept() -> None:
    tails = Tails()
    tail, _ = again(tails, "")
    first = tail.add(line(b"leased", receipt="r"))
    tail.add(line(b"leased too", receipt="s"))
    third = tail.add(line(b"settled"))
    assert again(tails, first.id)[1] == [third]


def test_what_has_expired_meanwhile_is_not_sent_again() -> None:
    tails = Tails()
    tail, _ = again(tails, "")
    first = tail.add(line(b"seen"))
    tail.add(line(b"over", expire_time=NOW))
    still = tail.add(line(b"not over", expire_time=NOW + 1))
    never = tail.add(line(b"never", expire_time=1))
    assert again(tails, first.id)[1] == [still, never]


def test_the_last_messages_of_a_stream_are_kept() -> None:
    tails = Tails()
    tail, _ = again(tails, "")
    events = sent(tail, MESSAGES + 10)
    assert again(tails, events[0].id)[1] == events[-MESSAGES:]


def test_the_longest_silent_stream_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "TAILS", 3)
    tails = Tails()
    opened = [again(tails, "")[0] for _ in range(3)]
    for tail in (opened[0], opened[2], opened[1]):
        sent(tail, 2)
    again(tails, "")
    assert [tail.forgotten for tail in opened] == [True, False, False]
    assert again(tails, f"{opened[0].token}-1")[1] == []
    assert [tail.forgotten for tail in opened] == [True, False, True]
    again(tails, f"{opened[1].token}-2")
    for _ in range(2):
        again(tails, "")
    assert not opened[1].forgotten


def test_a_stream_that_is_forgotten_while_it_lives_keeps_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "TAILS", 1)
    tails = Tails()
    tail, _ = again(tails, "")
    sent(tail, 3)
    again(tails, "")
    sent(tail, 3)
    assert not tail.sent
    assert tails._bytes == 0


def test_one_message_larger_than_all_room_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "BYTES", 10_000)
    tails = Tails()
    tail, _ = again(tails, "")
    small, _large = tail.add(line(b"small")), tail.add(line(bytes(10_000)))
    assert again(tails, small.id)[1] == []
    assert tails._bytes == 0


async def test_the_stream_that_is_continued_ends() -> None:
    tails = Tails()
    tail, _ = again(tails, "")
    tail.task = asyncio.ensure_future(asyncio.sleep(60))
    (event,) = sent(tail, 1)
    again(tails, event.id, GroupName("orders", "other"))
    await asyncio.sleep(0)
    assert not tail.task.done()
    again(tails, event.id)
    await asyncio.wait((tail.task,))
    assert tail.task.cancelled()


class TailsMachine(RuleBasedStateMachine):
    """However streams come, send and come back: no more is kept than is said, and nothing is counted wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.tails = Tails()
        self.opened: list[Tail] = []
        self.sent: dict[str, list[Event]] = {}
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(resume, "TAILS", 3)
        self.patch.setattr(resume, "MESSAGES", 4)
        self.patch.setattr(resume, "BYTES", 20_000)

    def teardown(self) -> None:
        self.patch.undo()

    @rule()
    def open(self) -> None:
        tail, _ = again(self.tails, "")
        self.opened.append(tail)
        self.sent[tail.token] = []

    @precondition(lambda self: self.opened)
    @rule(data=st.data(), sizes=st.lists(st.integers(0, 9000), min_size=1, max_size=6))
    def send(self, data: st.DataObject, sizes: list[int]) -> None:
        tail = data.draw(st.sampled_from(self.opened))
        self.sent[tail.token] += [tail.add(line(bytes(size))) for size in sizes]

    @precondition(lambda self: self.opened)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        tail = data.draw(st.sampled_from(self.opened))
        count = data.draw(st.integers(0, len(self.sent[tail.token])))
        found, missed = again(self.tails, f"{tail.token}-{count}")
        if tail.forgotten:
            assert missed == []
            self.opened.append(found)
            self.sent[found.token] = []
        else:
            assert found is tail
            assert missed == self.sent[tail.token][count:][-4:]

    @invariant()
    def no_more_is_kept_than_is_said(self) -> None:
        kept = [each for tail in self.opened for _, each in tail.sent]
        assert self.tails._bytes == sum(1024 + len(each.message.body) for each in kept) <= 20_000
        assert sum(not tail.forgotten for tail in self.opened) == len(self.tails._tails) <= 3


TestTailsKeepWhatTheySay = TailsMachine.TestCase
