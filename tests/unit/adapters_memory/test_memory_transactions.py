"""Transactions in the journal: all or nothing at every step, on a full disk, and forgotten in the end."""

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest

from adapters.base import Transaction, TransactionState
from adapters.memory import transaction_table
from adapters.memory.durable_adapter import DurableAdapter
from adapters.testing.replay import logs_of
from bridge.errors import BackendFull, TransactionEnded, TransactionUnknown
from bridge.message import Message
from tests.unit.adapters_memory.test_memory_journal import Place, limit_pages, now, place

__all__ = ["place"]  # a fixture

DESTINATIONS = ("orders", "bills")


def begin(name: str) -> Transaction:
    return Transaction(name, TransactionState.OPEN, now(), 60_000, None, messages=0, size=0)


async def prepare(adapter: DurableAdapter, name: str, *bodies: bytes) -> None:
    for body in bodies:
        for destination in DESTINATIONS:
            await adapter.prepare(begin(name), Message(destination, body, message_id="x", born_timestamp=now()))


async def complete(messages: Sequence[Message]) -> Sequence[Message]:
    return [message._replace(partition=0) for message in messages]


def stored(adapter: DurableAdapter) -> dict[str, list[bytes]]:
    """Return the bodies of every destination."""
    logs = {log.split("/")[1]: log for log in logs_of(adapter)}
    return {
        name: [m.body for m in adapter.replay(logs[name], 0, 1000, 1 << 30).messages] if name in logs else []
        for name in DESTINATIONS
    }


class Snapshots:
    """Copies of the journal's files before each statement of its thread, as `kill -9` would leave them there."""

    def __init__(self, adapter: DurableAdapter, path: Path) -> None:
        assert adapter._journal is not None
        self._connection = adapter._journal._connection
        self._path = path
        self.copies: list[Path] = []

    def __enter__(self) -> Self:
        self._connection.set_trace_callback(self._copy)
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.set_trace_callback(None)
        self._copy("")

    def _copy(self, _: str) -> None:
        copy = self._path.with_name(f"copy {len(self.copies)}")
        copy.mkdir()
        for file in ("journal.db", "journal.db-wal", "confirmed"):
            shutil.copy(self._path / file, copy)
        self.copies.append(copy)


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_a_kill_at_any_step_leaves_a_transaction_whole(place: Place, end: str) -> None:
    async def finish(adapter: DurableAdapter) -> None:
        await (adapter.commit("tx", complete) if end == "commit" else adapter.rollback("tx"))

    adapter = await place.start(partitions=1)
    await prepare(adapter, "tx", b"a", b"b")
    with Snapshots(adapter, place.path) as snapshots:
        await finish(adapter)
    whole = {name: [b"a", b"b"] if end == "commit" else [] for name in DESTINATIONS}
    states: list[TransactionState] = []
    for copy in snapshots.copies:
        killed = Place(copy)
        adapter = await killed.start(partitions=1)
        [transaction] = adapter.known_transactions().values()
        states.append(transaction.state)
        if transaction.state is TransactionState.OPEN:
            assert transaction.messages == 4
            assert stored(adapter) == {name: [] for name in DESTINATIONS}
        await finish(adapter)
        adapter = await killed.restart()
        assert stored(adapter) == whole
        assert adapter.gauges()["messages"] == sum(map(len, whole.values()))
        assert killed.rows("prepared") == 0
        await adapter.close()
    assert len(states) > 5, "there were steps to be killed at"
    ended = TransactionState.COMMITTED if end == "commit" else TransactionState.ROLLED_BACK
    assert (states[0], states[-1]) == (TransactionState.OPEN, ended)


async def test_a_commit_that_finds_no_space_stores_nothing(place: Place) -> None:
    async def inflate(messages: Sequence[Message]) -> Sequence[Message]:
        return [each._replace(body=b"x" * 90_000, partition=0) for each in messages]

    adapter = await place.start(partitions=1)
    await prepare(adapter, "tx", b"a")
    used = dict(adapter.gauges())
    limit_pages(adapter, 0)
    with pytest.raises(BackendFull):
        await adapter.commit("tx", inflate)
    assert adapter.gauges() == used | {"destinations": 2}
    assert stored(adapter) == {name: [] for name in DESTINATIONS}
    limit_pages(adapter, None)
    assert len(await adapter.commit("tx", complete)) == 2
    adapter = await place.crash()
    assert stored(adapter) == {name: [b"a"] for name in DESTINATIONS}


async def test_a_caller_that_gives_up_does_not_commit_twice(place: Place) -> None:
    adapter = await place.start(partitions=1)
    await prepare(adapter, "tx", b"a")
    call = asyncio.ensure_future(adapter.commit("tx", complete))
    await asyncio.sleep(0)
    call.cancel()
    assert await adapter.commit("tx", complete) == ()
    assert call.cancelled()
    assert stored(adapter) == {name: [b"a"] for name in DESTINATIONS}


async def test_ended_transactions_are_forgotten(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_table, "ENDED_MAX", 2)
    adapter = await place.start(partitions=1)
    for name in ("a", "b", "c", "d"):
        await prepare(adapter, name, name.encode())
        await adapter.rollback(name)
    with pytest.raises(TransactionUnknown):
        await adapter.rollback("b")
    with pytest.raises(TransactionEnded):
        await prepare(adapter, "c", b"late")
    await prepare(adapter, "a", b"again")
    adapter = await place.restart(partitions=1)
    states = {each.id: each.state for each in adapter.known_transactions().values()}
    assert states == {
        "c": TransactionState.ROLLED_BACK,
        "d": TransactionState.ROLLED_BACK,
        "a": TransactionState.OPEN,
    }
    assert place.rows("txn") == len(states)


async def test_prepared_messages_count_in_the_limits(place: Place) -> None:
    adapter = await place.start(partitions=1, max_messages=4)
    await prepare(adapter, "tx", b"a", b"b")
    with pytest.raises(BackendFull, match="4 messages are prepared in open transactions"):
        await prepare(adapter, "other", b"c")
    assert set(adapter.known_transactions()) == {"tx"}
    assert len(await adapter.commit("tx", complete)) == 4
