"""The sink with Spark, Delta, the real disk and a source of numbers."""

import shutil
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

from bridge.errors import CannotStart
from bridge.mirror.offsets import Gap, Record
from bridge.mirror.sink import Sink
from bridge.mirror.table import MESSAGES, QUARANTINE, Table
from bridge.mirror.upkeep import compact
from tests.mirror.another_job import commit, committing_first
from tests.mirror.made import Batch, make_mirror, some
from tests.mirror.numbers_job import Dropping, Numbers, mirror
from tests.mirror.readers import by_delta_rs, by_duckdb, by_pandas, by_spark, places

if TYPE_CHECKING:
    from bridge.mirror.sources import Source
    from bridge.mirror.spark_checkpoint import Checkpoint


def all_once(total: int) -> list[tuple[str, int]]:
    return [(log, offset) for log in ("even", "odd") for offset in range(total // 2)]


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mirror of two batches, in a folder whose name must be escaped; only for copies."""
    out = tmp_path_factory.mktemp("whole") / "with space:and é"
    mirror(spark, str(out), Numbers(200, 100))
    return out


@pytest.fixture
def out(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / whole.name))


def forget(out: Path, *names: str) -> None:
    """Take files out of the checkpoint, each with the sum that Hadoop keeps beside it."""
    for path in (out / "checkpoint" / name for name in names):
        path.unlink()
        (path.parent / f".{path.name}.crc").unlink()


def test_all_readers_see_the_same_rows(spark: SparkSession, out: Path) -> None:
    assert places(out) == all_once(200)
    for table in (MESSAGES, QUARANTINE):
        seen = by_delta_rs(out, table)
        assert seen
        assert seen == by_duckdb(out, table) == by_pandas(out, table) == by_spark(spark, out, table)
    assert {row[0] for row in by_delta_rs(out, QUARANTINE, ["error"])} == {"it is a multiple of 97"}


def test_a_file_is_sorted_and_the_commits_tell_the_offsets(out: Path) -> None:
    table = Table.require(str(out))
    for fragment in table.dataset().get_fragments():
        rows = fragment.to_table(columns=["destination", "log", "offset"]).to_pylist()
        assert len(rows) > 1
        assert rows == sorted(rows, key=lambda row: tuple(row.values()))
    records = [commit.record for commit in table.commits() if commit.record is not None]
    assert [(record.batch, record.sequence, record.next) for record in records] == [
        (1, 2, {"even": 100, "odd": 100}),
        (0, 1, {"even": 50, "odd": 50}),
    ]


def test_the_code_that_spark_generates_serves_all_batches(spark: SparkSession, tmp_path: Path) -> None:
    """With the batch's time in it, each batch of 50,000 took a sixth more time."""

    def compiled() -> int:
        metrics: Any = spark.sparkContext._jvm.org.apache.spark.metrics.source.CodegenMetrics  # type: ignore[union-attr]
        return int(metrics.METRIC_COMPILATION_TIME().getCount())

    mirror(spark, str(tmp_path), Numbers(200, 100))
    before = compiled()
    mirror(spark, str(tmp_path), Numbers(400, 100))
    assert before > 0
    assert compiled() == before
    assert places(tmp_path) == all_once(400)


def test_a_batch_is_one_job_for_each_table_that_it_has_rows_for(spark: SparkSession, tmp_path: Path) -> None:
    """The first batch too: where Delta reconstructed the state of a new table, it took 1.3 s more."""

    def jobs() -> int:
        return int(spark.sparkContext._jsc.sc().dagScheduler().nextJobId())

    before = jobs()
    mirror(spark, str(tmp_path), Numbers(600, 200))
    assert jobs() - before == 6
    assert places(tmp_path) == all_once(600)


def test_a_batch_that_spark_repeats_is_not_written_again(spark: SparkSession, out: Path) -> None:
    forget(out, "commits/1")
    before = sorted(out.glob("*/date=*/**/*.parquet"))
    mirror(spark, str(out), Numbers(200, 100))
    assert sorted(out.glob("*/date=*/**/*.parquet")) == before
    assert (out / "checkpoint/commits/1").exists()


def test_a_batch_killed_between_its_two_commits_is_completed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(Exception):
        pass

    append = Sink._append

    def dying(self: Sink, rows: object, name: str, *record: object) -> None:
        if name == QUARANTINE:
            raise Died
        append(self, rows, name, *record)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Sink, "_append", dying)
        with pytest.raises(Exception, match="Died"):
            mirror(spark, str(tmp_path), Numbers(200, 100))
    assert by_delta_rs(tmp_path, QUARANTINE) == []
    mirror(spark, str(tmp_path), Numbers(200, 100))
    assert places(tmp_path) == all_once(200)


def test_a_repeated_batch_of_another_plan_is_refused(spark: SparkSession, out: Path) -> None:
    forget(out, "commits/1", "offsets/1")  # a power cut took both; the batch that is planned now goes further
    with pytest.raises(CannotStart, match="plans batch 1 anew"):
        mirror(spark, str(out), Numbers(300, 200))
    assert places(out) == all_once(200)


def test_an_old_copy_of_the_table_is_refused(spark: SparkSession, out: Path) -> None:
    for path in (out / MESSAGES / "_delta_log").glob("*00000000000000000002.*"):
        path.unlink()
    with pytest.raises(CannotStart, match=r"has committed batch 1, and the table in .* ends with batch 0"):
        mirror(spark, str(out), Numbers(300, 100))


def test_a_deleted_checkpoint_is_explained_and_resumed(spark: SparkSession, out: Path) -> None:
    shutil.rmtree(out / "checkpoint")
    with pytest.raises(CannotStart, match="run with --resume"):
        mirror(spark, str(out), Numbers(300, 100))
    assert places(out) == all_once(200)
    mirror(spark, str(out), Numbers(300, 100), resume=True)
    assert places(out) == all_once(300)


@pytest.mark.parametrize("while_it_writes", [False, True])
def test_of_two_jobs_on_one_table_one_stops(
    spark: SparkSession, out: Path, monkeypatch: pytest.MonkeyPatch, while_it_writes: bool
) -> None:
    """Another job commits after this one has looked at the table: before it writes, or while it does."""
    write = Sink._write

    def late(self: Sink, frame: DataFrame, record: Record, logs: Collection[str] | None) -> object:
        if while_it_writes:
            return write(self, committing_first(frame, str(out), record), record, logs)
        commit(str(out), record)
        return write(self, frame, record, logs)

    monkeypatch.setattr(Sink, "_write", late)
    with pytest.raises(CannotStart, match="Another mirror writes to"):
        mirror(spark, str(out), Numbers(300, 100))
    assert places(out) == all_once(200)
    monkeypatch.undo()
    with pytest.raises(CannotStart, match="belongs to query"):
        mirror(spark, str(out), Numbers(300, 100))


def test_a_gap_that_a_task_finds_is_recorded_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention drops offsets between the plan and the reading; the job is killed before it records that."""
    commit_record, kills = Table.commit_record, [True]

    def dying(self: Table, record: Record, application: str) -> None:
        if kills and kills.pop():
            raise OSError("killed")
        commit_record(self, record, application)

    monkeypatch.setattr(Table, "commit_record", dying)
    with pytest.raises(Exception, match="killed"):
        mirror(spark, str(tmp_path), Dropping(200, 100))
    mirror(spark, str(tmp_path), Dropping(200, 100))
    assert places(tmp_path) == [place for place in all_once(200) if place not in {("even", 10), ("even", 11)}]
    table = Table.require(str(tmp_path))
    record = table.record()
    assert record is not None
    assert (record.gaps, record.next) == ((Gap("even", 10, 12),), {"even": 100, "odd": 100})
    assert "dropped" not in str(by_delta_rs(tmp_path, QUARANTINE, ["error"]))
    assert [commit.record.sequence for commit in table.commits() if commit.record] == [3, 2, 1]


def test_a_commit_holds_the_logs_that_moved_and_now_and_then_all(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.mirror.sink.WHOLE_EVERY", 3)
    make_mirror(tmp_path, [Batch(some(5, "idle"))])
    mirror(spark, str(tmp_path), Numbers(1000, 100), resume=True)
    records = [commit.record for commit in Table.require(str(tmp_path)).commits() if commit.record]
    held = [(record.sequence, record.is_whole, "idle/0" in record.covered) for record in reversed(records)]
    assert held == [(number, number % 3 == 2 or number == 1, number % 3 == 2 or number == 1) for number in range(1, 12)]
    record = Table.require(str(tmp_path)).record()
    assert record is not None
    assert record.next == {"idle/0": 5, "even": 500, "odd": 500}
    assert record.is_whole


def test_the_commit_of_a_batch_is_not_the_upkeep_that_repeats_its_record(tmp_path: Path) -> None:
    record = make_mirror(tmp_path, [Batch(some(2)), Batch(some(2, first=2))])
    assert [done.removed for done in compact(str(tmp_path), datetime.now(UTC), 1 << 20)] == [2]
    commits = list(Table.require(str(tmp_path)).commits())
    assert [(commit.operation, commit.record == record) for commit in commits[:2]] == [
        ("OPTIMIZE", True),
        ("WRITE", True),
    ]
    sink = Sink(str(tmp_path), cast("Checkpoint", None), cast("Source", None), lambda _: None)
    assert sink._commit(record) == commits[1]
