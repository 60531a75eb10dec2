"""The adapter with a journal: it answers only after the journal's commit.

The log in memory holds what the journal has committed: a message becomes readable, and a settlement counts, only after
the commit. So a failed commit reverts nothing that a client has seen.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, TypeVar

from adapters.base import Complete, Delivery, Outcome, Published, Revoked, Stored, TransactionState
from adapters.memory.adapter import MemoryAdapter, failed, features
from adapters.memory.backend_state import BackendState, DelayedMessage
from adapters.memory.capacity_and_retention import Capacity, Dropped
from adapters.memory.destination import Destination
from adapters.memory.group import StoredGroup
from adapters.memory.journal_batch import (
    Batch,
    Join,
    MessageWrite,
    MetadataChange,
    Settlement,
)
from adapters.memory.journal_directory import JournalDirectory
from adapters.memory.journal_transactions import TransactionEnd
from adapters.memory.journal_writer import CommitResult, JournalWriter
from adapters.memory.options import Options
from adapters.memory.partition import Partition
from adapters.memory.record import Record, pack
from adapters.memory.recovery import recover
from adapters.memory.subscription import MemorySubscription
from adapters.memory.transaction_table import OpenTransaction, PreparedWrite
from adapters.wall_clock import wall
from bridge.errors import BackendUnavailable, BridgeError
from bridge.message import Message

_T = TypeVar("_T")
_Recovered = tuple[BackendState, Capacity, sqlite3.Connection, int]
_RETRY: Final = 1000
"""Milliseconds before the journal is tried again for a due message that could not be written."""


class DurableAdapter(MemoryAdapter):
    """Survives `kill -9`: messages, delays, settlements and attempts are committed before calls are answered."""

    stored_in = "journal"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        assert options.journal is not None  # noqa: S101 - `connect` checked it
        self.features = features(durable=True)
        self._path = options.journal
        self._journal: JournalWriter | None = None

    async def start(self) -> None:
        """Lock the directory and read the journal. Raises `BackendUnavailable` or `CannotStart`: do not retry that."""
        if self._journal is not None:
            return
        directory = JournalDirectory.open(self._path)
        # in another thread, because reading a gigabyte takes a while and the loop has to answer probes
        recovering = asyncio.ensure_future(asyncio.to_thread(self._recover, directory))
        try:
            store, capacity, connection, commits = await asyncio.shield(recovering)
        except asyncio.CancelledError:
            recovering.add_done_callback(lambda task: _abandon(task, directory))
            raise
        except BaseException:
            directory.close()
            raise
        self._store, self._capacity = store, capacity
        self._journal = JournalWriter(directory, connection, commits, self._committed)
        self._open()

    def publish(self, message: Message) -> asyncio.Future[Stored]:
        """Queue one message for the next commit. The future raises `NotStored`, `OutcomeUnknown`, `PartitionUnknown`.

        With `durability` 0 the future is done at once.
        """
        now = wall()
        try:
            future: asyncio.Future[Stored] = self._running().create_future()
            destination, partition = self._store.place(message)
            record = pack(message)
            self._admit(record, now)
        except BridgeError as error:
            return failed(error)
        stored = self._append(message, destination, partition, record, now, future=future)
        if message.durability == 0:
            future.set_result(stored)
        return future

    def _admit(self, record: Record, now: int) -> None:
        self._writer.check_space()
        super()._admit(record, now)

    def _append(  # noqa: PLR0913 - one more than without a journal
        self,
        message: Message,
        destination: Destination,
        partition: Partition,
        record: Record,
        now: int,
        *,
        future: asyncio.Future[Stored] | None = None,
    ) -> Stored:
        offset = None if message.due > now else partition.reserve()
        sequence = self._store.next_sequence()
        self._writer.batch.add(
            MessageWrite(destination, partition, record, offset, sequence, stored=now, due=message.due, future=future)
        )
        self._writer.flush()
        return Stored(partition.number, offset)

    def publish_many(self, messages: Sequence[Message]) -> Sequence[Published]:
        """Queue messages for the next commit; see `PublishesMany`."""
        return [self.publish(message) for message in messages]

    async def subscribe(self, source: str, group: str, revoked: Revoked, *, latest: bool = False) -> MemorySubscription:
        """Join a group and wait until it is on disk. Raises as `MemoryAdapter.subscribe`, and `OutcomeUnknown`."""
        subscription = await super().subscribe(source, group, revoked, latest=latest)
        recorded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        committed_offsets = [cursor.committed_offset for cursor in subscription.group.cursors]
        # also if the group exists already: its first commit may have failed
        self._writer.batch.joins.append(
            Join(subscription.group, self._store.destination(source), committed_offsets, recorded)
        )
        self._writer.flush()
        try:
            await recorded
        except BaseException:
            subscription.stop()
            raise
        return subscription

    def settle(
        self, subscription: MemorySubscription, deliveries: Sequence[Delivery], outcome: Outcome
    ) -> asyncio.Future[None]:
        """Record the outcome. For SETTLED the future completes after the commit.

        Other outcomes complete at once and are written by the next commit.
        """
        try:
            future: asyncio.Future[None] = self._running().create_future()
        except BridgeError as error:
            return failed(error)
        if subscription.group.forgotten:
            future.set_result(None)
            return future
        batch = self._writer.batch
        if outcome is Outcome.SETTLED:
            batch.settlements.append(Settlement(subscription.group, list(deliveries), future))
        else:
            for delivery in deliveries:
                batch.attempts[subscription.group.number, delivery.partition, delivery.position] = delivery.attempts
            self._release(subscription, deliveries, outcome)
            future.set_result(None)
        self._writer.flush()
        return future

    def commit(self, transaction: str, complete: Complete) -> Awaitable[Sequence[Stored | None]]:
        """Store the messages with one commit of the journal; a cancelled call finishes it, too."""
        return asyncio.shield(asyncio.ensure_future(self._commit(transaction, complete)))

    async def rollback(self, transaction: str) -> None:
        """Drop the messages; a cancelled call finishes it, too."""
        await asyncio.shield(asyncio.ensure_future(super().rollback(transaction)))

    def _store_prepared(self, write: PreparedWrite) -> None:
        write.transaction.writing += 1
        self._store.transactions.open[write.transaction.details.id] = write.transaction
        self._writer.batch.prepare(write)
        self._writer.flush()

    async def _end(self, transaction: OpenTransaction, state: TransactionState, now: int) -> None:
        future: asyncio.Future[None] = self._running().create_future()
        self._writer.batch.ends.append(TransactionEnd(transaction, state, now, future))
        self._writer.flush()
        await future

    async def put(self, key: str, value: str | None) -> None:
        """Write or delete a metadata entry. Raises `BackendUnavailable`, `BackendFull` or `OutcomeUnknown`."""
        recorded: asyncio.Future[None] = self._running().create_future()
        self._writer.batch.metadata.append(MetadataChange(key, value, recorded))
        self._writer.flush()
        await recorded

    def all(self) -> Mapping[str, str]:
        """Return all metadata. Raises `BackendUnavailable` before the start."""
        self._running()
        return dict(self._store.metadata)

    async def close(self) -> None:
        """Commit what was accepted, close the journal and unlock its directory."""
        self._stop()
        if self._journal is not None:
            await self._journal.close()
            self._journal = None
        self._reset()

    @property
    def _writer(self) -> JournalWriter:
        if self._journal is None:
            raise BackendUnavailable("The journal is closed.")
        return self._journal

    def _recover(self, directory: JournalDirectory) -> _Recovered:
        store = BackendState(self._options)
        capacity = Capacity(store, self._options, self._forget_dropped)
        return store, capacity, *recover(directory, store, capacity, wall())

    # After a commit

    def _committed(self, batch: Batch, result: CommitResult) -> None:
        now = wall()
        for write in batch.messages:
            self._finish_write(write, result.messages, now)
        for prepared in batch.prepared:
            self._finish_prepared(prepared, result.messages)
        for end in batch.ends:
            self._finish_end(end, result)
        for settlement in batch.settlements:
            if result.state is None:
                self._settled(settlement)
            _answer(settlement.future, None, result.state)
        for join in batch.joins:
            _answer(join.future, None, result.state)
        for waiting in batch.waiting:
            _answer(waiting, None, result.state)
        for change in batch.metadata:
            if result.state is None:
                self._set_metadata(change)
            _answer(change.future, None, result.state)
        self._set_due_timer()

    def _finish_write(self, write: MessageWrite, error: BridgeError | None, now: int) -> None:
        future = write.future
        if write.destination.removed:
            self._capacity.remove(write.record)  # the journal deletes it, too, in this commit or in the next
        elif error is None or write.answered_early:
            # a message answered before its commit (durability 0) is stored in memory even if the commit failed
            if write.offset is None:
                self._store.add_delayed(write.destination, write.record, write.due, write.sequence)
            else:
                partition = write.partition
                partition.append(write.record, write.offset, write.sequence, write.stored)
                if error is None:
                    partition.unrecorded_from = None
                elif partition.unrecorded_from is None:
                    partition.unrecorded_from = write.offset
                write.destination.notify()
        else:
            if write.offset is not None:
                write.partition.unused.add(write.offset)
            if write.delayed_sequence is not None:
                self._store.add_delayed(write.destination, write.record, now + _RETRY, write.delayed_sequence)
            else:
                self._capacity.remove(write.record)
        if future is not None:
            _answer(future, Stored(write.partition.number, write.offset), error)

    def _finish_prepared(self, write: PreparedWrite, error: BridgeError | None) -> None:
        transaction, sequence, record, size, future = write
        transaction.writing -= 1
        if error is None:
            self._store.transactions.add(transaction, sequence, record, size)
        else:
            self._capacity.remove(record)
            self._store.transactions.remove_if_empty(transaction)
        _answer(future, None, error)

    def _finish_end(self, end: TransactionEnd, result: CommitResult) -> None:
        transaction, state, now, future = end
        error = result.messages if state is TransactionState.COMMITTED else result.state
        if error is None:
            self._forget_prepared(transaction, state)
            self._writer.batch.forgotten_transactions += self._store.transactions.end(transaction.details, state, now)
        elif state is TransactionState.COMMITTED:
            for record in transaction.prepared.values():
                self._capacity.restore(record)
        _answer(future, None, error)

    def _settled(self, settlement: Settlement) -> None:
        group = settlement.group
        cursors = {delivery.partition: group.cursors[delivery.partition] for delivery in settlement.deliveries}
        before = {number: cursor.committed_offset for number, cursor in cursors.items()}
        self._store.settle(group, settlement.deliveries)
        for number, cursor in cursors.items():
            if cursor.committed_offset != before[number]:
                self._writer.batch.committed_offsets[group.number, number] = cursor.committed_offset

    def _set_metadata(self, change: MetadataChange) -> None:
        if change.value is None:
            self._store.metadata.pop(change.name, None)
        else:
            self._store.metadata[change.name] = change.value

    # Changes that no call waits for

    def _append_delayed(self, delayed: DelayedMessage, now: int) -> None:
        partition = delayed.partition
        offset, sequence = partition.reserve(), self._store.next_sequence()
        self._writer.batch.add(
            MessageWrite(
                *delayed[:3], offset, sequence, stored=now, due=now, future=None, delayed_sequence=delayed.sequence
            )
        )
        self._writer.flush()

    def _forget_dropped(self, dropped: Dropped) -> None:
        batch = self._writer.batch
        partition = dropped.partition
        batch.dropped += dropped.sequences
        batch.last_offsets[dropped.destination.number, partition.number] = partition.end - 1
        for group in dropped.destination.groups.values():
            if group.cursors[partition.number].committed_offset <= dropped.offsets[-1]:
                batch.forgotten_offsets += [(group.number, partition.number, offset) for offset in dropped.offsets]
        self._writer.flush()

    def _groups_forgotten(self, groups: list[StoredGroup]) -> None:
        if groups:
            self._writer.batch.forgotten_groups += [group.number for group in groups]
            self._writer.flush()

    def _destinations_forgotten(self, destinations: list[Destination]) -> None:
        if destinations:
            self._writer.batch.forgotten_destinations += [destination.number for destination in destinations]
            self._writer.flush()

    def _delayed_dropped(self, sequence: int) -> None:
        self._writer.batch.dropped.append(sequence)

    def _group_purged(self, group: StoredGroup) -> None:
        for cursor in group.cursors:
            self._writer.batch.committed_offsets[group.number, cursor.partition.number] = cursor.committed_offset

    async def _recorded(self) -> None:
        recorded: asyncio.Future[None] = self._running().create_future()
        self._writer.batch.waiting.append(recorded)
        self._writer.flush()
        await recorded


def _abandon(recovering: asyncio.Task[_Recovered], directory: JournalDirectory) -> None:
    """Close what a cancelled start has opened."""
    if not recovering.cancelled() and recovering.exception() is None:
        recovering.result()[2].close()
    directory.close()


def _answer(future: asyncio.Future[_T], value: _T, error: BridgeError | None) -> None:
    """Complete a future unless it was cancelled or completed before."""
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(type(error)(error.detail))  # one exception for each future: raising adds a traceback to it
