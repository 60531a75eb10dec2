"""The journal's tables, and the checksum that each of their rows carries."""

import sqlite3
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Final
from zlib import crc32

VERSION: Final = 1
"""Version of the tables, stored in SQLite's `user_version`."""

TABLES: Final = (
    # In the code, `tail` is the end of a partition, `void` its unused offsets, `note` the metadata, and `low` a
    # committed offset. The names here stay as they are, because existing journals have them.
    "meta (name TEXT PRIMARY KEY, value INTEGER, crc INTEGER)",
    "destination (number INTEGER PRIMARY KEY, name BLOB, partitions INTEGER, crc INTEGER)",
    # sequence is the order of storing, so that rows are appended and read back in the order of their offsets;
    # offset is NULL while the message waits to be due
    (
        "message (sequence INTEGER PRIMARY KEY, destination INTEGER, partition INTEGER, offset INTEGER, stored INTEGER,"
        " header BLOB, body BLOB, crc INTEGER)"
    ),
    # the highest offset when messages were dropped: it must not be used again after they are deleted
    (
        "tail (destination INTEGER, partition INTEGER, offset INTEGER, crc INTEGER,"
        " PRIMARY KEY (destination, partition)) WITHOUT ROWID"
    ),
    "consumer (number INTEGER PRIMARY KEY, destination INTEGER, name BLOB, crc INTEGER)",
    # everything below `low` is settled; settled offsets above it have their own rows
    (
        "cursor (consumer INTEGER, partition INTEGER, low INTEGER, crc INTEGER,"
        " PRIMARY KEY (consumer, partition)) WITHOUT ROWID"
    ),
    (
        "settled (consumer INTEGER, partition INTEGER, offset INTEGER, crc INTEGER,"
        " PRIMARY KEY (consumer, partition, offset)) WITHOUT ROWID"
    ),
    (
        "attempt (consumer INTEGER, partition INTEGER, offset INTEGER, attempts INTEGER, crc INTEGER,"
        " PRIMARY KEY (consumer, partition, offset)) WITHOUT ROWID"
    ),
    # the bridge's metadata; a journal that is older than this table gets it when it is opened
    "note (name BLOB PRIMARY KEY, value BLOB, crc INTEGER)",
    # unused offsets: no message ever had them, so a replay must not report them as dropped. Younger, as `note` is
    (
        "void (destination INTEGER, partition INTEGER, start INTEGER, stop INTEGER, crc INTEGER,"
        " PRIMARY KEY (destination, partition, start)) WITHOUT ROWID"
    ),
    # transactions, open or ended lately, and the messages prepared in open ones; `target` is the URL of the check,
    # `ended` is 0 or when the transaction ended. Younger, too
    ("txn (id BLOB PRIMARY KEY, state TEXT, began INTEGER, timeout INTEGER, target BLOB, ended INTEGER, crc INTEGER)"),
    "prepared (sequence INTEGER PRIMARY KEY, txn BLOB, header BLOB, body BLOB, crc INTEGER)",
)

_PRAGMAS: Final = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",  # fsync with each commit: answered messages survive a power cut
    "PRAGMA secure_delete=OFF",  # some builds overwrite what they delete, which doubles the bytes written
    "PRAGMA cell_size_check=ON",
    "PRAGMA journal_size_limit=67108864",
)
_CHUNK: Final = 64
"""Rows in one statement. Each statement releases the interpreter's lock and waits for it again: up to 5 ms beside a
busy event loop, so a batch uses as few statements as possible."""

Value = int | bytes | str | None


def checksum(*values: Value) -> int:
    """Return the CRC-32 of the columns of one row."""
    crc = 0
    for value in values:
        crc = crc32(value if isinstance(value, bytes) else b"%a;" % (value,), crc)
    return crc


def connect(path: Path, *, readonly: bool) -> sqlite3.Connection:
    """Open the database for use by one thread at a time, without implicit transactions."""
    mode = "ro" if readonly else "rw"
    if not readonly:
        path.touch(mode=0o600)  # SQLite would let all users read it; its other files get the mode of this one
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=512,
    )
    try:
        if not readonly:
            for pragma in _PRAGMAS:
                connection.execute(pragma)
    except BaseException:
        connection.close()
        raise
    return connection


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Return whether a table of that name exists."""
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name=?", (name,)).fetchone() is not None


def create(connection: sqlite3.Connection) -> None:
    """Create the tables, all or none."""
    connection.execute("BEGIN IMMEDIATE")
    for table in TABLES:
        connection.execute(f"CREATE TABLE {table}")
    connection.execute("INSERT INTO meta VALUES ('commits', 0, ?)", (checksum("commits", 0),))
    connection.execute(f"PRAGMA user_version={VERSION}")
    connection.execute("COMMIT")


def complete(connection: sqlite3.Connection, epoch: int) -> None:
    """Add what a journal of an older version lacks: tables, and the number of its epoch."""
    for table in TABLES:
        connection.execute(f"CREATE TABLE IF NOT EXISTS {table}")
    connection.execute("INSERT OR IGNORE INTO meta VALUES ('epoch', ?, ?)", (epoch, checksum("epoch", epoch)))


def in_bulk(connection: sqlite3.Connection, statement: str, rows: Iterable[tuple[Value, ...]]) -> None:
    """Execute `… VALUES %` or `… IN (VALUES %)` for many rows, a chunk of them at a time."""
    pending = list(rows)
    for start in range(0, len(pending), _CHUNK):
        chunk = pending[start : start + _CHUNK]
        connection.execute(_expand(statement, len(chunk[0]), len(chunk)), [*chain.from_iterable(chunk)])


def with_checksum(rows: Iterable[tuple[Value, ...]]) -> list[tuple[Any, ...]]:
    """Return the rows with their checksum as the last column."""
    return [(*row, checksum(*row)) for row in rows]


@lru_cache(maxsize=2048)
def _expand(statement: str, width: int, count: int) -> str:
    row = f"({','.join('?' * width)})"
    return statement.replace("%", ",".join([row] * count))
