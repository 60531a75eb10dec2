"""The memory backend with a journal: what it answers for is on disk first.

The log in memory is what the journal has committed: a message becomes readable, and a settlement counts, only after
the commit. So a failed commit takes nothing back that anybody has seen.
"""

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from adapters.base import Delivery, Outcome, Revoked, Stored
from adapters.clock import wall
from adapters.memory.adapter import MemoryAdapter, failed, features
from adapters.memory.batch import Batch, Join, Note, Settlement, Store
from adapters.memory.files import Directory
from adapters.memory.group import Group
from adapters.memory.journal import Journal, Result
from adapters.memory.log import Held, Log
from adapters.memory.options import Options
from adapters.memory.partition import pack
from adapters.memory.recovery import recover
from adapters.memory.room import Dropped, Room
from adapters.memory.subscription import MemorySubscription
from bridge.errors import BackendUnavailable, BridgeError
from bridge.message import Message

_T = TypeVar("_T")
_Recovered = tuple[Log, Room, sqlite3.Connection, int]
_RETRY: Final = 1000
"""Milliseconds before a due message that could not be recorded as such is tried again."""


class DurableAdapter(MemoryAdapter):
    """Survives `kill -9`: messages, delays, settlements and attempts are committed before they are answered for."""

    kept_in = "journal"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        assert options.journal is not None  # noqa: S101 - connect looked
        self.features = features(durable=True)
        self._path = options.journal
        self._journal: Journal | None = None

    async def start(self) -> None:
        """Lock the directory and read it back. Raises `BackendUnavailable`, and `JournalCorrupt` for good."""
        if self._journal is not None:
            return
        directory = Directory.open(self._path)
        # in another thread, because reading back a gigabyte takes a while and the loop has probes to answer
        recovering = asyncio.ensure_future(asyncio.to_thread(self._recover, directory))
        try:
            log, room, connection, commits = await asyncio.shield(recovering)
        except asyncio.CancelledError:
            recovering.add_done_callback(lambda task: _abandon(task, directory))
            raise
        except BaseException:
            directory.close()
            raise
        self._log, self._room = log, room
        self._journal = Journal(directory, connection, commits, self._committed)
        self._run()

    def publish(self, message: Message) -> asyncio.Future[Stored]:
        """Queue one message for the next commit. The future raises `NotStored`, `OutcomeUnknown`, `PartitionUnknown`.

        With `durability` 0 it is done at once.
        """
        now = wall()
        try:
            future: asyncio.Future[Stored] = self._running().create_future()
            destination, partition = self._log.place(message)
            self._writer.check_room()
            record = pack(message)
            self._room.admit(record, now)
        except BridgeError as error:
            return failed(error)
        offset = None if message.due > now else partition.reserve()
        if message.durability == 0:
            future.set_result(Stored(partition.number, offset))
        sequence = self._log.next_sequence()
        self._writer.batch.add(
            Store(destination, partition, record, offset, sequence, stored=now, due=message.due, future=future)
        )
        self._writer.flush()
        return future

    async def subscribe(self, source: str, group: str, revoked: Revoked, *, latest: bool = False) -> MemorySubscription:
        """Join a group, once it is on disk. Raises as the volatile one does, and `OutcomeUnknown`."""
        subscription = await super().subscribe(source, group, revoked, latest=latest)
        recorded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lows = [cursor.low for cursor in subscription.group.cursors]
        # also for a group that is known: its first commit may have failed
        self._writer.batch.joined.append(Join(subscription.group, self._log.destination(source), lows, recorded))
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
        """Record the outcome; SETTLED is done with the commit, the others at once and on disk with the next one."""
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
            self._hand_back(subscription, deliveries, outcome)
            future.set_result(None)
        self._writer.flush()
        return future

    async def keep(self, key: str, value: str | None) -> None:
        """Keep or drop a note. Raises as `subscribe` does."""
        recorded: asyncio.Future[None] = self._running().create_future()
        self._writer.batch.notes.append(Note(key, value, recorded))
        self._writer.flush()
        await recorded

    def kept(self) -> Mapping[str, str]:
        """Every note. Raises `BackendUnavailable` before the start."""
        self._running()
        return dict(self._log.notes)

    async def close(self) -> None:
        """Commit what was accepted, close the journal and unlock its directory."""
        self._halt()
        if self._journal is not None:
            await self._journal.close()
            self._journal = None
        self._reset()

    @property
    def _writer(self) -> Journal:
        if self._journal is None:
            raise BackendUnavailable("The journal is closed.")
        return self._journal

    def _recover(self, directory: Directory) -> _Recovered:
        log = Log(self._options)
        room = Room(log, self._options, self._forget_dropped)
        return log, room, *recover(directory, log, room, wall())

    # What became of a batch

    def _committed(self, batch: Batch, result: Result) -> None:
        now = wall()
        for store in batch.stores:
            self._stored(store, result.stores, now)
        for settlement in batch.settlements:
            if result.rest is None:
                self._settled(settlement)
            _answer(settlement.future, None, result.rest)
        for join in batch.joined:
            _answer(join.future, None, result.rest)
        for note in batch.notes:
            if result.rest is None:
                self._noted(note)
            _answer(note.future, None, result.rest)
        self._arm()

    def _stored(self, store: Store, error: BridgeError | None, now: int) -> None:
        future = store.future
        if error is None or store.promised:
            # a message answered before its commit, under durability 0, was promised to memory and no more
            if store.offset is None:
                self._log.hold(store.destination, store.record, store.due, store.sequence)
            else:
                partition = store.partition
                partition.append(store.record, store.offset, store.sequence, store.stored)
                if error is None:
                    partition.unsure = None
                elif partition.unsure is None:
                    partition.unsure = store.offset
                store.destination.wake()
        else:
            if store.offset is not None:
                store.partition.voids.add(store.offset)
            if store.held_as is not None:
                self._log.hold(store.destination, store.record, now + _RETRY, store.held_as)
            else:
                self._room.refund(store.record)
        if future is not None:
            _answer(future, Stored(store.partition.number, store.offset), error)

    def _settled(self, settlement: Settlement) -> None:
        group = settlement.group
        cursors = {delivery.partition: group.cursors[delivery.partition] for delivery in settlement.deliveries}
        before = {number: cursor.low for number, cursor in cursors.items()}
        for delivery in settlement.deliveries:
            self._log.settle(group, delivery.partition, delivery.position)
        for number, cursor in cursors.items():
            if cursor.low != before[number]:
                self._writer.batch.lows[group.number, number] = cursor.low

    def _noted(self, note: Note) -> None:
        if note.value is None:
            self._log.notes.pop(note.name, None)
        else:
            self._log.notes[note.name] = note.value

    # What the journal hears of without anybody waiting

    def _let_out(self, held: Held, now: int) -> None:
        partition = held.partition
        offset, sequence = partition.reserve(), self._log.next_sequence()
        self._writer.batch.add(
            Store(*held[:3], offset, sequence, stored=now, due=now, future=None, held_as=held.sequence)
        )
        self._writer.flush()

    def _forget_dropped(self, dropped: Dropped) -> None:
        batch = self._writer.batch
        partition = dropped.partition
        batch.dropped += dropped.sequences
        batch.tails[dropped.destination.number, partition.number] = partition.end - 1
        for group in dropped.destination.groups.values():
            if group.cursors[partition.number].low <= dropped.offsets[-1]:
                batch.forgotten_offsets += [(group.number, partition.number, offset) for offset in dropped.offsets]
        self._writer.flush()

    def _forgotten(self, groups: list[Group]) -> None:
        if groups:
            self._writer.batch.forgotten_groups += [group.number for group in groups]
            self._writer.flush()


def _abandon(recovering: asyncio.Task[_Recovered], directory: Directory) -> None:
    """Let go of what a start found that nobody waits for any more."""
    if not recovering.cancelled() and recovering.exception() is None:
        recovering.result()[2].close()
    directory.close()


def _answer(future: asyncio.Future[_T], value: _T, error: BridgeError | None) -> None:
    """Complete a future that its owner may have given up, or had answered before."""
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(type(error)(error.detail))  # one each: raising adds a traceback to it
