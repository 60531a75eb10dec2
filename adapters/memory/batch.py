"""What waits for the journal, and how it becomes one transaction."""

import asyncio
import sqlite3
from collections.abc import Iterable
from typing import Final, NamedTuple

from adapters.base import Delivery, Stored
from adapters.memory.group import Group
from adapters.memory.log import Destination
from adapters.memory.partition import BODY, Partition, Record
from adapters.memory.record import encode
from adapters.memory.schema import checksum, in_bulk, with_checksum
from adapters.runs import Runs

_ROW: Final = 512
"""Bytes assumed for what a queued message holds beside its body."""


class Store(NamedTuple):
    """A message on its way into the journal."""

    destination: Destination
    partition: Partition
    record: Record
    offset: int | None
    """None: it is to be held until `due`."""
    sequence: int
    stored: int
    due: int
    future: asyncio.Future[Stored] | None
    """None: nobody waits, it was answered before and is now due."""
    held_as: int | None = None
    """The sequence of the row that it replaces."""

    @property
    def promised(self) -> bool:
        """Whether it was answered before its commit: kept in memory, whatever becomes of that."""
        return self.future is not None and self.future.done() and not self.future.cancelled()


class Settlement(NamedTuple):
    """Deliveries of one group that are done."""

    group: Group
    deliveries: list[Delivery]
    future: asyncio.Future[None]


class Join(NamedTuple):
    """A group that has a subscription, and everything it needs to be the same group after a restart."""

    group: Group
    destination: Destination
    lows: list[int]
    """By partition: everything below is settled."""
    future: asyncio.Future[None]


class Note(NamedTuple):
    """A note of the bridge's own, or with None the end of one."""

    name: str
    value: str | None
    future: asyncio.Future[None]


class Batch:
    """Everything asked of the journal since the last commit. Which order they came in does not matter within it."""

    def __init__(self) -> None:
        self.stores: list[Store] = []
        self.settlements: list[Settlement] = []
        self.joined: list[Join] = []
        self.notes: list[Note] = []
        self.attempts: dict[tuple[int, int, int], int] = {}
        """By consumer, partition and offset."""
        self.lows: dict[tuple[int, int], int] = {}
        """By consumer and partition: everything below is settled."""
        self.tails: dict[tuple[int, int], int] = {}
        """By destination and partition: the highest offset given when something was dropped."""
        self.dropped: list[int] = []
        """Sequences of the messages dropped."""
        self.forgotten_offsets: list[tuple[int, int, int]] = []
        """Settled or attempted offsets of messages dropped: consumer, partition, offset."""
        self.forgotten_groups: list[int] = []
        self.voids: dict[tuple[Destination, int], Runs] = {}
        """By destination and partition: offsets given to messages that were then refused."""
        self.bytes = 0
        """An estimate of what the stores take."""

    def __bool__(self) -> bool:
        return self.awaited or bool(self.attempts or self.lows or self.dropped or self.forgotten_groups)

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for this batch."""
        return bool(self.stores or self.settlements or self.joined or self.notes)

    def add(self, store: Store) -> None:
        """Queue a message."""
        self.stores.append(store)
        self.bytes += len(store.record[BODY]) + _ROW

    def inherit(self, older: "Batch") -> None:
        """Take over what nobody waits for, and could not be written."""
        self.attempts = older.attempts | self.attempts
        self.lows = older.lows | self.lows
        self.tails = older.tails | self.tails
        self.dropped = older.dropped + self.dropped
        self.forgotten_offsets = older.forgotten_offsets + self.forgotten_offsets
        self.forgotten_groups = older.forgotten_groups + self.forgotten_groups
        for key, runs in older.voids.items():
            for start, end in runs.bounds():
                self.voids.setdefault(key, Runs()).add_run(start, end)

    def skip(self, refused: list[Store]) -> None:
        """Note that offsets are nobody's, before any later one of their partitions is written."""
        for store in refused:
            if store.offset is not None and not store.promised:
                self.voids.setdefault((store.destination, store.partition.number), Runs()).add(store.offset)


def write_stores(connection: sqlite3.Connection, stores: list[Store]) -> None:
    """Write the messages of a batch, inside a transaction."""
    if not stores:
        return
    _write_destinations(connection, {store.destination.number: store.destination for store in stores}.values())
    in_bulk(connection, "INSERT INTO message VALUES %", map(message_row, stores))
    replaced = [(store.held_as,) for store in stores if store.held_as is not None]
    in_bulk(connection, "DELETE FROM message WHERE sequence IN (VALUES %)", replaced)


def message_row(store: Store) -> tuple[int | bytes | None, ...]:
    """Return the row of one message."""
    body = store.record[BODY]
    numbers = (store.sequence, store.destination.number, store.partition.number, store.offset, store.stored)
    header = encode(store.record)
    return (*numbers, header, body, checksum(*numbers, header, body))


def write_rest(connection: sqlite3.Connection, batch: Batch) -> None:
    """Write everything of a batch that is no message, inside a transaction."""
    _write_destinations(connection, (d for _, d, _, _ in batch.joined))
    in_bulk(
        connection,
        "INSERT OR IGNORE INTO consumer VALUES %",
        with_checksum((g.number, d.number, _name(g.name)) for g, d, _, _ in batch.joined),
    )
    starts = [(g.number, partition, low) for g, _, lows, _ in batch.joined for partition, low in enumerate(lows) if low]
    in_bulk(connection, "INSERT OR REPLACE INTO cursor VALUES %", with_checksum(starts))
    settled = [(s.group.number, d.partition, d.position) for s in batch.settlements for d in s.deliveries]
    in_bulk(connection, "INSERT OR REPLACE INTO settled VALUES %", with_checksum(settled))
    attempts = [(*key, attempts) for key, attempts in batch.attempts.items()]
    in_bulk(connection, "INSERT OR REPLACE INTO attempt VALUES %", with_checksum(attempts))
    _write_lows(connection, batch)
    _write_drops(connection, batch)
    _write_notes(connection, batch)
    _write_voids(connection, batch)


def _write_destinations(connection: sqlite3.Connection, destinations: Iterable[Destination]) -> None:
    in_bulk(
        connection,
        "INSERT OR IGNORE INTO destination VALUES %",
        with_checksum((d.number, _name(d.name), len(d.partitions)) for d in destinations),
    )


def _write_voids(connection: sqlite3.Connection, batch: Batch) -> None:
    _write_destinations(connection, (destination for destination, _ in batch.voids))
    rows = [(d.number, partition, *run) for (d, partition), runs in batch.voids.items() for run in runs.bounds()]
    in_bulk(connection, "INSERT OR REPLACE INTO void VALUES %", with_checksum(rows))


def _name(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


def _write_lows(connection: sqlite3.Connection, batch: Batch) -> None:
    lows = [(*key, low) for key, low in batch.lows.items()]
    in_bulk(connection, "INSERT OR REPLACE INTO cursor VALUES %", with_checksum(lows))
    for table in ("settled", "attempt"):
        for low in lows:
            connection.execute(f"DELETE FROM {table} WHERE consumer=? AND partition=? AND offset<?", low)  # noqa: S608


def _write_drops(connection: sqlite3.Connection, batch: Batch) -> None:
    in_bulk(connection, "DELETE FROM message WHERE sequence IN (VALUES %)", [(s,) for s in batch.dropped])
    tails = [(*key, offset) for key, offset in batch.tails.items()]
    in_bulk(connection, "INSERT OR REPLACE INTO tail VALUES %", with_checksum(tails))
    for table in ("settled", "attempt"):
        statement = f"DELETE FROM {table} WHERE (consumer, partition, offset) IN (VALUES %)"  # noqa: S608
        in_bulk(connection, statement, batch.forgotten_offsets)
    groups = [(number,) for number in batch.forgotten_groups]
    in_bulk(connection, "DELETE FROM consumer WHERE number IN (VALUES %)", groups)
    for table in ("cursor", "settled", "attempt"):
        in_bulk(connection, f"DELETE FROM {table} WHERE consumer IN (VALUES %)", groups)  # noqa: S608


def _write_notes(connection: sqlite3.Connection, batch: Batch) -> None:
    last = {note.name: note.value for note in batch.notes}
    in_bulk(connection, "DELETE FROM note WHERE name IN (VALUES %)", [(_name(name),) for name in last])
    kept = [(_name(name), value.encode("utf-8", "surrogatepass")) for name, value in last.items() if value is not None]
    in_bulk(connection, "INSERT INTO note VALUES %", with_checksum(kept))
