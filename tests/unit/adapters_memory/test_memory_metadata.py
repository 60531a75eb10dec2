"""The bridge's own notes in the journal: what was kept is there after a restart, and an older journal takes them in."""

import asyncio
import contextlib
import shutil
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from adapters.base import MetadataStore
from adapters.memory import JournalCorrupt, connect
from adapters.memory.durable_adapter import DurableAdapter
from bridge.errors import BackendFull, BackendUnavailable


class Place:
    """A journal's directory, and the adapter that has it open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.adapter = self._connect()

    async def restart(self) -> DurableAdapter:
        await self.adapter.close()
        self.adapter = self._connect()
        await self.adapter.start()
        return self.adapter

    async def crash(self) -> DurableAdapter:
        """Open a copy of the files as they are at this moment, which is what `kill -9` leaves."""
        copy = self.path.with_name(self.path.name + "+")
        shutil.copytree(self.path, copy)
        await self.adapter.close()
        self.path = copy
        return await self.restart()

    def execute(self, statement: str) -> None:
        with contextlib.closing(sqlite3.connect(self.path / "journal.db")) as connection, connection:
            connection.execute(statement)

    def _connect(self) -> DurableAdapter:
        adapter = connect(f"memory://?journal={self.path}")
        assert isinstance(adapter, DurableAdapter)
        return adapter


@pytest_asyncio.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path / "journal")
    await place.adapter.start()
    yield place
    await place.adapter.close()


async def test_an_entry_of_any_text_survives(place: Place) -> None:
    notes = {"k": "", "ü\0\ud800": "\udfff日本"}
    for key, value in notes.items():
        await place.adapter.put(key, value)
    assert (await place.restart()).all() == notes


@pytest.mark.parametrize("how", ["restart", "crash"])
async def test_entries_survive(place: Place, how: str) -> None:
    adapter = place.adapter
    for key, value in {"a": "1", "b/c": "z\u00fcrich \ud800 '\"", "c": "", "d": "4"}.items():
        await adapter.put(key, value)
    await adapter.put("a", "2")
    await adapter.put("d", None)
    expected = {"a": "2", "b/c": "z\u00fcrich \ud800 '\"", "c": ""}
    assert adapter.all() == expected
    adapter = await (place.restart if how == "restart" else place.crash)()
    assert adapter.all() == expected
    await adapter.put("a", None)
    await adapter.put("never", None)
    del expected["a"]
    assert (await place.restart()).all() == expected


async def test_the_last_of_many_at_once_counts(place: Place) -> None:
    values = [None, *(f"{n}" for n in range(200)), None, "last"]
    await asyncio.gather(*(place.adapter.put("k", value) for value in values), place.adapter.put("gone", "x"))
    await asyncio.gather(*(place.adapter.put("gone", value) for value in ("y", None)))
    assert place.adapter.all() == {"k": "last"}
    assert (await place.restart()).all() == {"k": "last"}


async def test_a_journal_that_is_older_than_metadata_stores_it(place: Place) -> None:
    await place.adapter.close()
    place.execute("DROP TABLE note")
    adapter = await place.restart()
    assert adapter.all() == {}
    await adapter.put("a", "1")
    assert (await place.restart()).all() == {"a": "1"}


async def test_a_damaged_entry_is_found(place: Place) -> None:
    await place.adapter.put("a", "1")
    await place.adapter.close()
    place.execute("UPDATE note SET value = x'32'")
    with pytest.raises(JournalCorrupt, match="table note"):
        await place.restart()


async def test_what_could_not_be_kept_is_not_there(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    await place.adapter.put("a", "1")

    def full(*_: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    with monkeypatch.context() as broken:
        broken.setattr("adapters.memory.journal_batch._write_metadata", full)
        with pytest.raises(BackendFull):
            await place.adapter.put("a", "2")
    assert place.adapter.all() == {"a": "1"}
    await place.adapter.put("b", "2")
    assert (await place.restart()).all() == {"a": "1", "b": "2"}


async def test_before_the_start_nothing_is_known(tmp_path: Path) -> None:
    adapter = connect(f"memory://?journal={tmp_path}/j")
    assert isinstance(adapter, MetadataStore)
    with pytest.raises(BackendUnavailable):
        adapter.all()
    with pytest.raises(BackendUnavailable):
        await adapter.put("a", "1")


def test_without_a_journal_nothing_is_promised() -> None:
    assert not isinstance(connect("memory://"), MetadataStore)
