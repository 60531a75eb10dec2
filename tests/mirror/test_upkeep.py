"""`compact` and `prune` on real tables: what readers see, what stays on the disk, what a kill leaves."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import polars as pl
import pyarrow.dataset as pds
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyspark.sql import SparkSession

from bridge.cli.program import main
from bridge.message import Message
from bridge.mirror import table, upkeep
from bridge.mirror.offsets import Record, to_json
from bridge.mirror.query import connect
from bridge.mirror.restore import Selection, in_order, select
from bridge.mirror.schema import Area
from bridge.mirror.table import MESSAGES, NAMES, Table, spark_path
from bridge.mirror.upkeep import Rule, due
from tests.mirror.made import NOON, Bad, Batch, make_mirror, message, some
from tests.mirror.readers import by_delta_rs, places

HOUR = 3_600_000
AFTER = datetime.fromtimestamp(NOON / 1000, UTC) + timedelta(days=40)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Three batches on one day, one on the next."""
    late = {("audit/0", n): message(n, "audit", store_timestamp=NOON - 900 * HOUR + n) for n in range(2, 5)}
    dead: dict[tuple[str, int], Message | Bad] = {
        ("orders.dlq/0", 0): message(0, "orders.dlq"),
        ("orders/0", 9): Bad("broken", b"\xff", "orders"),
    }
    make_mirror(
        tmp_path,
        [
            Batch(some(4)),
            Batch(some(5, first=4)),
            Batch(some(2, "audit") | dead),
            Batch(late, mirrored=NOON + 24 * HOUR),
        ],
    )
    return tmp_path


def run(command: str, out: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["mirror", command, "--out", str(out), *arguments], catch_exceptions=False)


def test_compact_merges_a_day_in_one_commit(out: Path) -> None:
    before = by_delta_rs(out)
    record, held = Table.require(str(out)).record(), Table.require(str(out)).dataset()
    (line,) = run("compact", out, "--json").stdout.splitlines()
    assert json.loads(line).items() >= {"removed": 3, "added": 1}.items()
    assert by_delta_rs(out) == before
    assert held.count_rows() == len(before)  # a reader that began before
    table = Table.require(str(out))
    assert sorted((file.day.date, file.rows) for file in table.files()) == [("2025-11-21", 12), ("2025-11-22", 3)]
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
            newest.append(
                make_mirror(out, [Batch({("new/0", 0): message(0, store_timestamp=NOON)}, mirrored=NOON + 99 * HOUR)])
            )
        return to_json(record)

    monkeypatch.setattr(table, "to_json", late)
    assert run(arguments[0], out, *arguments[1:]).exit_code == 0
    assert Table.require(str(out)).record() == newest[0]
    assert "no errors" in run("verify", out).stdout


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


def test_a_day_that_is_pruned_before_it_is_compacted_is_no_error(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    days = Table.days

    def pruned(self: Table) -> object:
        found = days(self)
        monkeypatch.undo()
        run("prune", out, "--keep", "1d")
        return found

    monkeypatch.setattr(Table, "days", pruned)
    assert run("compact", out).exit_code == 0
    assert places(out) == []


def test_only_old_files_of_the_current_day_begin_a_compaction(tmp_path: Path) -> None:
    now = int(time.time() * 1000)
    for n in range(4):
        make_mirror(tmp_path, [Batch(some(1, first=n), mirrored=now + n)])
    assert run("compact", tmp_path).stdout == "There is nothing to compact.\n"
    assert json.loads(run("compact", tmp_path, "--after", "0", "--json").stdout)["removed"] == 4
    assert len(by_delta_rs(tmp_path)) == 4


def _rule(area: Area) -> Rule:
    return Rule(timedelta(days=30), (area,))


def test_prune_deletes_days_and_what_it_is_told(out: Path, subtests: pytest.Subtests) -> None:
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
            found = {table: sum(p.rows for p in due(str(out), rule, AFTER) if p.day.table == table) for table in NAMES}
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
    files = set((out / MESSAGES).glob("date=*/*.parquet"))
    run("compact", out)
    run("prune", out, "--keep", "999d")
    assert files < set((out / MESSAGES).glob("date=*/*.parquet"))
    assert upkeep.vacuum(str(out), now=True) == 3
    assert len(set((out / MESSAGES).glob("date=*/*.parquet"))) == 2
    assert len(by_delta_rs(out)) == 15


def test_prune_without_a_rule_is_refused(out: Path) -> None:
    assert run("prune", out).exit_code == 2
    assert run("prune", out, "--destination", "audit").exit_code == 2
    assert len(by_delta_rs(out)) == 15


def test_a_key_is_erased_everywhere_at_once(out: Path) -> None:
    keyed = {
        ("orders/0", n): message(n, message_key="customer-7" if n % 2 else "customer-8", body=b"secret %d" % (n % 2))
        for n in range(20, 40)
    }
    bad: dict[tuple[str, int], Message | Bad] = {("bad/0", 0): Bad("broken", b"\xfe", "bad")}
    again = {
        ("again/0", 0): message(0, "again", message_id="x", properties={"oms-restored-from": "orders/0/21"}),
        ("orders.dlq/0", 1): message(1, "orders.dlq", message_id="orders-23"),
    }
    make_mirror(out, [Batch(keyed | bad), Batch(again, mirrored=NOON + 48 * HOUR)])
    run("export", out)
    dry = run("prune", out, "--key", "customer-7", "--dry-run").stdout
    assert "10 rows in 1 days would be deleted." in dry
    assert "parquet/date=2025-11-21/0000000000000.parquet  10 rows" in dry
    assert "2 other messages are copies of these" in dry
    done = run("prune", out, "--key", "customer-7", "--vacuum-now")
    assert done.exit_code == 0, done.output
    assert "The broker, backups and copies of this mirror are not changed." in done.stdout
    assert {row[0] for row in by_delta_rs(out, MESSAGES, ["message_key"])} == {None, "customer-8"}
    files = f"read_parquet('{out}/parquet/**/*.parquet', hive_partitioning = true)"
    keys = duckdb.execute(f"SELECT message_key, count(*) FROM {files} GROUP BY ALL ORDER BY ALL").fetchall()  # noqa: S608
    assert keys == [("customer-8", 10), (None, 17)]
    for path in out.rglob("*.parquet"):
        assert "customer-7" not in pq.ParquetFile(path).read(["message_key"])["message_key"].to_pylist()
    assert "no errors" in run("verify", out).stdout
    assert run("export", out).stdout == "There is nothing to export.\n"
    assert run("prune", out, "--key", "customer-7").stdout.startswith("0 rows in 0 days deleted.")


def test_a_condition_erases_rows_of_both_tables(out: Path) -> None:
    run("prune", out, "--where", "destination = 'orders' AND \"offset\" >= 5")
    assert places(out) == sorted(
        [*(("orders/0", n) for n in range(5)), *(("audit/0", n) for n in range(5)), ("orders.dlq/0", 0)]
    )
    failed = run("prune", out, "--where", "no_such_column = 1")
    assert failed.exit_code == 1
    assert "no_such_column" in failed.stderr
    assert "no errors" in run("verify", out).stdout


def test_a_batch_that_is_committed_while_a_day_is_erased_stays(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late: list[Record] = []

    def committed(record: Record) -> str:
        if not late:
            late.append(make_mirror(out, [Batch(some(1, "new"), mirrored=NOON + 70_000)]))
        return to_json(record)

    monkeypatch.setattr(table, "to_json", committed)
    assert run("prune", out, "--where", "destination = 'audit'").exit_code == 0
    assert {row[0] for row in by_delta_rs(out, MESSAGES, ["destination"])} == {"orders", "orders.dlq", "new"}


@pytest.mark.usefixtures("quick_jvm")
def test_every_reader_filters_by_text_after_each_command(out: Path, spark: SparkSession) -> None:
    commands = {
        ("compact",): 9,
        ("prune", "--keep", "30d", "--destination", "audit"): 9,
        ("prune", "--where", "destination = 'orders' AND \"offset\" = 2"): 8,
        ("compact", "--target-size", "1GB"): 8,
    }
    for command, expected in commands.items():
        assert run(command[0], out, *command[1:]).exit_code == 0
        delta, place = Table.require(str(out)).delta, spark_path(str(out), MESSAGES)
        found = {
            "pyarrow": delta.to_pyarrow_dataset().count_rows(pds.field("destination") == "orders"),
            "pandas": len(delta.to_pandas(filters=[("destination", "=", "orders")])),
            "polars": pl.scan_delta(delta).filter(pl.col("destination") == "orders").collect().height,
            "duckdb": _counted(out),
            "query": json.loads(run("query", out, "--json", _ORDERS).stdout)["n"],
            "spark": spark.read.format("delta").load(place).where("destination = 'orders'").count(),
            "restore": _restorable(out),
        }
        assert set(found.values()) == {expected}, (command, found)


_ORDERS = "SELECT count(*) AS n FROM messages WHERE destination = 'orders'"


def _counted(out: Path) -> int:
    with duckdb.connect() as connection:
        connection.register("messages", Table.require(str(out)).delta.to_pyarrow_dataset())
        (count,) = connection.execute(_ORDERS).fetchone() or (0,)
        return int(count)


def _restorable(out: Path) -> int:
    with connect(str(out)) as connection:
        select(connection, Selection(destinations=("orders",)), {})
        return len(list(in_order(connection)))


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
