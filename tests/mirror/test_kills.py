"""`kill -9` at random points: each message exactly once, for every reader, at every moment."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bridge.mirror.table import MESSAGES
from tests.mirror.killing import GUARD, VICTIMS, Reader, kill_and_finish
from tests.mirror.readers import by_delta_rs, by_duckdb, by_pandas, by_spark, places
from tests.tiers import SOAK

pytestmark = [pytest.mark.extended, pytest.mark.usefixtures("archived_jvm")]
KILLS = 20 if SOAK else 3
TOTAL = KILLS * 4_000
JOB = Path(__file__).with_name("numbers_job.py")
COLUMNS = ["log", "offset"]


def test_each_message_exactly_once(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    seed = random.randrange(2**32)  # noqa: S311 - a test that can be repeated
    victims = random.Random(seed).sample(VICTIMS * KILLS, KILLS)  # noqa: S311 - the same
    out, reader, log = tmp_path / "out", Reader(tmp_path / "out"), tmp_path / "job.log"
    small, large = ([sys.executable, str(JOB), str(out), str(TOTAL), rows] for rows in ("250", "1000"))
    with reader.reading():
        kills = kill_and_finish(small, out, victims, seed, log, large)
    request.node.user_properties += [("seed", seed), ("killed between the two commits", kills.between)]
    assert kills.running == KILLS, (seed, victims)
    assert not SOAK or kills.between
    assert reader.wrong == [], (seed, victims)
    assert reader.looks > KILLS
    assert places(out) == [(log, offset) for log in ("even", "odd") for offset in range(TOTAL // 2)], (seed, victims)
    seen = by_delta_rs(out, MESSAGES, COLUMNS)
    assert seen == by_duckdb(out, MESSAGES, COLUMNS) == by_pandas(out, MESSAGES, COLUMNS)
    assert seen == by_spark(spark, out, MESSAGES, COLUMNS)


def test_what_is_refused_comes_without_a_trace_of_java(tmp_path: Path) -> None:
    """A second mirror goes on with a copy of the checkpoint: its batch is in the table, with other offsets."""

    def run(total: int, checkpoint: str) -> "subprocess.CompletedProcess[str]":
        given = [str(JOB), str(tmp_path / "out"), str(total), "1000", "--checkpoint", (tmp_path / checkpoint).as_uri()]
        return subprocess.run([sys.executable, *given], capture_output=True, text=True, timeout=GUARD, check=False)

    assert run(200, "first").returncode == 0
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    assert run(400, "first").returncode == 0
    refused = run(600, "second")
    assert refused.returncode == 1
    assert "plans batch 1 anew" in refused.stderr
    assert [line for line in refused.stderr.splitlines() if line.startswith("\tat ") or "MicroBatch" in line] == []
