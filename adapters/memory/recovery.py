"""Reads the journal at the start; nothing on disk is changed before all of it was checked."""

import mmap
import re
import sqlite3
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, Self

from adapters.base import TransactionState
from adapters.memory.backend_state import BackendState, format_epoch
from adapters.memory.capacity_and_retention import Capacity
from adapters.memory.destination import Destination
from adapters.memory.group import StoredGroup
from adapters.memory.journal_directory import JournalCorrupt, JournalDirectory
from adapters.memory.journal_schema import VERSION, checksum, complete, connect, create, has_table
from adapters.memory.journal_transactions import read_transaction
from adapters.memory.partition import Partition
from adapters.memory.record import decode, unpack
from adapters.memory.sqlite_wal import first_bad_frame
from adapters.memory.transaction_table import OpenTransaction
from bridge.errors import BackendUnavailable

_SEARCHED: Final = 200
"""Bytes of a row's header to search for in the file: SQLite stores at least 480 bytes of a row in one piece."""
_HEADER: Final = 5
"""Index of the column `header` of the table `message`."""
_PAGE_NUMBER: Final = re.compile(r"page (\d+)", re.IGNORECASE)


def recover(
    directory: JournalDirectory, store: BackendState, capacity: Capacity, now: int
) -> tuple[sqlite3.Connection, int]:
    """Fill an empty store and its capacity; return a connection for writing, and the number of commits so far.

    Raises `JournalCorrupt`, or `BackendUnavailable` if the files cannot be read at all.
    """
    commits = 0
    try:
        if _exists(directory):
            # a read-only connection does not checkpoint the WAL when it closes, so a damaged WAL stays as it is
            with _JournalReader(directory) as reader:
                commits = reader.check()
                reader.load(store, capacity, now)
        connection = connect(directory.database, readonly=False)
        try:
            if commits == 0 and not has_table(connection, "meta"):
                create(connection)
            connection.execute("BEGIN IMMEDIATE")  # fails now if the file cannot be written
            connection.execute("ROLLBACK")
            complete(connection, int(store.epoch, 16))
            directory.confirm(commits)
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, OSError) as error:
        if isinstance(error, sqlite3.DatabaseError) and not _is_temporary(error):
            raise JournalCorrupt(f"{directory.database} cannot be used: {error}.") from error
        raise BackendUnavailable(f"The journal in {directory.path} cannot be opened: {error}.") from error
    return connection, commits


def _exists(directory: JournalDirectory) -> bool:
    if directory.database.exists() and directory.database.stat().st_size:
        return True
    if confirmed := directory.read_confirmed():
        raise _commits_missing(directory, confirmed, directory.database, 0)
    return False


def _commits_missing(directory: JournalDirectory, count: int, file: Path, offset: int) -> JournalCorrupt:
    return JournalCorrupt(
        f"{count} confirmed commits of the journal are missing: {file} is damaged, or cut off, at byte offset {offset}."
        f" Restore {directory.path} from a copy, or accept the loss by deleting {directory.confirmed}."
    )


class _JournalReader:
    """Reads the database of a journal once; the directory is locked."""

    def __init__(self, directory: JournalDirectory) -> None:
        self._directory = directory
        self._connection = connect(directory.database, readonly=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def check(self) -> int:
        """Check structure, version and confirmed commits; return the number of commits. Raises `JournalCorrupt`."""
        try:
            findings = [str(row[0]) for row in self._connection.execute("PRAGMA quick_check(1)")]
            version = self._connection.execute("PRAGMA user_version").fetchone()[0]
            commits = self._commits()
        except sqlite3.DatabaseError as error:
            if _is_temporary(error):
                raise
            findings, version, commits = [str(error)], VERSION, 0
        if findings != ["ok"]:
            finding = "; ".join(findings).replace("\n", " ")
            page = _PAGE_NUMBER.search(finding)  # none: the first page, which describes the others
            raise self._damaged(finding, self._page(int(page[1])) if page else 0)
        confirmed = self._directory.read_confirmed()
        if commits < confirmed:
            wal = self._directory.wal
            raise _commits_missing(self._directory, confirmed - commits, wal, first_bad_frame(wal))
        if version not in {VERSION, 0} or (version == 0 and commits):
            raise JournalCorrupt(f"{self._directory.database} has version {version}; this program reads {VERSION}.")
        return commits

    def load(self, store: BackendState, capacity: Capacity, now: int) -> None:
        """Fill the store. Raises `JournalCorrupt`."""
        if not has_table(self._connection, "meta"):
            return
        try:
            destinations = {
                row[0]: store.restore_destination(_name(row[1]), row[0], row[2]) for row in self._rows("destination")
            }
            self._load_messages(destinations, store, capacity)
            for destination, number, offset in self._rows("tail"):
                _reserve_up_to(destinations[destination].partitions[number], offset)
            self._load_groups(destinations, store, now)
            store.epoch = self._epoch() or store.epoch
            if has_table(self._connection, "void"):
                for destination, number, start, stop in self._rows("void"):
                    destinations[destination].partitions[number].unused.add_range(start, stop)
            if has_table(self._connection, "txn"):
                self._load_transactions(store, capacity)
            if has_table(self._connection, "note"):
                store.metadata = {_name(name): _name(value) for name, value in self._rows("note")}
        except (sqlite3.DatabaseError, LookupError, ValueError, TypeError, AttributeError) as error:
            if isinstance(error, sqlite3.DatabaseError) and _is_temporary(error):
                raise
            raise self._damaged(f"rows contradict each other ({error!r})", 0) from error
        for destination in destinations.values():
            store.recount(destination)

    def _load_messages(self, destinations: dict[int, Destination], store: BackendState, capacity: Capacity) -> None:
        for sequence, number, partition_number, offset, stored, header, body in self._rows("message"):
            destination = destinations[number]
            partition = destination.partitions[partition_number]
            record = decode(header, body)
            capacity.restore(record)
            store.restore_sequence(sequence)
            if offset is None:
                store.add_delayed(destination, record, unpack(record).due, sequence)
            elif offset < partition.end:
                raise ValueError(f"offset {offset} follows {partition.end - 1} in row {sequence}")
            else:
                partition.append(record, offset, sequence, stored)
                partition.reserved = partition.end

    def _load_transactions(self, store: BackendState, capacity: Capacity) -> None:
        transactions = {row[0]: (read_transaction(*row[:-1]), row[-1]) for row in self._rows("txn")}
        for details, ended in sorted(transactions.values(), key=itemgetter(1)):
            if details.state is not TransactionState.OPEN:
                store.transactions.end(details, details.state, ended)
        opened = {name: OpenTransaction(details) for name, (details, ended) in transactions.items() if not ended}
        for sequence, name, header, body in self._rows("prepared"):
            record = decode(header, body)
            capacity.restore(record)
            store.restore_sequence(sequence)
            store.transactions.add(opened[name], sequence, record, unpack(record).size)

    def _load_groups(self, destinations: dict[int, Destination], store: BackendState, now: int) -> None:
        groups: dict[int, StoredGroup] = {}
        for number, destination, name in self._rows("consumer"):
            # idle only from now on: how long it was idle before is not known
            groups[number] = store.restore_group(destinations[destination], _name(name), number, now)
        for number, partition, committed_offset in self._rows("cursor"):
            cursor = groups[number].cursors[partition]
            _reserve_up_to(cursor.partition, committed_offset - 1)
            cursor.committed_offset = max(cursor.committed_offset, committed_offset)
        for number, partition, offset in self._rows("settled"):
            cursor = groups[number].cursors[partition]
            _reserve_up_to(cursor.partition, offset)
            if not cursor.has_settled(offset):
                cursor.settled.add(offset)
        for number, partition, offset, attempts in self._rows("attempt"):
            cursor = groups[number].cursors[partition]
            _reserve_up_to(cursor.partition, offset)
            cursor.count(offset, attempts)
        for group in groups.values():
            for cursor in group.cursors:
                cursor.trim()

    def _commits(self) -> int:
        if not has_table(self._connection, "meta"):
            return 0
        row = self._connection.execute("SELECT name, value, crc FROM meta WHERE name='commits'").fetchone()
        if row is None or checksum(*row[:-1]) != row[-1]:
            raise sqlite3.DatabaseError("the number of commits does not match its checksum")
        return int(row[1])

    def _epoch(self) -> str | None:
        """Return the log's epoch; None if the journal is older than epochs."""
        row = self._connection.execute("SELECT name, value, crc FROM meta WHERE name='epoch'").fetchone()
        if row is not None and checksum(*row[:-1]) != row[-1]:
            raise sqlite3.DatabaseError("the number of the epoch does not match its checksum")
        return None if row is None else format_epoch(row[1])

    def _rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        """Yield each row of a table in the order of its key, without its checksum. Raises `JournalCorrupt`."""
        for row in self._connection.execute(f"SELECT * FROM {table} ORDER BY 1"):  # noqa: S608 - our own names
            if checksum(*row[:-1]) != row[-1]:
                offset = self._find_message(row) if table == "message" else self._root(table)
                raise self._damaged(f"row {row[:3]} of table {table} does not match its checksum", offset)
            yield row[:-1]

    def _find_message(self, row: tuple[Any, ...]) -> int:
        """Return the byte offset of a message's row, found by its header; if not found, that of the table."""
        header = row[_HEADER]
        if isinstance(header, bytes):
            with self._directory.database.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
                at = data.find(header[:_SEARCHED])
            if at >= 0:
                return at
        return self._root("message")

    def _root(self, table: str) -> int:
        """Return the byte offset of a table."""
        row = self._connection.execute("SELECT rootpage FROM sqlite_master WHERE name=?", (table,)).fetchone()
        return self._page(int(row[0]))

    def _page(self, number: int) -> int:
        size: int = self._connection.execute("PRAGMA page_size").fetchone()[0]
        return (number - 1) * size

    def _damaged(self, finding: str, offset: int) -> JournalCorrupt:
        return JournalCorrupt(
            f"{self._directory.database} is damaged near byte offset {offset}: {finding}. "
            f"Restore {self._directory.path} from a copy, or move it away to start empty."
        )


def _reserve_up_to(partition: Partition, offset: int) -> None:
    """Never use an offset up to this one: its message was dropped, or was stored in memory only."""
    partition.end = partition.reserved = max(partition.end, offset + 1)


def _name(name: bytes) -> str:
    return name.decode("utf-8", "surrogatepass")


def _is_temporary(error: sqlite3.DatabaseError) -> bool:
    """Return whether an error comes from the disk or another process and may pass, not from the content."""
    temporary = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL}
    return getattr(error, "sqlite_errorcode", -1) & 0xFF in temporary
