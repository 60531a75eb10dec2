"""Journals that earlier versions wrote: today's bridge finds in them exactly what their own version found."""

import base64
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from adapters.memory.journal_schema import VERSION
from tests.ledger import golden
from tests.ledger.golden.observe import backend, name_of, observe

GOLDEN = Path(golden.__file__).parent
JOURNALS = sorted(GOLDEN.glob("*/*.tar.xz"))


def unpacked(archive: Path, into: Path) -> Path:
    with tarfile.open(archive) as files:
        files.extractall(into, filter="data")
    return into


@pytest.mark.parametrize(
    "archive",
    [
        pytest.param(
            archive,
            id=f"{archive.parent.name}-{archive.name.removesuffix('.tar.xz')}",
            marks=[pytest.mark.extended] if archive.name.startswith("stopped") else [],
        )
        for archive in JOURNALS
    ],
)
def test_everything_in_it_is_found(archive: Path, tmp_path: Path) -> None:
    told: dict[str, Any] = json.loads(archive.with_name(archive.name.replace(".tar.xz", ".json")).read_text("utf-8"))
    journal = unpacked(archive, tmp_path / "journal")
    assert observe(tmp_path / "bridge", journal, told["made"]) == told["found"]


def test_this_version_has_its_golden_journals() -> None:
    """A change of the tables makes new ones: see `tests/ledger/golden`."""
    archives = sorted((GOLDEN / str(VERSION)).glob("*.tar.xz"))
    assert [archive.name for archive in archives] == ["killed.tar.xz", "stopped.tar.xz"]


def test_its_tables_are_all_in_use(tmp_path: Path) -> None:
    journal = unpacked(GOLDEN / str(VERSION) / "stopped.tar.xz", tmp_path / "journal")
    with contextlib.closing(sqlite3.connect(journal / "journal.db")) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        rows = {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}  # noqa: S608
    # only a commit that fails beside one that does not leaves a void
    assert {table for table, count in rows.items() if not count} <= {"void"}, rows


def test_what_was_found_in_the_first_ones_is_what_was_stored() -> None:
    """A golden file is worth no more than what its own version read correctly: here it is by hand."""
    everything = ["UTF-8''%E6%B3%A8%E6%96%87-7", "free-2", "gzip", "key-1", "key-2", "key-3", "unsynced"]
    kept = [f"full-{number}" for number in range(27, 40)]
    groups = ("billing", "shipping", "newcomer")
    for name in ("stopped", "killed"):
        found = json.loads((GOLDEN / "1" / f"{name}.json").read_text("utf-8"))["found"]
        assert {when: ids(found[when]) for when in ("at first", "an hour later", "a year later")} == {
            "at first": {
                "orders/billing": [everything[0], *everything[2:3], *everything[4:]],
                "orders/shipping": everything,
                "orders/newcomer": everything,
                "full/shipping": kept,
                "full/newcomer": kept,
            },
            "an hour later": {f"later/{group}": ["soon"] for group in groups},
            "a year later": {f"later/{group}": ["late"] for group in groups},
        }
        billing = {name_of(message): message for message in found["at first"]["orders/billing"]}
        assert billing["key-2"]["x-oms-h-deliverycount"] == "3"
        assert [entry["credit"] for entry in found["callbacks"]] == [3]
        first = billing[everything[0]]
        assert base64.b64decode(first["body"]) == bytes(range(256))
        assert first["x-oms-h-messagekey*"] == "UTF-8''Z%C3%BCrich%20%F0%9F%9A%80"
        assert first["x-oms-p-%4frder%49d"] == "7"


def ids(found: dict[str, list[dict[str, str]]]) -> dict[str, list[str]]:
    """Return the messages of each group that was given any."""
    return {group: [name_of(message) for message in messages] for group, messages in found.items() if messages}


def test_a_newer_one_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    journal = unpacked(GOLDEN / str(VERSION) / "stopped.tar.xz", tmp_path / "journal")
    with contextlib.closing(sqlite3.connect(journal / "journal.db")) as connection:
        connection.execute(f"PRAGMA user_version={VERSION + 1}")
    before = {file.name: file.read_bytes() for file in journal.iterdir()}
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OMS_")}
    ended = subprocess.run(
        [Path(sys.executable).with_name("oms-bridge"), "serve", "--backend", backend(journal)],
        env=environ | {"OMS_LISTEN": "127.0.0.1:0", "OMS_MANAGEMENT": "127.0.0.1:0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 1
    sentence = f"{journal}/journal.db has version {VERSION + 1}; this program reads {VERSION}."
    assert sentence in ended.stderr.splitlines()[-1]
    assert {name: (journal / name).read_bytes() for name in before} == before
