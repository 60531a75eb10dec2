"""Tests for an adapter that is `Replayable`."""
# ruff: noqa: S101 - the kit's tests use assert, as all tests do

from typing import Final

import pytest

from adapters.base import Adapter, Replayable
from adapters.testing.delays import SOON
from adapters.testing.harness import LOTS, Contract, Session, numbered
from adapters.wall_clock import wall
from bridge.errors import BackendUnavailable, DestinationUnknown

_LATE: Final = 3_600_000
"""Milliseconds until a message is due, which no test waits for."""


class ReplayableContract(Contract):
    """For an adapter that is `Replayable`."""

    async def test_a_log_is_read_again_by_offsets(self, session: Session) -> None:
        """Tests "Return the messages kept from `start` on, at most `limit` (>= 1)"."""
        adapter = await session.open()
        await session.partitions(adapter)
        assert _own(adapter, session) == {}, "a log exists from its first message on"
        sent = numbered(5)
        stored = await session.publish(adapter, *sent)
        [(log, (first, following))] = _own(adapter, session).items()
        assert log.endswith(f"/{session.destination}/{stored[0].partition}")
        assert [at.offset for at in stored] == list(range(first, following))
        found = _replayable(adapter).replay(log, first, 3, LOTS)
        assert [each.body for each in found.messages] == sent[:3]
        rest = _replayable(adapter).replay(log, found.next, 100, LOTS)
        assert [each.body for each in rest.messages] == sent[3:]
        assert [*found.offsets, *rest.offsets] == [at.offset for at in stored]
        assert rest.next == following
        assert [*found.dropped, *rest.dropped] == []
        beyond = _replayable(adapter).replay(log, following, 100, LOTS)
        assert (list(beyond.messages), beyond.next) == ([], following)

    async def test_the_sizes_of_a_replay_do_not_exceed_max_bytes(self, session: Session) -> None:
        """Tests "Their sizes (`Message.size`) do not exceed `max_bytes`, unless there is only one"."""
        adapter = await session.open()
        for number in range(4):
            await session.publish(adapter, b"x" * (50 * (number % 2)), properties={"p": "y" * 50})
        [(log, (first, _))] = _own(adapter, session).items()
        sizes = [each.size for each in _replayable(adapter).replay(log, first, 100, LOTS).messages]
        for count in range(1, len(sizes) + 1):
            for max_bytes, most in ((sum(sizes[:count]), count), (sum(sizes[:count]) - 1, max(1, count - 1))):
                assert len(_replayable(adapter).replay(log, first, 100, max_bytes).messages) == most

    async def test_a_delayed_message_enters_the_log_when_it_is_due(self, session: Session) -> None:
        """Tests "A delayed message enters the log when it is due"."""
        adapter = await session.open()
        reader = await session.reader(adapter)
        due = wall() + SOON
        await session.publish(adapter, b"delayed", delay_time=SOON)
        await session.publish(adapter, b"now")
        in_time = wall() < due
        await reader.take(2)
        [(log, (first, _))] = _own(adapter, session).items()
        found = _replayable(adapter).replay(log, first, 100, LOTS)
        entered = [each.body for each in found.messages]
        assert entered == ([b"now", b"delayed"] if in_time else sorted(entered))
        assert len(entered) == 2  # noqa: PLR2004 - as many as were published

    async def test_a_delayed_message_is_listed_until_it_is_due(self, session: Session) -> None:
        """Tests "Return the messages that are in no log yet, as they are not due; only those stored at `since`"."""
        with pytest.raises(BackendUnavailable):
            _replayable(session.harness.connect()).delayed(0)
        adapter = await session.open()
        before = wall()
        await session.publish(adapter, b"delayed", delay_time=_LATE)
        await session.publish(adapter, b"now")
        adapter = await _restarted(session, adapter)
        found = [each for each in _replayable(adapter).delayed(before) if each.destination == session.destination]
        assert [each.body for each in found] == ([b"delayed"] if adapter.features.durable else [])
        assert all(each.destination != session.destination for each in _replayable(adapter).delayed(wall() + _LATE))

    async def test_replaying_an_unknown_log_fails(self, session: Session) -> None:
        """Tests "Raises `DestinationUnknown` for a log that does not exist, or no longer exists"."""
        with pytest.raises(BackendUnavailable):
            _replayable(session.harness.connect()).logs()
        with pytest.raises(BackendUnavailable):
            _replayable(session.harness.connect()).replay("x/y/0", 0, 1, 1)
        adapter = await session.open()
        await session.publish(adapter, b"a")
        [log] = _own(adapter, session)
        epoch, destination, partition = log.split("/")
        for wrong in (f"other/{destination}/{partition}", f"{epoch}/other/{partition}", f"{epoch}/{destination}/99999"):
            with pytest.raises(DestinationUnknown):
                _replayable(adapter).replay(wrong, 0, 1, 1)

    async def test_a_log_keeps_its_messages_or_gets_a_new_epoch(self, session: Session) -> None:
        """Tests "either every message that was read before is still there, or the epoch is another"."""
        adapter = await session.open()
        await session.publish(adapter, b"a")
        [log] = _own(adapter, session)
        await adapter.close()
        again = await session.open()
        if adapter.features.durable:
            [message] = _replayable(again).replay(log, 0, 1, LOTS).messages
            assert message.body == b"a"
        else:
            await session.publish(again, b"b")
            with pytest.raises(DestinationUnknown):
                _replayable(again).replay(log, 0, 1, LOTS)


async def _restarted(session: Session, adapter: Adapter) -> Adapter:
    await adapter.close()
    return await session.open()


def _replayable(adapter: Adapter) -> Replayable:
    assert isinstance(adapter, Replayable)
    return adapter


def logs_of(adapter: Replayable) -> dict[str, tuple[int, int]]:
    """Return all logs with their first offsets and their ends."""
    return {log: bounds for logs in adapter.logs() for log, bounds in logs.items()}


def _own(adapter: Adapter, session: Session) -> dict[str, tuple[int, int]]:
    """Return the logs of this test's destination."""
    return {log: bounds for log, bounds in logs_of(_replayable(adapter)).items() if f"/{session.destination}/" in log}
