"""`kill -9` at random points: each message exactly once, for everybody who reads, at every moment."""

import os
import random
import sys
from pathlib import Path

import duckdb
import pandas as pd
import pytest
from pyspark.sql import SparkSession

from bridge.mirror.schema import READ_DDL
from tests.mirror.killing import VICTIMS, Reader, kill_and_finish
from tests.mirror.numbers_job import DESTINATIONS

KILLS = 20 if os.environ.get("OMS_TEST_SOAK") else 3
TOTAL, PER_BATCH = KILLS * 4_000, 400
JOB = Path(__file__).with_name("numbers_job.py")
EXPECTED = {
    (log, offset)
    for log in ("even", "odd")
    for offset in range(TOTAL // 2)
    if offset % 97 and not DESTINATIONS[offset % len(DESTINATIONS)].endswith(".dlq")
}


def test_each_message_exactly_once(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    seed = random.randrange(2**32)  # noqa: S311 - the same
    request.node.user_properties.append(("seed", seed))
    victims = random.Random(seed).sample(VICTIMS * KILLS, KILLS)  # noqa: S311 - a test that can be repeated
    out, reader = tmp_path / "out", Reader(tmp_path / "out")
    command = [sys.executable, str(JOB), str(out), str(TOTAL), str(PER_BATCH)]
    with reader.reading():
        kill_and_finish(command, out, victims, seed, tmp_path / "job.log")
    assert reader.wrong == [], (seed, victims)
    assert reader.looks > KILLS
    place = f"{out}/data"
    for found in (
        duckdb.execute(f"SELECT log, \"offset\" FROM read_parquet('{place}/**/*.parquet')").fetchall(),  # noqa: S608
        list(pd.read_parquet(place, columns=["log", "offset"]).itertuples(index=False, name=None)),
        [tuple(row) for row in spark.read.schema(READ_DDL).parquet(place).select("log", "offset").collect()],
    ):
        assert len(found) == len(EXPECTED), (seed, victims)
        assert set(found) == EXPECTED, (seed, victims)
