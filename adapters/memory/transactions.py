"""Transactions of the memory backend; see `Transactional`. A journal overrides how each step is stored."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Coroutine, Generator, Mapping, Sequence
from functools import partial
from typing import Any

from adapters.base import Complete, Stored, Support, Transaction, TransactionState
from adapters.memory.backend_state import BackendState
from adapters.memory.capacity_and_retention import Capacity
from adapters.memory.destination import Destination
from adapters.memory.partition import Partition
from adapters.memory.record import Record, pack, unpack
from adapters.memory.transaction_table import OpenTransaction, PreparedWrite
from adapters.wall_clock import wall
from bridge.message import Message


class _Rest:
    """The rest of a coroutine that waits for something."""

    def __init__(self, work: Coroutine[Any, Any, Sequence[Stored | None]], awaited: object) -> None:
        self._work = work
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, Sequence[Stored | None]]:
        while True:
            try:
                sent = yield self._awaited
            except BaseException as error:  # noqa: BLE001 - a cancellation
                resume = partial(self._work.throw, error)
            else:
                resume = partial(self._work.send, sent)
            try:
                self._awaited = resume()
            except StopIteration as done:
                result: Sequence[Stored | None] = done.value
                return result


class Transactions(ABC):
    """The part of the memory adapter that prepares, commits and rolls back."""

    transactions = Support.NATIVE
    _store: BackendState
    _capacity: Capacity

    def known_transactions(self) -> Mapping[str, Transaction]:
        """Return the transactions by id; see `Transactional`. Raises `BackendUnavailable`."""
        self._running()
        return self._store.transactions.known

    def prepare(self, transaction: Transaction, message: Message) -> asyncio.Future[None]:
        """Add a message. Raises `TransactionEnded`, `BackendFull` or `BackendUnavailable`."""
        future: asyncio.Future[None] = self._running().create_future()
        found = self._store.transactions.begin(transaction)
        record = pack(message)
        self._admit(record, wall())
        self._store_prepared(PreparedWrite(found, self._store.next_sequence(), record, message.size, future))
        return future

    def commit(self, transaction: str, complete: Complete) -> Awaitable[Sequence[Stored | None]]:
        """Store the messages; see `Transactional`. The journal's errors are `NotStored` or `OutcomeUnknown`.

        It is done when this returns, unless `complete` has to wait, or the transaction is being ended already.
        """
        future: asyncio.Future[Sequence[Stored | None]] = self._running().create_future()
        work = self._commit(transaction, complete)
        try:
            awaited = work.send(None)
        except StopIteration as done:
            future.set_result(done.value)
            return future
        return _Rest(work, awaited)

    async def _commit(self, transaction: str, complete: Complete) -> Sequence[Stored | None]:
        transactions, state = self._store.transactions, TransactionState.COMMITTED
        self._running()
        if (found := transactions.find(transaction, state)) is None:
            return ()
        async with found.ending:
            while found.writing:
                await self._recorded()
            if transactions.find(transaction, state) is None:
                return ()
            prepared = found.prepared.values()
            messages = await complete([unpack(record) for record in prepared])
            self._running()
            places = [None if message is None else (message, *self._store.place(message)) for message in messages]
            now = wall()
            for record in prepared:
                self._capacity.remove(record)  # completed, it is counted again: a full backend refuses no commit
            stored = [None if place is None else self._move(*place, now) for place in places]
            await self._end(found, state, now)
            return stored

    async def rollback(self, transaction: str) -> None:
        """Drop the messages; see `Transactional`."""
        transactions, state = self._store.transactions, TransactionState.ROLLED_BACK
        self._running()
        if (found := transactions.find(transaction, state)) is None:
            return
        async with found.ending:
            while found.writing:
                await self._recorded()
            if transactions.find(transaction, state) is not None:
                await self._end(found, state, wall())

    def _move(self, message: Message, destination: Destination, partition: Partition, now: int) -> Stored:
        record = pack(message)
        self._capacity.restore(record)
        return self._append(message, destination, partition, record, now)

    # A journal overrides the following

    def _store_prepared(self, write: PreparedWrite) -> None:
        self._store.transactions.add(write.transaction, write.sequence, write.record, write.size)
        write.future.set_result(None)

    async def _end(self, transaction: OpenTransaction, state: TransactionState, now: int) -> None:
        self._forget_prepared(transaction, state)
        self._store.transactions.end(transaction.details, state, now)

    def _forget_prepared(self, transaction: OpenTransaction, state: TransactionState) -> None:
        """Stop counting the messages of a transaction that was rolled back."""
        if state is TransactionState.ROLLED_BACK:
            for record in transaction.prepared.values():
                self._capacity.remove(record)

    @abstractmethod
    def _running(self) -> asyncio.AbstractEventLoop: ...

    @abstractmethod
    def _admit(self, record: Record, now: int) -> None: ...

    @abstractmethod
    def _append(
        self, message: Message, destination: Destination, partition: Partition, record: Record, now: int
    ) -> Stored: ...

    @abstractmethod
    async def _recorded(self) -> None: ...
