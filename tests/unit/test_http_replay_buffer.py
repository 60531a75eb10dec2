"""Going on where a browser stopped: which messages are sent again, and how much is kept for it."""

import asyncio

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bridge.engine.destination_names import SubscriptionKey
from bridge.http import push
from bridge.http.push import MESSAGES_MAX, Event, ReplayBuffer, ReplayBuffers
from bridge.message import Message
from bridge.wire.stream_framings import StreamMessage

APP = SubscriptionKey("orders", "app")
NOW = 1_700_000_000_000


def line(body: bytes, receipt: str | None = None, expire_time: int | None = None) -> StreamMessage:
    return StreamMessage(Message("orders", body, born_timestamp=1, expire_time=expire_time), receipt, 0)


def sent(buffer: ReplayBuffer, count: int, size: int = 0) -> list[Event]:
    return [buffer.add(line(b"%d" % number + bytes(size))) for number in range(count)]


def again(buffers: ReplayBuffers, last: str, name: SubscriptionKey = APP) -> tuple[ReplayBuffer, list[Event]]:
    return buffers.open(name, last.encode("latin-1"), NOW)


def bodies(events: list[Event]) -> list[bytes]:
    return [event.message.message.body for event in events]


def test_what_was_sent_after_the_last_event_is_sent_again_under_the_same_ids() -> None:
    buffers = ReplayBuffers()
    buffer, missed = again(buffers, "")
    assert missed == []
    events = sent(buffer, 5)
    assert len({event.id for event in events}) == 5
    for seen in range(5):
        assert again(buffers, events[seen].id)[1] == events[seen + 1 :]


def test_an_answer_that_is_lost_as_well_loses_nothing() -> None:
    """The browser's last event is still the old one when the answer to its return never reached it."""
    buffers = ReplayBuffers()
    first, _ = again(buffers, "")
    seen, lost = sent(first, 2)
    second, _ = again(buffers, seen.id)
    more = second.add(line(b"more"))
    _, missed = again(buffers, seen.id)
    assert missed == [lost, more]


def test_two_streams_have_nothing_in_common() -> None:
    buffers = ReplayBuffers()
    (first, _), (second, _) = again(buffers, ""), again(buffers, "")
    one, other = sent(first, 1)[0], sent(second, 1)[0]
    assert one.id != other.id
    assert again(buffers, one.id)[1] == []
    assert again(buffers, other.id)[0] is second


def test_an_id_that_is_none_of_ours_begins_a_stream(subtests: pytest.Subtests) -> None:
    """Python takes "\xb2" for a digit and cannot turn it into a number."""
    cases: list[str] = ["", "\xb2", "9" * 19, "9" * 5000, "-1", "+1", " 1", "1\n", "1_0"]
    for number in cases:
        with subtests.test(number=number):
            buffers = ReplayBuffers()
            buffer, _ = again(buffers, "")
            sent(buffer, 2)
            fresh, missed = again(buffers, f"{buffer.token}-{number}")
            assert fresh is not buffer
            assert missed == []


def test_an_unknown_id_begins_a_stream(subtests: pytest.Subtests) -> None:
    cases: list[str] = ["", "-", "x", "\xff", "0" * 16 + "-1"]
    for last in cases:
        with subtests.test(last=last):
            buffers = ReplayBuffers()
            buffer, _ = again(buffers, "")
            sent(buffer, 2)
            fresh, missed = again(buffers, last)
            assert fresh is not buffer
            assert missed == []


def test_an_id_of_another_group_begins_a_stream() -> None:
    buffers = ReplayBuffers()
    buffer, _ = again(buffers, "")
    (event,) = sent(buffer, 1)
    for name in (SubscriptionKey("orders", "other"), SubscriptionKey("other", "app")):
        fresh, missed = again(buffers, event.id.replace("-1", "-0"), name)
        assert fresh is not buffer
        assert missed == []


def test_what_is_leased_is_not_kept() -> None:
    buffers = ReplayBuffers()
    buffer, _ = again(buffers, "")
    first = buffer.add(line(b"leased", receipt="r"))
    buffer.add(line(b"leased too", receipt="s"))
    third = buffer.add(line(b"settled"))
    assert again(buffers, first.id)[1] == [third]


def test_what_has_expired_meanwhile_is_not_sent_again() -> None:
    buffers = ReplayBuffers()
    buffer, _ = again(buffers, "")
    first = buffer.add(line(b"seen"))
    buffer.add(line(b"over", expire_time=NOW))
    still = buffer.add(line(b"not over", expire_time=NOW + 1))
    never = buffer.add(line(b"never", expire_time=1))
    assert again(buffers, first.id)[1] == [still, never]


def test_the_last_messages_of_a_stream_are_kept() -> None:
    buffers = ReplayBuffers()
    buffer, _ = again(buffers, "")
    events = sent(buffer, MESSAGES_MAX + 10)
    assert again(buffers, events[0].id)[1] == events[-MESSAGES_MAX:]


def test_the_longest_silent_stream_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "STREAMS_MAX", 3)
    buffers = ReplayBuffers()
    opened = [again(buffers, "")[0] for _ in range(3)]
    for buffer in (opened[0], opened[2], opened[1]):
        sent(buffer, 2)
    again(buffers, "")
    assert [buffer.dropped for buffer in opened] == [True, False, False]
    assert again(buffers, f"{opened[0].token}-1")[1] == []
    assert [buffer.dropped for buffer in opened] == [True, False, True]
    again(buffers, f"{opened[1].token}-2")
    for _ in range(2):
        again(buffers, "")
    assert not opened[1].dropped


def test_a_stream_that_is_forgotten_while_it_lives_keeps_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "STREAMS_MAX", 1)
    buffers = ReplayBuffers()
    buffer, _ = again(buffers, "")
    sent(buffer, 3)
    again(buffers, "")
    sent(buffer, 3)
    assert not buffer.sent
    assert buffers._bytes == 0


def test_one_message_larger_than_all_room_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "BYTES_MAX", 10_000)
    buffers = ReplayBuffers()
    buffer, _ = again(buffers, "")
    small, _large = buffer.add(line(b"small")), buffer.add(line(bytes(10_000)))
    assert again(buffers, small.id)[1] == []
    assert buffers._bytes == 0


async def test_the_stream_that_is_continued_ends() -> None:
    buffers = ReplayBuffers()
    buffer, _ = again(buffers, "")
    buffer.task = asyncio.ensure_future(asyncio.sleep(60))
    (event,) = sent(buffer, 1)
    again(buffers, event.id, SubscriptionKey("orders", "other"))
    await asyncio.sleep(0)
    assert not buffer.task.done()
    again(buffers, event.id)
    await asyncio.wait((buffer.task,))
    assert buffer.task.cancelled()


class ReplayBuffersMachine(RuleBasedStateMachine):
    """However streams come, send and come back: no more is kept than is said, and nothing is counted wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.buffers = ReplayBuffers()
        self.opened: list[ReplayBuffer] = []
        self.sent: dict[str, list[Event]] = {}
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(push, "STREAMS_MAX", 3)
        self.patch.setattr(push, "MESSAGES_MAX", 4)
        self.patch.setattr(push, "BYTES_MAX", 20_000)

    def teardown(self) -> None:
        self.patch.undo()

    @rule()
    def open(self) -> None:
        buffer, _ = again(self.buffers, "")
        self.opened.append(buffer)
        self.sent[buffer.token] = []

    @precondition(lambda self: self.opened)
    @rule(data=st.data(), sizes=st.lists(st.integers(0, 9000), min_size=1, max_size=6))
    def send(self, data: st.DataObject, sizes: list[int]) -> None:
        buffer = data.draw(st.sampled_from(self.opened))
        self.sent[buffer.token] += [buffer.add(line(bytes(size))) for size in sizes]

    @precondition(lambda self: self.opened)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        buffer = data.draw(st.sampled_from(self.opened))
        count = data.draw(st.integers(0, len(self.sent[buffer.token])))
        found, missed = again(self.buffers, f"{buffer.token}-{count}")
        if buffer.dropped:
            assert missed == []
            self.opened.append(found)
            self.sent[found.token] = []
        else:
            assert found is buffer
            assert missed == self.sent[buffer.token][count:][-4:]

    @invariant()
    def no_more_is_kept_than_is_said(self) -> None:
        kept = [each for buffer in self.opened for _, each in buffer.sent]
        assert self.buffers._bytes == sum(1024 + each.message.size for each in kept) <= 20_000
        assert sum(not buffer.dropped for buffer in self.opened) == len(self.buffers._buffers) <= 3


TestReplayBuffers = ReplayBuffersMachine.TestCase
