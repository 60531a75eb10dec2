"""The changes that wait for the journal, and how one transaction writes them."""

import asyncio
import sqlite3
from collections.abc import Iterable
from typing import Final, NamedTuple

from adapters.base import Delivery, Stored, TransactionState
from adapters.memory.destination import Destination
from adapters.memory.group import StoredGroup
from adapters.memory.journal_schema import checksum, in_bulk, with_checksum
from adapters.memory.journal_transactions import (
    TransactionEnd,
    delete_transactions,
    write_ends,
    write_prepared,
)
from adapters.memory.partition import Partition
from adapters.memory.record import BODY, Record, encode
from adapters.memory.transaction_table import PreparedWrite
from adapters.range_set import RangeSet

_ROW: Final = 512
"""Bytes assumed for a queued message beside its body."""


class MessageWrite(NamedTuple):
    """A message to write."""

    destination: Destination
    partition: Partition
    record: Record
    offset: int | None
    """None: the message is delayed until `due`."""
    sequence: int
    stored: int
    due: int
    future: asyncio.Future[Stored] | None
    """None: a delayed message that is due now, or a message of a transaction: `TransactionEnd` has its future."""
    delayed_sequence: int | None = None
    """The sequence of the delayed message that it replaces."""

    @property
    def answered_early(self) -> bool:
        """Whether the message was answered before its commit: memory stores it even if the commit fails."""
        return self.future is not None and self.future.done() and not self.future.cancelled()


class Settlement(NamedTuple):
    """Deliveries that one group has settled."""

    group: StoredGroup
    deliveries: list[Delivery]
    future: asyncio.Future[None]


class Join(NamedTuple):
    """A group that was subscribed to, with its state, so that it exists after a restart."""

    group: StoredGroup
    destination: Destination
    committed_offsets: list[int]
    """By partition: everything below is settled."""
    future: asyncio.Future[None]


class MetadataChange(NamedTuple):
    """A metadata entry of the bridge to write; value None: to delete."""

    name: str
    value: str | None
    future: asyncio.Future[None]


class Batch:
    """All changes since the last commit. Their order within the batch does not matter."""

    def __init__(self) -> None:
        self.messages: list[MessageWrite] = []
        self.prepared: list[PreparedWrite] = []
        self.ends: list[TransactionEnd] = []
        self.settlements: list[Settlement] = []
        self.joins: list[Join] = []
        self.metadata: list[MetadataChange] = []
        self.attempts: dict[tuple[int, int, int], int] = {}
        """By consumer, partition and offset."""
        self.committed_offsets: dict[tuple[int, int], int] = {}
        """By consumer and partition: everything below is settled."""
        self.last_offsets: dict[tuple[int, int], int] = {}
        """By destination and partition: the highest offset when messages were dropped."""
        self.dropped: list[int] = []
        """Sequences of the messages dropped."""
        self.forgotten_offsets: list[tuple[int, int, int]] = []
        """Settled or attempted offsets of messages dropped: consumer, partition, offset."""
        self.forgotten_groups: list[int] = []
        self.forgotten_destinations: list[int] = []
        self.forgotten_transactions: list[str] = []
        self.waiting: list[asyncio.Future[None]] = []
        """Calls that wait for the changes above."""
        self.unused: dict[tuple[Destination, int], RangeSet] = {}
        """By destination and partition: offsets reserved for messages that were then refused."""
        self.bytes = 0
        """An estimate of what the messages take."""

    def __bool__(self) -> bool:
        forgotten = self.forgotten_groups or self.forgotten_destinations or self.forgotten_transactions
        return self.awaited or bool(self.attempts or self.committed_offsets or self.dropped or forgotten)

    @property
    def awaited(self) -> bool:
        """Whether a call waits for this batch."""
        stored = self.messages or self.prepared or self.ends
        return bool(stored or self.settlements or self.joins or self.metadata or self.waiting)

    @property
    def waiting_messages(self) -> int:
        """Number of messages, prepared ones included."""
        return len(self.messages) + len(self.prepared)

    def add(self, write: MessageWrite) -> None:
        """Queue a message."""
        self.messages.append(write)
        self.bytes += len(write.record[BODY]) + _ROW

    def prepare(self, write: PreparedWrite) -> None:
        """Queue a prepared message."""
        self.prepared.append(write)
        self.bytes += len(write.record[BODY]) + _ROW

    def take_over(self, older: "Batch") -> None:
        """Add the changes of an older batch that no call waits for and that could not be written."""
        self.attempts = older.attempts | self.attempts
        self.committed_offsets = older.committed_offsets | self.committed_offsets
        self.last_offsets = older.last_offsets | self.last_offsets
        self.dropped = older.dropped + self.dropped
        self.forgotten_offsets = older.forgotten_offsets + self.forgotten_offsets
        self.forgotten_groups = older.forgotten_groups + self.forgotten_groups
        self.forgotten_destinations = older.forgotten_destinations + self.forgotten_destinations
        self.forgotten_transactions = older.forgotten_transactions + self.forgotten_transactions
        for key, offsets in older.unused.items():
            for start, end in offsets.bounds():
                self.unused.setdefault(key, RangeSet()).add_range(start, end)

    def mark_unused(self, refused: list[MessageWrite]) -> None:
        """Record the offsets of refused messages as unused, before a later offset of their partitions is written."""
        for write in refused:
            if write.offset is not None and not write.answered_early and not write.destination.removed:
                self.unused.setdefault((write.destination, write.partition.number), RangeSet()).add(write.offset)


def write_messages(connection: sqlite3.Connection, batch: Batch) -> None:
    """Write the messages of a batch, with the commits that store them, inside a transaction."""
    write_prepared(connection, batch.prepared)
    write_ends(connection, [end for end in batch.ends if end.state is TransactionState.COMMITTED])
    if not (messages := batch.messages):
        return
    _write_destinations(connection, {write.destination.number: write.destination for write in messages}.values())
    in_bulk(connection, "INSERT INTO message VALUES %", map(message_row, messages))
    replaced = [(write.delayed_sequence,) for write in messages if write.delayed_sequence is not None]
    in_bulk(connection, "DELETE FROM message WHERE sequence IN (VALUES %)", replaced)


def message_row(write: MessageWrite) -> tuple[int | bytes | None, ...]:
    """Return the row of one message."""
    body = write.record[BODY]
    numbers = (write.sequence, write.destination.number, write.partition.number, write.offset, write.stored)
    header = encode(write.record)
    return (*numbers, header, body, checksum(*numbers, header, body))


def write_state(connection: sqlite3.Connection, batch: Batch) -> None:
    """Write everything of a batch except what `write_messages` writes, inside a transaction."""
    write_ends(connection, [end for end in batch.ends if end.state is TransactionState.ROLLED_BACK])
    delete_transactions(connection, batch.forgotten_transactions)
    _write_destinations(connection, (d for _, d, _, _ in batch.joins))
    in_bulk(
        connection,
        "INSERT OR IGNORE INTO consumer VALUES %",
        with_checksum((g.number, d.number, _name(g.name)) for g, d, _, _ in batch.joins),
    )
    starts = [
        (g.number, partition, offset)
        for g, _, offsets, _ in batch.joins
        for partition, offset in enumerate(offsets)
        if offset
    ]
    in_bulk(connection, "INSERT OR REPLACE INTO cursor VALUES %", with_checksum(starts))
    settled = [(s.group.number, d.partition, d.position) for s in batch.settlements for d in s.deliveries]
    in_bulk(connection, "INSERT OR REPLACE INTO settled VALUES %", with_checksum(settled))
    attempts = [(*key, attempts) for key, attempts in batch.attempts.items()]
    in_bulk(connection, "INSERT OR REPLACE INTO attempt VALUES %", with_checksum(attempts))
    _write_committed_offsets(connection, batch)
    _write_drops(connection, batch)
    _write_metadata(connection, batch)
    _write_unused(connection, batch)
    _write_forgotten_destinations(connection, batch)  # last: nothing else may write them again


def _write_destinations(connection: sqlite3.Connection, destinations: Iterable[Destination]) -> None:
    in_bulk(
        connection,
        "INSERT OR IGNORE INTO destination VALUES %",
        with_checksum((d.number, _name(d.name), len(d.partitions)) for d in destinations),
    )


def _write_unused(connection: sqlite3.Connection, batch: Batch) -> None:
    _write_destinations(connection, (destination for destination, _ in batch.unused))
    rows = [(d.number, partition, *run) for (d, partition), offsets in batch.unused.items() for run in offsets.bounds()]
    in_bulk(connection, "INSERT OR REPLACE INTO void VALUES %", with_checksum(rows))


def _write_forgotten_destinations(connection: sqlite3.Connection, batch: Batch) -> None:
    numbers = [(number,) for number in batch.forgotten_destinations]
    in_bulk(connection, "DELETE FROM destination WHERE number IN (VALUES %)", numbers)
    for table in ("message", "tail", "void", "consumer"):
        in_bulk(connection, f"DELETE FROM {table} WHERE destination IN (VALUES %)", numbers)  # noqa: S608


def _name(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


def _write_committed_offsets(connection: sqlite3.Connection, batch: Batch) -> None:
    rows = [(*key, offset) for key, offset in batch.committed_offsets.items()]
    in_bulk(connection, "INSERT OR REPLACE INTO cursor VALUES %", with_checksum(rows))
    for table in ("settled", "attempt"):
        for row in rows:
            connection.execute(f"DELETE FROM {table} WHERE consumer=? AND partition=? AND offset<?", row)  # noqa: S608


def _write_drops(connection: sqlite3.Connection, batch: Batch) -> None:
    in_bulk(connection, "DELETE FROM message WHERE sequence IN (VALUES %)", [(s,) for s in batch.dropped])
    last_offsets = [(*key, offset) for key, offset in batch.last_offsets.items()]
    in_bulk(connection, "INSERT OR REPLACE INTO tail VALUES %", with_checksum(last_offsets))
    for table in ("settled", "attempt"):
        statement = f"DELETE FROM {table} WHERE (consumer, partition, offset) IN (VALUES %)"  # noqa: S608
        in_bulk(connection, statement, batch.forgotten_offsets)
    groups = [(number,) for number in batch.forgotten_groups]
    in_bulk(connection, "DELETE FROM consumer WHERE number IN (VALUES %)", groups)
    for table in ("cursor", "settled", "attempt"):
        in_bulk(connection, f"DELETE FROM {table} WHERE consumer IN (VALUES %)", groups)  # noqa: S608


def _write_metadata(connection: sqlite3.Connection, batch: Batch) -> None:
    last = {change.name: change.value for change in batch.metadata}
    in_bulk(connection, "DELETE FROM note WHERE name IN (VALUES %)", [(_name(name),) for name in last])
    kept = [(_name(name), value.encode("utf-8", "surrogatepass")) for name, value in last.items() if value is not None]
    in_bulk(connection, "INSERT INTO note VALUES %", with_checksum(kept))
