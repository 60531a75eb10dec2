"""An upkeep that dies at any of its steps: nobody sees a row twice, and who comes next makes it whole."""

import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import duckdb
import pytest
from pyspark.sql import SparkSession

from bridge.mirror.sink.catalogue import load
from bridge.mirror.sink.files import Files
from bridge.mirror.sink.publish import recover
from bridge.mirror.upkeep import claim
from bridge.mirror.upkeep.compact import compact
from bridge.mirror.upkeep.prune import Rule, prune
from tests.mirror.made import NOON, Batch, make_mirror, message, some
from tests.mirror.mortal import Died, Mortal
from tests.mirror.readers import Rows, by_duckdb, by_pandas, by_spark, parquet

TWO_DAYS_ON: Final = datetime.fromtimestamp(NOON / 1000, UTC) + timedelta(days=2)
ROOT: Final = Path(__file__).parents[2]
Upkeep = Callable[[SparkSession, Files], object]


def compacting(spark: SparkSession, files: Files) -> object:
    return list(compact(spark, files, TWO_DAYS_ON, timedelta(hours=1), 256 << 20))


def pruning(_: SparkSession, files: Files) -> object:
    return list(prune(files, Rule(timedelta(days=1), destinations=["old"]), TWO_DAYS_ON))


def begun(out: Path) -> Path:
    made = [Batch(some(5)), Batch(some(5, first=5)), Batch(some(10, "old"))]
    make_mirror(out, [*made, Batch({("orders/0", 10): message(10, store_timestamp=NOON - 86_400_000)})])
    return out


def at_most_once(rows: Rows) -> bool:
    return not rows or max(Counter(rows).values()) == 1


@pytest.mark.parametrize(("upkeep", "left"), [(compacting, 21), (pruning, 11)])
def test_it_may_die_before_any_of_its_changes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upkeep: Upkeep, left: int
) -> None:
    """`left`: rows of all destinations after it."""
    before = begun(tmp_path / "mirror")
    for changes in range(100):
        out = tmp_path / str(changes)
        shutil.copytree(before, out)
        try:
            upkeep(spark, Mortal(spark, str(out), changes))
        except Died:
            assert at_most_once(by_duckdb(out))
        else:
            break
        monkeypatch.setattr(claim, "_alive", lambda _: False)
        recover(Files(spark, str(out)))  # what a job does when it starts
        healed = by_duckdb(out)
        assert at_most_once(healed)
        assert len(healed) in (21, left)
        upkeep(spark, Files(spark, str(out)))
        assert len(by_duckdb(out)) == left == load(Files(spark, str(out))).rows
        assert sorted(str(file.relative_to(out)) for file in parquet(out)) == sorted(load(Files(spark, str(out))).files)
        assert not [*(out / "staging").iterdir(), *(out / "upkeep").iterdir()]
    assert changes >= 6


def test_a_killed_process_is_followed_by_another_while_readers_read(spark: SparkSession, tmp_path: Path) -> None:
    out = begun(tmp_path / "mirror")
    expected = by_duckdb(out)
    over, seen = threading.Event(), Counter[str]()

    def reading() -> None:
        while not over.is_set():
            try:
                seen["once" if at_most_once(by_duckdb(out)) else "twice"] += 1
            except duckdb.IOException as error:  # a file that was listed is gone when it is opened
                seen["gone" if "No such file" in str(error) or "No files found" in str(error) else str(error)] += 1

    reader = threading.Thread(target=reading)
    reader.start()
    try:
        job = [sys.executable, "-m", "tests.mirror.upkeep_job", str(out)]
        for changes in (5, 1 << 20):  # in the middle of what it publishes, and never
            status = subprocess.run([*job, str(changes)], cwd=ROOT, check=False, timeout=300).returncode
            assert status == (0 if changes > 5 else -signal.SIGKILL)
    finally:
        over.set()
        reader.join()

    assert not set(seen) - {"once", "gone"}
    assert seen["once"] > 0
    assert by_duckdb(out) == by_pandas(out) == by_spark(spark, out) == expected
    assert [file.name.startswith("compact-") for file in parquet(out)].count(True) == 1
