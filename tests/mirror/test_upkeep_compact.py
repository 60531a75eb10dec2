"""Compaction on the real thing: Spark rewrites, and DuckDB, pandas and Spark read."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from glob import escape
from itertools import pairwise
from pathlib import Path
from typing import Final

import duckdb
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from bridge.errors import CannotStart
from bridge.message import Message
from bridge.mirror.manifest import Manifest
from bridge.mirror.sink.catalogue import load
from bridge.mirror.sink.files import Files
from bridge.mirror.upkeep.claim import claimed
from bridge.mirror.upkeep.compact import Step, compact
from tests.mirror.made import NOON, Bad, Batch, make_mirror, message, some
from tests.mirror.readers import by_duckdb, by_pandas, by_spark, parquet

AFTERNOON: Final = datetime.fromtimestamp(NOON / 1000, UTC) + timedelta(hours=3)
LARGE: Final = 256 << 20


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "mirror [1]*"  # what would be a pattern is a name


def steps(spark: SparkSession, out: Path, target: int = LARGE, now: datetime = AFTERNOON) -> Iterator[Step]:
    return compact(spark, Files(spark, str(out)), now, timedelta(hours=1), target)


def add(out: Path, number: int, batch: Batch) -> Manifest:
    """Add one more batch to a mirror, as the job would."""
    other = out.with_name(f"batch {number}")
    *_, manifest = make_mirror(other, [*[Batch({})] * number, batch])
    for file in manifest.adds:
        (out / file.path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(other / file.path, out / file.path)
    shutil.copy(other / f"manifests/{manifest.key}.json", out / f"manifests/{manifest.key}.json")
    return manifest


def test_every_column_is_the_same_afterwards_for_all_readers(spark: SparkSession, out: Path) -> None:
    odd = "a b/ü=%[*]"
    special = message(
        0, odd, body=b"\xff\x00", properties={"a": "b", "ü": ""}, priority=7, message_key="k", delay_time=0
    )
    make_mirror(
        out,
        [
            *(Batch(some(50, first=first)) for first in range(0, 200, 50)),
            Batch({("007/0", 1): message(1, "007")}),
            Batch({("007/0", 2): message(2, "007", body=b"", trace_id="t", store_timestamp=NOON)}),
            Batch({("odd/0", 0): special}),
            Batch({("odd/1", 0): special._replace(partition=1), ("odd/0", 1): special}),
        ],
    )
    before = by_duckdb(out), by_pandas(out), by_spark(spark, out)

    (step,) = steps(spark, out)

    assert (len(step.removed), len(step.added), step.problems) == (8, 3, ())
    assert len(parquet(out)) == 3
    assert (by_duckdb(out), by_pandas(out), by_spark(spark, out)) == before
    assert len(before[0]) == len(before[1]) == len(before[2]) == 205
    assert load(Files(spark, str(out))).rows == 205
    assert list(steps(spark, out)) == []


def test_a_file_is_sorted_and_findable_by_message_id(spark: SparkSession, out: Path) -> None:
    logs = {n: {(f"orders/{at % 3}", at): message(at, partition=at % 3) for at in range(n, 300, 4)} for n in range(4)}
    make_mirror(out, [Batch(rows) for rows in logs.values()])

    list(steps(spark, out))

    (file,) = parquet(out)
    name = escape(str(file))
    with duckdb.connect() as db:
        rows = db.execute('SELECT partition, log, "offset" FROM read_parquet(?)', [name]).fetchall()
        assert rows == sorted(rows)
        probe = "SELECT bool_and(bloom_filter_excludes) FROM parquet_bloom_probe(?, 'message_id', ?)"
        assert db.execute(probe, [name, "orders-7"]).fetchone() == (False,)
        assert db.execute(probe, [name, "orders-7x"]).fetchone() == (True,)


def test_an_hour_of_more_than_the_target_becomes_files_with_ranges_of_their_own(spark: SparkSession, out: Path) -> None:
    rows = [{("orders/0", n): message(n, body=bytes([n % 251]) * 10) for n in range(k, 400, 2)} for k in range(2)]
    made = make_mirror(out, [Batch(some) for some in rows])
    size = sum(file.bytes for manifest in made for file in manifest.adds)
    before = by_duckdb(out)

    (step,) = steps(spark, out, target=size // 3 + 1)

    assert len(step.added) == 3
    assert by_duckdb(out) == before
    with duckdb.connect() as db:
        query = 'SELECT min("offset"), max("offset") FROM read_parquet(?, filename = true) GROUP BY filename ORDER BY 1'
        ranges = db.execute(query, [escape(str(out)) + "/data/**"]).fetchall()
    assert all(before[1] < after[0] for before, after in pairwise(ranges))


def test_every_area_is_compacted_and_open_hours_are_not(spark: SparkSession, out: Path) -> None:
    def rows(n: int) -> dict[tuple[str, int], Message | Bad]:
        late = int((AFTERNOON - timedelta(minutes=50)).timestamp() * 1000)
        return {
            ("orders.dlq/0", n): message(n, "orders.dlq"),
            ("orders/0", n): Bad("broken", b"\xff", "orders"),
            ("late/0", n): message(n, "late", store_timestamp=late),
        }

    make_mirror(out, [Batch(rows(n)) for n in range(3)])
    quarantine = by_duckdb(out, "quarantine")

    list(steps(spark, out))

    assert [len(parquet(out, area)) for area in ("dead-letters", "quarantine", "data")] == [1, 1, 3]
    assert by_duckdb(out, "quarantine") == quarantine


def test_a_late_file_joins_what_was_compacted(spark: SparkSession, out: Path) -> None:
    make_mirror(out, [Batch(some(10, first=first)) for first in (0, 10)])
    list(steps(spark, out))
    add(out, 2, Batch(some(10, first=20)))

    (step,) = steps(spark, out)

    assert [file.rows for file in step.added] == [30]
    assert len(by_duckdb(out)) == 30


def test_a_file_that_a_job_is_about_to_rename_is_left_to_it(spark: SparkSession, out: Path) -> None:
    make_mirror(out, [Batch(some(10, first=first)) for first in (0, 10, 20)])
    *_, pending = parquet(out)
    staged = out / "staging/5b6c3d1e-8a11-4b8e-9f0a-2f6c1d7e4a90-000000000002" / f"area={pending.relative_to(out)}"
    staged.parent.mkdir(parents=True)

    class Live(Files):
        """Its job is between commit and rename, and stays there."""

        def folders(self, folder: str) -> dict[str, int]:
            return {} if folder == "staging" else super().folders(folder)

    pending.rename(staged)
    (step,) = compact(spark, Live(spark, str(out)), AFTERNOON, timedelta(hours=1), LARGE)

    assert (len(step.removed), step.problems, staged.exists()) == (2, (), True)


def test_a_file_that_cannot_be_read_is_named_and_left(spark: SparkSession, out: Path) -> None:
    make_mirror(out, [Batch(some(300, first=first)) for first in (0, 300, 600, 900)])
    torn, rotten, *_ = parquet(out)
    torn.write_bytes(torn.read_bytes()[:100])
    pq.write_table(pq.ParquetFile(rotten).read(), rotten, compression="none", write_page_checksum=True)
    rotten.write_bytes(rotten.read_bytes().replace(b"body 333", b"body 332"))

    (step,) = steps(spark, out)

    assert {Path(problem.path).name for problem in step.problems} == {torn.name, rotten.name}
    assert [file.rows for file in step.added] == [600]
    assert {torn, rotten} < set(parquet(out))


def test_rows_that_differ_from_their_manifest_are_left_as_they_are(spark: SparkSession, out: Path) -> None:
    make_mirror(out, [Batch(some(10, name, first=at)) for name in ("good", "wrong") for at in (0, 10)])
    swapped = [file for file in parquet(out) if "wrong" in str(file)]
    other = make_mirror(out.with_name("other"), [Batch(some(3, "wrong"))])
    shutil.copy(out.with_name("other") / other[0].adds[0].path, swapped[0])

    (step,) = steps(spark, out)

    assert [problem.path for problem in step.problems] == [str(swapped[0].parent.relative_to(out))]
    assert sorted(file for file in parquet(out) if "wrong" in str(file)) == sorted(swapped)
    assert sum(file.rows for file in step.added) == 20
    assert not list((out / "staging").glob("*"))


def test_only_one_upkeep_works_at_a_time(spark: SparkSession, out: Path) -> None:
    make_mirror(out, [Batch(some(10, first=first)) for first in (0, 10)])

    with claimed(Files(spark, str(out))), pytest.raises(CannotStart, match="Another compaction or prune is at work"):
        list(steps(spark, out))
    assert len(parquet(out)) == 2
    assert len(list(steps(spark, out))) == 1
    assert not list((out / "upkeep").iterdir())


def test_one_that_was_taken_for_dead_changes_nothing(spark: SparkSession, out: Path) -> None:
    make_mirror(out, [Batch(some(10, first=first)) for first in (0, 10)])

    class Robbed(Files):
        """The claim goes while the rows are being written."""

        def sync(self, paths: object) -> None:
            super().sync(paths)  # type: ignore[arg-type]  # handed on
            if (out / "staging").exists():
                shutil.rmtree(out / "upkeep")

    with pytest.raises(CannotStart, match="taken for dead"):
        list(compact(spark, Robbed(spark, str(out)), AFTERNOON, timedelta(hours=1), LARGE))
    assert len(parquet(out)) == 2
    assert not (out / "manifests/compact").exists()


def test_what_is_no_mirror_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="There is no mirror in"):
        list(steps(spark, tmp_path))
    assert list(tmp_path.iterdir()) == []
