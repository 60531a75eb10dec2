"""The reader of SQLite's write-ahead log finds the same end of a log as SQLite."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.memory.sqlite_wal import first_bad_frame

PAGE = 4096
FRAME = 24 + PAGE
HEADER = 32


@pytest.fixture
def wal(tmp_path: Path) -> Iterator[Path]:
    """A log of several commits that SQLite still has open, so that it is not checked in."""
    connection = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    connection.execute(f"PRAGMA page_size={PAGE}")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE t (a)")
    for n in range(10):
        connection.execute("INSERT INTO t VALUES (?)", (str(n) * 3000,))
    yield tmp_path / "x.db-wal"
    connection.close()


def test_a_sound_log_is_valid_to_its_end(wal: Path) -> None:
    assert wal.stat().st_size > HEADER + 10 * FRAME
    assert first_bad_frame(wal) == wal.stat().st_size


def test_a_flip_is_found_in_its_frame(wal: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    content = wal.read_bytes()
    for frame in (0, 3, 9):
        for within in (0, 4, 8, 13, 17, 21, 24, 2000, FRAME - 1):
            start = HEADER + frame * FRAME
            damaged = bytearray(content)
            damaged[start + within] ^= 4
            copy.write_bytes(damaged)
            assert first_bad_frame(copy) == start


def test_a_flip_in_the_header(wal: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for at in range(HEADER):
        damaged = bytearray(wal.read_bytes())
        damaged[at] ^= 4
        copy.write_bytes(damaged)
        assert first_bad_frame(copy) == 0


def test_torn_empty_and_missing(wal: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    assert first_bad_frame(copy) == 0
    for size, valid in (
        (0, 0),
        (HEADER - 1, 0),
        (HEADER, HEADER),
        (HEADER + FRAME - 1, HEADER),
        (HEADER + 2 * FRAME + 9, HEADER + 2 * FRAME),
    ):
        copy.write_bytes(wal.read_bytes()[:size])
        assert first_bad_frame(copy) == valid
