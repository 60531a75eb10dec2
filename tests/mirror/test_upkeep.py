"""`compact` and `prune` on real tables: what readers see, what stays on the disk, what a kill leaves."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from bridge.cli.program import main
from bridge.message import Message
from bridge.mirror import upkeep
from bridge.mirror.offsets import Record, to_json
from bridge.mirror.schema import TIME_MAX, Area
from bridge.mirror.table import MESSAGES, NAMES, Table
from bridge.mirror.upkeep import Rule, due
from tests.mirror.made import NOON, Bad, Batch, make_mirror, message, some
from tests.mirror.readers import by_delta_rs, places

HOUR = 3_600_000
AFTER = datetime.fromtimestamp(NOON / 1000, UTC) + timedelta(days=40)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Three batches in one hour, one in the next."""
    late = {("audit/0", n): message(n, "audit", store_timestamp=NOON + HOUR + n) for n in range(2, 5)}
    dead: dict[tuple[str, int], Message | Bad] = {
        ("orders.dlq/0", 0): message(0, "orders.dlq"),
        ("orders/0", 9): Bad("broken", b"\xff", "orders"),
    }
    make_mirror(tmp_path, [Batch(some(4)), Batch(some(5, first=4)), Batch(some(2, "audit") | dead), Batch(late)])
    return tmp_path


def run(command: str, out: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["mirror", command, "--out", str(out), *arguments], catch_exceptions=False)


def test_compact_merges_closed_hours_in_one_commit_each(out: Path) -> None:
    before = by_delta_rs(out)
    record, held = Table.require(str(out)).record(), Table.require(str(out)).dataset()
    (line,) = run("compact", out, "--json").stdout.splitlines()
    assert json.loads(line).items() >= {"rows": 12, "removed": 3, "added": 1}.items()
    assert by_delta_rs(out) == before
    assert held.count_rows() == len(before)  # a reader that began before
    table = Table.require(str(out))
    assert sorted((file.hour.hour, file.rows) for file in table.files()) == [("12", 12), ("13", 3)]
    assert [commit.operation for commit in table.commits(2)] == ["OPTIMIZE", "WRITE"]
    assert next(table.commits(1)).record == table.record() == record
    assert run("compact", out).stdout == "There is nothing to compact.\n"
    assert "no errors" in run("verify", out).stdout


@pytest.mark.parametrize("arguments", [["compact"], ["prune", "--keep", "1d"]])
def test_a_batch_that_is_committed_during_upkeep_stays_the_newest_record(
    out: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    newest: list[Record] = []

    def late(record: Record) -> str:
        if not newest:
            newest.append(make_mirror(out, [Batch({("new/0", 0): message(0, store_timestamp=NOON + 9 * HOUR)})]))
        return to_json(record)

    monkeypatch.setattr(upkeep, "to_json", late)
    assert run(arguments[0], out, *arguments[1:]).exit_code == 0
    assert Table.require(str(out)).record() == newest[0]
    assert "no errors" in run("verify", out).stdout


def test_a_clock_in_the_year_9999_stops_no_upkeep(out: Path) -> None:
    make_mirror(out, [Batch({("far/0", 0): message(0, store_timestamp=TIME_MAX)})])
    for arguments in (["compact"], ["export"], ["prune", "--keep", "99999d"], ["prune", "--keep", "1d"]):
        assert run(arguments[0], out, *arguments[1:]).exit_code == 0
    assert places(out) == [("far/0", 0)]


def test_times_that_no_clock_has_are_refused(out: Path) -> None:
    for arguments in (
        ["compact", "--after", "9" * 15],
        ["export", "--after", "9" * 15],
        ["prune", "--keep", "999999d"],
    ):
        assert run(arguments[0], out, *arguments[1:]).exit_code == 2


def test_a_change_that_another_program_always_outruns_is_one_sentence(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def outrun(*_: object, **__: object) -> None:
        tries.append(1)
        raise CommitFailedError("a concurrent transaction\n deleted data")

    for method in ("delete", "vacuum"):
        monkeypatch.setattr(DeltaTable, method, outrun)
    sentence = "Error: messages: the table could not be changed: a concurrent transaction deleted data\n"
    assert run("prune", out, "--keep", "1d").stderr == sentence
    assert run("prune", out, "--keep", "9999d").stderr == sentence
    assert len(tries) == 10


def test_an_hour_that_is_pruned_before_it_is_compacted_is_no_error(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hours = Table.hours

    def pruned(self: Table) -> object:
        found = hours(self)
        monkeypatch.undo()
        run("prune", out, "--keep", "1d")
        return found

    monkeypatch.setattr(Table, "hours", pruned)
    assert run("compact", out).exit_code == 0
    assert places(out) == []


def test_open_hours_are_left_alone(tmp_path: Path) -> None:
    now = int(time.time() * 1000)
    for n in range(2):
        make_mirror(tmp_path, [Batch({("orders/0", n): message(n, store_timestamp=now)})])
    assert run("compact", tmp_path).stdout == "There is nothing to compact.\n"


def _rule(area: Area) -> Rule:
    return Rule(timedelta(days=30), (area,))


def test_prune_deletes_hours_and_what_it_is_told(out: Path, subtests: pytest.Subtests) -> None:
    month = timedelta(days=30)
    cases: dict[str, tuple[Rule, dict[str, int]]] = {
        "all": (Rule(month), {"messages": 15, "quarantine": 1}),
        "young": (Rule(timedelta(days=50)), {}),
        "dead letters": (_rule("dead-letters"), {"messages": 1}),
        "no dead letters": (_rule("data"), {"messages": 14}),
        "quarantine": (_rule("quarantine"), {"quarantine": 1}),
        "destination": (Rule(month, destinations=("audit", "it's")), {"messages": 5}),
    }  # fmt: skip
    for name, (rule, expected) in cases.items():
        with subtests.test(name):
            found = {table: sum(p.rows for p in due(str(out), rule, AFTER) if p.hour.table == table) for table in NAMES}
            assert {table: rows for table, rows in found.items() if rows} == expected
    assert run("prune", out, "--keep", "30d", "--destination", "audit", "--dry-run").stdout.endswith(
        "would be deleted.\n"
    )
    assert len(by_delta_rs(out)) == 15
    run("prune", out, "--keep", "30d", "--destination", "audit")
    assert {row[0] for row in by_delta_rs(out, MESSAGES, ["destination"])} == {"orders", "orders.dlq"}
    run("prune", out, "--keep", "30d")
    assert places(out) == []
    assert "no errors" in run("verify", out).stdout


def test_files_are_kept_for_the_retention_and_then_removed(out: Path) -> None:
    files = set((out / MESSAGES).glob("date=*/*/*.parquet"))
    run("compact", out)
    run("prune", out, "--keep", "999d")
    assert files < set((out / MESSAGES).glob("date=*/*/*.parquet"))
    assert upkeep.vacuum(str(out), timedelta(0)) == 3
    assert len(set((out / MESSAGES).glob("date=*/*/*.parquet"))) == 2
    assert len(by_delta_rs(out)) == 15


@pytest.mark.extended
def test_upkeep_killed_at_any_point_loses_and_doubles_nothing(out: Path) -> None:
    """Kill each command a little later each time, until one ends without it."""
    before, kills = places(out), 0
    for milliseconds in range(500, 60_000, 500):
        command = [sys.executable, "-m", "bridge.mirror", "compact", "--out", str(out)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as job:
            try:
                job.wait(milliseconds / 1000)
            except subprocess.TimeoutExpired:
                os.kill(job.pid, signal.SIGKILL)
                kills += 1
        assert places(out) == before
        if job.returncode == 0:
            break
    assert kills
    assert sorted(file.rows for file in Table.require(str(out)).files()) == [3, 12]
