"""Retention, on the disk and by the command."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from bridge.mirror.sink.catalogue import load
from bridge.mirror.sink.files import Files
from bridge.mirror.upkeep.disk import drop_empty
from bridge.mirror.upkeep.prune import Rule, preview, prune
from tests.mirror.made import NOON, Batch, make_mirror, message, some
from tests.mirror.readers import by_duckdb, parquet

TWO_DAYS_ON: Final = datetime.fromtimestamp(NOON / 1000, UTC) + timedelta(days=2)
DAY: Final = 86_400_000


@pytest.fixture
def out(tmp_path: Path) -> Path:
    made = [Batch(some(5, name, first=at)) for name in ("orders", "bills", "orders.dlq") for at in (0, 5)]
    young = {("orders/0", 90): message(90, store_timestamp=NOON + 2 * DAY - 5000)}
    make_mirror(tmp_path / "mirror", [*made, Batch(young)])
    return tmp_path / "mirror"


def test_what_is_old_goes_with_its_folders_and_is_not_mirrored_again(spark: SparkSession, out: Path) -> None:
    files = Files(spark, str(out))
    before = load(files)

    (went,) = prune(files, Rule(timedelta(days=1), destinations=["orders"]), TWO_DAYS_ON)

    assert [(folder.path, len(some)) for folder, some in went.items()] == [
        ("data/destination=orders/date=2025-11-21/hour=12", 2)
    ]
    after = load(files)
    assert (after.rows, before.rows) == (21, 31)
    assert after.next == before.next
    assert len(by_duckdb(out)) == 11
    assert not (out / "data/destination=orders/date=2025-11-21").exists()
    assert (out / "data/destination=orders").exists()
    assert list(prune(files, Rule(timedelta(days=1), destinations=["orders"]), TWO_DAYS_ON)) == []


def test_a_preview_changes_nothing(spark: SparkSession, out: Path) -> None:
    before = parquet(out), sorted(out.iterdir())

    going = preview(Files(spark, str(out)), Rule(timedelta(days=1)), TWO_DAYS_ON)

    assert sum(file.rows for some in going.values() for file in some) == 30
    assert (parquet(out), sorted(out.iterdir())) == before


def test_a_file_that_came_just_now_keeps_its_folder(spark: SparkSession, tmp_path: Path) -> None:
    late = tmp_path / "data/destination=a/date=2025-01-01/hour=00/late.parquet"
    for hour in ("00", "01"):
        (late.parent.parent / f"hour={hour}").mkdir(parents=True)
    late.touch()
    hours = [f"data/destination=a/date=2025-01-01/hour={hour}" for hour in ("00", "01")]

    drop_empty(Files(spark, str(tmp_path)), hours)
    assert [path.name for path in late.parent.parent.iterdir()] == ["hour=00"]
    assert late.exists()


def test_on_another_filesystem_folders_go_only_if_they_are_empty(spark: SparkSession, tmp_path: Path) -> None:
    """Hadoop's own way, on this disk."""
    files = Files(spark, str(tmp_path))
    files.folder = None
    for hour in ("00", "01"):
        (tmp_path / f"data/destination=a/date=2025-01-01/hour={hour}").mkdir(parents=True)
    drop_empty(files, ["data/destination=a/date=2025-01-01/hour=00"])
    assert [path.name for path in (tmp_path / "data/destination=a/date=2025-01-01").iterdir()] == ["hour=01"]
    place = files.path("data/destination=a")
    with pytest.raises(Py4JJavaError, match="not empty"):
        place.getFileSystem(files.conf).delete(place, False)
    drop_empty(files, ["data/destination=a/date=2025-01-01/hour=01"])
    assert (tmp_path / "data").exists()
    assert not list((tmp_path / "data").iterdir())
