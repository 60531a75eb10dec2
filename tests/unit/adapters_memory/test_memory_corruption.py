"""A journal that was damaged behind SQLite's back is found out, named, and left as it is."""

import asyncio
import re
import shutil
from pathlib import Path
from random import Random

import pytest
import pytest_asyncio

from adapters.base import Delivery, Outcome
from adapters.memory import JournalCorrupt, connect
from adapters.memory.sqlite_wal import first_bad_frame
from bridge.message import Message
from tests.unit.adapters_memory.alone import alone

FRAME = 24 + 4096
SEED = 7
Content = list[list[Delivery]]


def url(path: Path) -> str:
    return f"memory://?partitions=2&journal={path}"


async def read(path: Path) -> Content:
    """All that a group has left, and all there is."""
    adapter = connect(url(path))
    await adapter.start()
    try:
        found = []
        for name in ("g", "audit"):
            got = (await adapter.subscribe("orders", name, alone)).fetch(10_000, 1 << 30)
            found.append(sorted(got.result(), key=lambda d: (d.partition, d.position)) if got.done() else [])
        return found
    finally:
        await adapter.close()


async def fill(path: Path, snapshot: Path, *, checked_in: bool) -> None:
    """Write a journal commit by commit, and copy it as `kill -9` would leave it, or as `close` does."""
    adapter = connect(url(path))
    await adapter.start()
    group = await adapter.subscribe("orders", "g", alone)
    for n in range(40):
        await adapter.publish(Message("orders", b"body %d " % n * 40, partition=n % 2, message_id=f"id-{n}"))
        if n % 3 == 0:
            got = await group.fetch(2, 1 << 30)
            await group.settle([d._replace(attempts=1) for d in got], Outcome.LEASED)
            await group.settle(got[:1], Outcome.SETTLED)
    await adapter.publish(Message("orders", b"held", partition=0, delay_time=10**14))
    if not checked_in:
        shutil.copytree(path, snapshot)
    await adapter.close()
    if checked_in:
        shutil.copytree(path, snapshot)


@pytest_asyncio.fixture
async def killed(tmp_path: Path) -> Path:
    """A journal whose last process was killed: nearly everything is in the WAL."""
    await fill(tmp_path / "running", tmp_path / "killed", checked_in=False)
    return tmp_path / "killed"


@pytest_asyncio.fixture
async def closed(tmp_path: Path) -> Path:
    """A journal that was closed: everything is in the database."""
    await fill(tmp_path / "ended", tmp_path / "closed", checked_in=True)
    return tmp_path / "closed"


def content(path: Path) -> dict[str, bytes]:
    """Every file that holds something; the index of the WAL is SQLite's to rebuild, and it creates an empty WAL."""
    files = {file.name: file.read_bytes() for file in path.iterdir() if file.suffix != ".db-shm"}
    return {name: data for name, data in files.items() if data}


async def refused(path: Path) -> str:
    """Start, expecting a refusal; return its sentence."""
    before = content(path)
    with pytest.raises(JournalCorrupt) as caught:
        await read(path)
    assert content(path) == before, "the evidence is left as it was found"
    return str(caught.value)


async def test_the_fixtures_are_what_they_say(killed: Path, closed: Path) -> None:
    assert (killed / "journal.db-wal").stat().st_size > 100 * FRAME
    assert first_bad_frame(killed / "journal.db-wal") == (killed / "journal.db-wal").stat().st_size
    assert not (closed / "journal.db-wal").exists()
    assert await read(killed) == await read(closed)


async def test_garbage_after_the_last_commit_is_cut_off_silently(killed: Path, tmp_path: Path) -> None:
    expected = await read(shutil.copytree(killed, tmp_path / "sound"))
    with (killed / "journal.db-wal").open("ab") as wal:
        wal.write(Random(1).randbytes(3 * FRAME + 100))  # noqa: S311 - no secret
    assert await read(killed) == expected


async def test_a_torn_commit_that_was_not_confirmed_is_cut_off_silently(killed: Path, tmp_path: Path) -> None:
    expected = await read(shutil.copytree(killed, tmp_path / "sound"))
    more = shutil.copytree(killed, tmp_path / "more")
    adapter = connect(url(more))
    await adapter.start()
    start = (more / "journal.db-wal").stat().st_size
    await adapter.publish(Message("orders", b"x" * 20_000, partition=0))
    torn = shutil.copytree(more, tmp_path / "torn")
    await adapter.close()
    wal = torn / "journal.db-wal"
    assert first_bad_frame(wal) - start > 3 * FRAME
    shutil.copy(killed / "confirmed", torn / "confirmed")
    for cut in (first_bad_frame(wal) - 1, first_bad_frame(wal) - FRAME - 7, start + FRAME + 30, start + 10):
        with wal.open("r+b") as file:
            file.truncate(cut)
        assert await read(shutil.copytree(torn, tmp_path / f"torn{cut}")) == expected


async def test_a_torn_commit_that_was_confirmed_is_reported(killed: Path) -> None:
    wal = killed / "journal.db-wal"
    cut = wal.stat().st_size - 100
    with wal.open("r+b") as file:
        file.truncate(cut)
    sentence = await refused(killed)
    assert sentence.startswith("1 confirmed commits of the journal are missing")
    assert f"{wal} is damaged, or cut off, at byte offset {cut + 100 - FRAME}." in sentence
    assert f"accept the loss by deleting {killed / 'confirmed'}" in sentence
    (killed / "confirmed").unlink()
    left, everything = await read(killed)
    assert len(everything) == 40, "the commit that is lost held the delayed message"
    assert left


async def test_a_missing_wal_is_reported(killed: Path) -> None:
    (killed / "journal.db-wal").unlink()
    sentence = await refused(killed)
    assert f"{killed / 'journal.db-wal'} is damaged, or cut off, at byte offset 0" in sentence


async def test_a_missing_or_empty_database_is_reported(closed: Path) -> None:
    database = closed / "journal.db"
    kept = database.read_bytes()
    database.unlink()
    assert f"{database} is damaged, or cut off, at byte offset 0" in await refused(closed)
    database.touch()
    assert f"{database} is damaged, or cut off, at byte offset 0" in await refused(closed)
    database.write_bytes(kept)
    assert await read(closed)


async def test_a_file_that_is_no_database(closed: Path) -> None:
    (closed / "journal.db").write_bytes(b"not a database" * 1000)
    assert f"{closed / 'journal.db'} is damaged near byte offset 0" in await refused(closed)


async def test_every_flip_in_the_wal_is_found_or_did_no_harm(killed: Path, tmp_path: Path) -> None:
    expected = await read(shutil.copytree(killed, tmp_path / "sound"))
    size = (killed / "journal.db-wal").stat().st_size
    draw = Random(SEED)  # noqa: S311 - no secret
    for turn in range(60):
        at = draw.randrange(size)
        path = shutil.copytree(killed, tmp_path / f"wal{turn}")
        flip(path / "journal.db-wal", at, draw)
        sentence = await refused(path)
        frame = 0 if at < 32 else 32 + (at - 32) // FRAME * FRAME
        assert f"journal.db-wal is damaged, or cut off, at byte offset {frame}." in sentence
    assert expected[1]


async def test_every_flip_in_the_database_is_found_or_did_no_harm(closed: Path, tmp_path: Path) -> None:
    expected = await read(shutil.copytree(closed, tmp_path / "sound"))
    size = (closed / "journal.db").stat().st_size
    draw = Random(SEED)  # noqa: S311 - no secret
    found = 0
    for turn in range(200):
        at = draw.randrange(size) if turn >= 100 else turn  # the first 100 bytes are the file's header
        path = shutil.copytree(closed, tmp_path / f"db{turn}")
        flip(path / "journal.db", at, draw)
        outcome = await read_or_refusal(path)
        if isinstance(outcome, str):
            found += 1
            assert str(path / "journal.db") in outcome
            assert re.search(r"near byte offset \d+|has version", outcome), outcome
        else:
            assert outcome == expected, f"flip at {at}"
        shutil.rmtree(path)
    assert found > 40


async def read_or_refusal(path: Path) -> Content | str:
    try:
        return await read(path)
    except JournalCorrupt as error:
        return str(error)


def flip(file: Path, at: int, draw: Random) -> None:
    damaged = bytearray(file.read_bytes())
    damaged[at] ^= 1 << draw.randrange(8)
    file.write_bytes(damaged)


@pytest.mark.parametrize("what", [b"body 17 body 17", b'"message_id":"id-17"'])
async def test_a_flip_in_a_message_is_named_with_its_place(closed: Path, what: bytes) -> None:
    database = closed / "journal.db"
    at = database.read_bytes().index(what)
    flip(database, at + len(what) - 2, Random(1))  # noqa: S311 - no secret
    sentence = await refused(closed)
    assert "table message does not match its checksum" in sentence
    named = re.search(r"near byte offset (\d+)", sentence)
    assert named is not None
    assert abs(int(named[1]) - at) < 1000


async def test_a_later_version_is_refused(closed: Path) -> None:
    database = bytearray((closed / "journal.db").read_bytes())
    database[60:64] = (2).to_bytes(4, "big")
    (closed / "journal.db").write_bytes(database)
    assert "has version 2; this program reads 1" in await refused(closed)


async def test_a_refused_journal_is_unlocked_and_can_be_restored(killed: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(killed, tmp_path / "copy")
    wal = killed / "journal.db-wal"
    flip(wal, 50_000, Random(1))  # noqa: S311 - no secret
    adapter = connect(url(killed))
    for _ in range(2):
        with pytest.raises(JournalCorrupt):
            await adapter.start()
    shutil.copy(copy / "journal.db-wal", wal)
    await asyncio.wait_for(adapter.start(), 10)
    await adapter.close()
