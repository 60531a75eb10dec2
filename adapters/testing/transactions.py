"""Tests for an adapter that is `Transactional`."""
# ruff: noqa: S101 - the kit's tests use assert, as all tests do

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final, TypeVar
from uuid import uuid4

import pytest

from adapters.base import Adapter, Complete, Partitioned, Stored, Transaction, Transactional, TransactionState
from adapters.testing.harness import GUARD, Contract, Session, bodies, numbered
from adapters.wall_clock import wall
from bridge.errors import BackendUnavailable, TransactionEnded, TransactionUnknown, visible_id
from bridge.message import Message

_MANY: Final = 40
_AGAIN: Final = 0.05
"""Seconds before the kit reads the known transactions of a second bridge again."""
_CHECK: Final = "https://example.org/check?a=ü"
_T = TypeVar("_T")


class TransactionalContract(Contract):
    """For an adapter that is `Transactional`."""

    async def test_a_commit_stores_what_no_group_got_before(self, session: Session) -> None:
        """Tests "No group gets a prepared message".

        Also "Store the messages in the order in which they were prepared, and end the transaction", and "Returns one
        result for each message".
        """
        adapter = await session.open()
        first, second = session.destination, session.harness.name()
        readers = [await session.reader(adapter, source=name) for name in (first, second)]
        await session.publish(adapter, b"before")
        prepared = [await _prepare(session, adapter, "tx", body) for body in numbered(6)]
        prepared += [await _prepare(session, adapter, "tx", body, destination=second) for body in numbered(3)]
        assert bodies(await session.rest(adapter, readers[0])) == [b"before"]
        stored = await _commit(adapter, _own(session, "tx"))
        assert [isinstance(each, Stored) for each in stored] == [True] * len(prepared)
        found = [await readers[0].take(6), await readers[1].take(3)]
        assert [bodies(each) for each in found] == [numbered(6), numbered(3)]
        for message, delivery in zip(prepared, [*found[0], *found[1]], strict=True):
            got = delivery.message
            assert (got.message_id, got.transaction_id) == (message.message_id, _own(session, "tx"))
            assert (got.properties, got.born_timestamp) == (message.properties, message.born_timestamp)
        assert _known(adapter, session, "tx").state is TransactionState.COMMITTED

    async def test_the_id_of_a_transaction_may_begin_with_its_owner(self, session: Session) -> None:
        """Tests "It may begin with its owner and the control character U+001F, which clients cannot send"."""
        adapter = await session.open()
        other = await session.open() if adapter.features.shared_groups else adapter
        reader = await session.reader(adapter)
        transaction = _begin(session, "tx")._replace(id=f"login:müller\x1f{_own(session, 'tx')}")
        await _prepare(session, adapter, transaction, b"owned")
        assert (await _until_known(other, transaction.id)).messages == 1
        await _commit(adapter, transaction.id)
        (found,) = await reader.take(1)
        assert (found.message.body, found.message.transaction_id) == (b"owned", _own(session, "tx"))

    async def test_messages_are_stored_as_they_were_completed(self, session: Session) -> None:
        """Tests "Returns one result for each message, as `complete` does", and of None "it is not stored"."""
        adapter = await session.open()
        reader = await session.reader(adapter)
        for body in numbered(3):
            await _prepare(session, adapter, "tx", body)
        store_timestamp = wall() + 1

        async def complete(messages: Sequence[Message]) -> Sequence[Message | None]:
            whole = await _completing(adapter)(messages)
            kept = [each if each is not None and each.body != b"001" else None for each in whole]
            return [None if each is None else each._replace(store_timestamp=store_timestamp) for each in kept]

        stored = await _within(_transactional(adapter).commit(_own(session, "tx"), complete))
        assert [each is None for each in stored] == [False, True, False]
        found = await session.rest(adapter, reader)
        assert bodies(found) == [b"000", b"002"]
        assert [each.message.store_timestamp for each in found] == [store_timestamp] * 2

    async def test_a_rollback_drops_the_messages(self, session: Session) -> None:
        """Tests "Drop the messages and end the transaction"."""
        adapter = await session.open()
        reader = await session.reader(adapter)
        for body in numbered(3):
            await _prepare(session, adapter, "tx", body)
        await _rollback(adapter, _own(session, "tx"))
        assert _known(adapter, session, "tx").state is TransactionState.ROLLED_BACK
        assert await session.rest(adapter, reader) == []

    async def test_a_transaction_ends_once(self, session: Session) -> None:
        """Tests "If it was committed before, returns an empty sequence", and that the other end is refused.

        Also "Does nothing if it was rolled back before", "Raises as `commit` does, with `TransactionEnded` if it was
        committed", and for `prepare` "Raises `TransactionEnded`".
        """
        adapter = await session.open()
        reader = await session.reader(adapter)
        for name in ("committed", "dropped"):
            await _prepare(session, adapter, name, name.encode())
        committed, dropped = _own(session, "committed"), _own(session, "dropped")
        assert len(await _commit(adapter, committed)) == 1
        assert len(await _commit(adapter, committed)) == 0
        await _rollback(adapter, dropped)
        await _rollback(adapter, dropped)
        for refused in (
            _rollback(adapter, committed),
            _commit(adapter, dropped),
            _prepare(session, adapter, "committed", b"late"),
            _prepare(session, adapter, "dropped", b"late"),
        ):
            with pytest.raises(TransactionEnded):
                await refused
        assert bodies(await session.rest(adapter, reader)) == [b"committed"]

    async def test_an_unknown_transaction_is_refused(self, session: Session) -> None:
        """Tests "Raises `TransactionUnknown`"."""
        adapter = await session.open()
        for call in (_commit(adapter, _own(session, "tx")), _rollback(adapter, _own(session, "tx"))):
            with pytest.raises(TransactionUnknown):
                await call

    async def test_transactions_are_known_from_their_first_message_on(self, session: Session) -> None:
        """Tests "`began`, `timeout` and `check` count if the transaction begins; otherwise they stay as they were"."""
        adapter = await session.open()
        with pytest.raises(BackendUnavailable):
            _transactional(session.harness.connect()).known_transactions()
        assert _own(session, "tx") not in _transactional(adapter).known_transactions()
        first = _begin(session, "tx")
        messages = [await _prepare(session, adapter, first, b"a"), await _prepare(session, adapter, first, b"bb")]
        other = first._replace(began=first.began + 5, timeout=1, check=None)
        messages.append(await _prepare(session, adapter, other, b"ccc"))
        size = sum(message.size for message in messages)
        assert _known(adapter, session, "tx") == first._replace(messages=3, size=size)

    async def test_a_commit_that_cannot_be_completed_changes_nothing(self, session: Session) -> None:
        """Tests "Raises `BackendUnavailable` or `DestinationUnknown`; then the commit has changed nothing"."""
        adapter = await session.open()
        reader = await session.reader(adapter)
        await _prepare(session, adapter, "tx", b"a")

        async def fail(messages: Sequence[Message]) -> Sequence[Message | None]:
            raise BackendUnavailable(f"{len(messages)} messages cannot be completed")

        with pytest.raises(BackendUnavailable):
            await _within(_transactional(adapter).commit(_own(session, "tx"), fail))
        assert _known(adapter, session, "tx").state is TransactionState.OPEN
        await _prepare(session, adapter, "tx", b"b")
        assert len(await _commit(adapter, _own(session, "tx"))) == 2  # noqa: PLR2004 - both
        assert bodies(await session.rest(adapter, reader)) == [b"a", b"b"]

    async def test_two_ends_at_once_are_one(self, session: Session) -> None:
        """Tests "if two end a transaction at once, one wins", with a second bridge if the backend has several."""
        adapter = await session.open()
        other = await session.open() if adapter.features.shared_groups else adapter
        reader = await session.reader(adapter)
        names = [f"tx {number}" for number in range(_MANY)]
        await asyncio.gather(*(_prepare(session, adapter, name, name.encode()) for name in names))
        ids = [_own(session, name) for name in names]
        for name in ids:
            await _until_known(other, name)
        half = _MANY // 2
        twice = [(_commit(adapter, name), _commit(other, name)) for name in ids[:half]]
        both = [(_commit(adapter, name), _rollback(other, name)) for name in ids[half:]]
        results = await asyncio.gather(*(asyncio.gather(*pair, return_exceptions=True) for pair in [*twice, *both]))
        for first, second in results[:half]:
            assert isinstance(first, Sequence)
            assert isinstance(second, Sequence)
            assert sorted([len(first), len(second)]) == [0, 1], "one stores the message"
        won = [isinstance(committed, Sequence) for committed, _ in results[half:]]
        for committed, rolled_back in results[half:]:
            errors = [each for each in (committed, rolled_back) if isinstance(each, BaseException)]
            assert [type(error) for error in errors] == [TransactionEnded], "one wins, the other is refused"
        expected = [*names[:half], *(name for name, wins in zip(names[half:], won, strict=True) if wins)]
        found = bodies(await session.rest(adapter, reader))
        assert sorted(found) == sorted(name.encode() for name in expected)

    async def test_many_transactions_are_open_at_once(self, session: Session) -> None:
        """Tests "Concurrent calls keep their order", and that transactions do not disturb each other."""
        adapter = await session.open()
        reader = await session.reader(adapter)
        names = [f"tx {number}" for number in range(_MANY)]
        await asyncio.gather(
            *(_prepare(session, adapter, name, f"{name}/{step}".encode()) for step in range(3) for name in names)
        )
        ends = [_commit if number % 2 else _rollback for number in range(_MANY)]
        await asyncio.gather(*(end(adapter, _own(session, name)) for end, name in zip(ends, names, strict=True)))
        found = bodies(await session.rest(adapter, reader))
        committed = names[1::2]
        assert len(found) == 3 * len(committed)
        for name in committed:
            own = [body for body in found if body.startswith(f"{name}/".encode())]
            assert own == [f"{name}/{step}".encode() for step in range(3)]

    async def test_transactions_survive_what_a_stored_message_survives(self, session: Session) -> None:
        """Tests "It survives whatever a stored message survives"."""
        adapter = await session.open()
        if not adapter.features.durable:
            return
        begun = _begin(session, "open")
        for name in (begun, "committed", "dropped"):
            for body in numbered(2):
                await _prepare(session, adapter, name, body)
        await _commit(adapter, _own(session, "committed"))
        await _rollback(adapter, _own(session, "dropped"))
        before = _known(adapter, session, "open")
        await adapter.close()
        again = await session.open()
        assert await _until_known(again, begun.id) == before
        assert len(await _commit(again, _own(session, "committed"))) == 0
        with pytest.raises(TransactionEnded):
            await _commit(again, _own(session, "dropped"))
        await _prepare(session, again, "open", b"more")
        await _commit(again, begun.id)
        found = bodies(await session.rest(again, await session.reader(again)))
        assert found == [*numbered(2), *numbered(2), b"more"]

    async def test_another_bridge_ends_a_transaction(self, session: Session) -> None:
        """Tests "Every bridge on the same backend may prepare, commit and roll back"."""
        adapter = await session.open()
        if not adapter.features.shared_groups:
            return
        other = await session.open()
        reader = await session.reader(adapter)
        for name in ("committed", "dropped"):
            await _prepare(session, adapter, name, name.encode())
            await _until_known(other, _own(session, name))
            await _prepare(session, other, name, b"by the other bridge")
        await _commit(other, _own(session, "committed"))
        await _rollback(other, _own(session, "dropped"))
        assert len(await _commit(adapter, _own(session, "committed"))) == 0
        with pytest.raises(TransactionEnded):
            await _commit(adapter, _own(session, "dropped"))
        assert bodies(await session.rest(adapter, reader)) == [b"committed", b"by the other bridge"]


def _transactional(adapter: Adapter) -> Transactional:
    assert isinstance(adapter, Transactional)
    return adapter


def _own(session: Session, name: str) -> str:
    """Return an id that only this test uses."""
    return f"{session.destination}/{name}"


def _begin(session: Session, name: str) -> Transaction:
    return Transaction(_own(session, name), TransactionState.OPEN, wall(), 60_000, _CHECK, messages=0, size=0)


async def _prepare(
    session: Session, adapter: Adapter, transaction: Transaction | str, body: bytes, destination: str = ""
) -> Message:
    """Prepare a message as the engine does: without storeTimestamp and partition."""
    if isinstance(transaction, str):
        transaction = _begin(session, transaction)
    destination = destination or session.destination
    if isinstance(adapter, Partitioned):
        await _within(adapter.partitions(destination))
    message = Message(
        destination,
        body,
        {"städte": "zürich"},
        message_id=uuid4().hex,
        born_timestamp=wall(),
        born_host="kit",
        message_key="k",
        transaction_id=visible_id(transaction.id),
    )
    await _within(_transactional(adapter).prepare(transaction, message))
    return message


def _completing(adapter: Adapter) -> Complete:
    """Return a function that completes messages as the engine does."""
    partition = 0 if isinstance(adapter, Partitioned) else None

    async def complete(messages: Sequence[Message]) -> Sequence[Message]:
        return [each._replace(store_timestamp=wall(), store_host="kit:1", partition=partition) for each in messages]

    return complete


async def _commit(adapter: Adapter, name: str) -> Sequence[Stored | None]:
    return await _within(_transactional(adapter).commit(name, _completing(adapter)))


async def _rollback(adapter: Adapter, name: str) -> None:
    await _within(_transactional(adapter).rollback(name))


def _known(adapter: Adapter, session: Session, name: str) -> Transaction:
    return _transactional(adapter).known_transactions()[_own(session, name)]


async def _until_known(adapter: Adapter, name: str) -> Transaction:
    """Wait for a transaction of another bridge: "What other bridges did may be missing for a moment"."""
    async with asyncio.timeout(GUARD):
        while (known := _transactional(adapter).known_transactions().get(name)) is None:  # noqa: ASYNC110 - no event
            await asyncio.sleep(_AGAIN)
    return known


async def _within(call: Awaitable[_T]) -> _T:
    async with asyncio.timeout(GUARD):
        return await call
