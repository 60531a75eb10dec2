"""Reading the journal back: nothing on disk is changed before all of it has been found right."""

import mmap
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

from adapters.memory.files import Directory, JournalCorrupt
from adapters.memory.group import Group
from adapters.memory.log import Destination, Log, epoch
from adapters.memory.partition import Partition, unpack
from adapters.memory.record import decode
from adapters.memory.room import Room
from adapters.memory.schema import VERSION, checksum, complete, connect, create, has_table
from adapters.memory.wal import first_bad_frame
from bridge.errors import BackendUnavailable

_NEEDLE: Final = 200
"""Bytes of a row's header to look for in the file: SQLite keeps at least 480 bytes of a row in one piece."""
_HEADER: Final = 5
"""The column of `message` that holds it."""
_PAGE_NUMBER: Final = re.compile(r"page (\d+)", re.IGNORECASE)


def recover(directory: Directory, log: Log, room: Room, now: int) -> tuple[sqlite3.Connection, int]:
    """Fill an empty log and room, and return a connection to write with and the number of commits so far.

    Raises `JournalCorrupt`, or `BackendUnavailable` when the files cannot be read at all.
    """
    commits = 0
    try:
        if _exists(directory):
            # a reader cannot check the WAL in when it closes, so a damaged one stays as it was found
            with _Reader(directory) as reader:
                commits = reader.check()
                reader.load(log, room, now)
        connection = connect(directory.database, readonly=False)
        try:
            if commits == 0 and not has_table(connection, "meta"):
                create(connection)
            connection.execute("BEGIN IMMEDIATE")  # a file that cannot be written is found out now
            connection.execute("ROLLBACK")
            complete(connection, int(log.epoch, 16))
            directory.confirm(commits)
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, OSError) as error:
        if isinstance(error, sqlite3.DatabaseError) and not _is_passing(error):
            raise JournalCorrupt(f"{directory.database} cannot be used: {error}.") from error
        raise BackendUnavailable(f"The journal in {directory.path} cannot be opened: {error}.") from error
    return connection, commits


def _exists(directory: Directory) -> bool:
    if directory.database.exists() and directory.database.stat().st_size:
        return True
    if confirmed := directory.read_confirmed():
        raise _lost(directory, confirmed, directory.database, 0)
    return False


def _lost(directory: Directory, count: int, file: Path, offset: int) -> JournalCorrupt:
    return JournalCorrupt(
        f"{count} confirmed commits of the journal are missing: {file} is damaged, or cut off, at byte offset {offset}."
        f" Restore {directory.path} from a copy, or accept the loss by deleting {directory.confirmed}."
    )


class _Reader:
    """One pass over the database of a journal that nobody else uses."""

    def __init__(self, directory: Directory) -> None:
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
            if _is_passing(error):
                raise
            findings, version, commits = [str(error)], VERSION, 0
        if findings != ["ok"]:
            finding = "; ".join(findings).replace("\n", " ")
            page = _PAGE_NUMBER.search(finding)  # none: the first page, which describes the others
            raise self._damaged(finding, self._page(int(page[1])) if page else 0)
        confirmed = self._directory.read_confirmed()
        if commits < confirmed:
            wal = self._directory.wal
            raise _lost(self._directory, confirmed - commits, wal, first_bad_frame(wal))
        if version not in {VERSION, 0} or (version == 0 and commits):
            raise JournalCorrupt(f"{self._directory.database} has version {version}; this program reads {VERSION}.")
        return commits

    def load(self, log: Log, room: Room, now: int) -> None:
        """Put back everything kept. Raises `JournalCorrupt`."""
        if not has_table(self._connection, "meta"):
            return
        try:
            destinations = {
                row[0]: log.restore_destination(_name(row[1]), row[0], row[2]) for row in self._rows("destination")
            }
            self._load_messages(destinations, log, room)
            for destination, number, offset in self._rows("tail"):
                _never_again(destinations[destination].partitions[number], offset)
            self._load_groups(destinations, log, now)
            log.epoch = self._epoch() or log.epoch
            if has_table(self._connection, "void"):
                for destination, number, start, stop in self._rows("void"):
                    destinations[destination].partitions[number].voids.add_run(start, stop)
            if has_table(self._connection, "note"):
                log.notes = {_name(name): _name(value) for name, value in self._rows("note")}
        except (sqlite3.DatabaseError, LookupError, ValueError, TypeError, AttributeError) as error:
            if isinstance(error, sqlite3.DatabaseError) and _is_passing(error):
                raise
            raise self._damaged(f"its rows do not fit each other ({error!r})", 0) from error
        for destination in destinations.values():
            log.recount(destination)

    def _load_messages(self, destinations: dict[int, Destination], log: Log, room: Room) -> None:
        for sequence, number, partition_number, offset, stored, header, body in self._rows("message"):
            destination = destinations[number]
            partition = destination.partitions[partition_number]
            record = decode(header, body)
            room.restore(record)
            log.restore_sequence(sequence)
            if offset is None:
                log.hold(destination, record, unpack(record).due, sequence)
            elif offset < partition.end:
                raise ValueError(f"offset {offset} follows {partition.end - 1} in row {sequence}")
            else:
                partition.append(record, offset, sequence, stored)
                partition.reserved = partition.end

    def _load_groups(self, destinations: dict[int, Destination], log: Log, now: int) -> None:
        groups: dict[int, Group] = {}
        for number, destination, name in self._rows("consumer"):
            # idle only from now on: for how long it was before, nobody could look
            groups[number] = log.restore_group(destinations[destination], _name(name), number, now)
        for number, partition, low in self._rows("cursor"):
            cursor = groups[number].cursors[partition]
            _never_again(cursor.partition, low - 1)
            cursor.low = max(cursor.low, low)
        for number, partition, offset in self._rows("settled"):
            cursor = groups[number].cursors[partition]
            _never_again(cursor.partition, offset)
            if not cursor.has_settled(offset):
                cursor.settled.add(offset)
        for number, partition, offset, attempts in self._rows("attempt"):
            cursor = groups[number].cursors[partition]
            _never_again(cursor.partition, offset)
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
        """Return the log's epoch; None for a journal that is older than epochs."""
        row = self._connection.execute("SELECT name, value, crc FROM meta WHERE name='epoch'").fetchone()
        if row is not None and checksum(*row[:-1]) != row[-1]:
            raise sqlite3.DatabaseError("the number of the epoch does not match its checksum")
        return None if row is None else epoch(row[1])

    def _rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        """Each row of a table in the order of its key, without its checksum. Raises `JournalCorrupt`."""
        for row in self._connection.execute(f"SELECT * FROM {table} ORDER BY 1"):  # noqa: S608 - our own names
            if checksum(*row[:-1]) != row[-1]:
                offset = self._find_message(row) if table == "message" else self._root(table)
                raise self._damaged(f"row {row[:3]} of table {table} does not match its checksum", offset)
            yield row[:-1]

    def _find_message(self, row: tuple[Any, ...]) -> int:
        """Where in the database file a message's row lies, by its header; where the table begins, if not there."""
        header = row[_HEADER]
        if isinstance(header, bytes):
            with self._directory.database.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
                at = data.find(header[:_NEEDLE])
            if at >= 0:
                return at
        return self._root("message")

    def _root(self, table: str) -> int:
        """Where a table begins."""
        row = self._connection.execute("SELECT rootpage FROM sqlite_master WHERE name=?", (table,)).fetchone()
        return self._page(int(row[0]))

    def _page(self, number: int) -> int:
        size: int = self._connection.execute("PRAGMA page_size").fetchone()[0]
        return (number - 1) * size

    def _damaged(self, what: str, offset: int) -> JournalCorrupt:
        return JournalCorrupt(
            f"{self._directory.database} is damaged near byte offset {offset}: {what}. "
            f"Restore {self._directory.path} from a copy, or move it away to start empty."
        )


def _never_again(partition: Partition, offset: int) -> None:
    """Give out no offset up to this one: it was a message's, which is gone or was kept in memory only."""
    partition.end = partition.reserved = max(partition.end, offset + 1)


def _name(name: bytes) -> str:
    return name.decode("utf-8", "surrogatepass")


def _is_passing(error: sqlite3.DatabaseError) -> bool:
    """Whether the error is the disk's or a neighbour's, which may pass, and not the content's."""
    passing = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL}
    return getattr(error, "sqlite_errorcode", -1) & 0xFF in passing
