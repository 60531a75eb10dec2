"""`mirror export`: each message of a closed hour once, in files that any reader can glob."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from bridge.cli.program import main
from tests.mirror.made import NOON, Batch, make_mirror, message, some
from tests.mirror.readers import by_delta_rs

HOUR = 3_600_000
PLACE = ["log", "offset"]


def export(out: Path) -> list[dict[str, object]]:
    done = CliRunner().invoke(main, ["mirror", "export", "--out", str(out), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def exported(out: Path) -> list[tuple[str, int]]:
    files = f"read_parquet('{out}/parquet/**/*.parquet', hive_partitioning = true)"
    return sorted(duckdb.execute(f'SELECT log, "offset" FROM {files}').fetchall())  # noqa: S608 - ours


def test_closed_hours_are_files_and_late_rows_further_ones(tmp_path: Path) -> None:
    later = {("audit/0", n): message(n, "audit", store_timestamp=NOON + HOUR + n) for n in range(3)}
    make_mirror(tmp_path, [Batch(some(4), mirrored=NOON + 10), Batch(later, mirrored=NOON + 20)])
    first = export(tmp_path)
    assert first == [
        {"path": "parquet/date=2025-11-21/hour=12/0000000000000.parquet", "rows": 4},
        {"path": "parquet/date=2025-11-21/hour=13/0000000000000.parquet", "rows": 3},
    ]
    assert export(tmp_path) == []
    make_mirror(tmp_path, [Batch(some(2, first=4), mirrored=NOON + 30)])
    before = (tmp_path / str(first[0]["path"])).read_bytes()
    assert export(tmp_path) == [{"path": f"parquet/date=2025-11-21/hour=12/{NOON + 10}.parquet", "rows": 2}]
    assert (tmp_path / str(first[0]["path"])).read_bytes() == before
    assert exported(tmp_path) == by_delta_rs(tmp_path, columns=PLACE)
    assert len(pd.read_parquet(tmp_path / "parquet")) == 9
    run = CliRunner().invoke(main, ["mirror", "compact", "--out", str(tmp_path)])
    assert run.exit_code == 0
    assert export(tmp_path) == []


def test_open_hours_wait(tmp_path: Path) -> None:
    make_mirror(tmp_path, [Batch({("orders/0", 0): message(0, store_timestamp=4_000_000_000_000)})])
    assert export(tmp_path) == []


def test_an_export_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = pq.ParquetWriter.write_batch

    def failing(self: pq.ParquetWriter, batch: object) -> None:
        write(self, batch)
        raise OSError("no route to the store")

    make_mirror(tmp_path, [Batch(some(4))])
    with monkeypatch.context() as patch:
        patch.setattr(pq.ParquetWriter, "write_batch", failing)
        done = CliRunner().invoke(main, ["mirror", "export", "--out", str(tmp_path)])
    assert (done.exit_code, done.output) == (1, "Error: no route to the store\n")
    assert not list(tmp_path.rglob("parquet/**/*.parquet"))
    assert [file["rows"] for file in export(tmp_path)] == [4]


@pytest.mark.extended
def test_an_export_killed_at_any_point_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Kill it a little later each time, until one ends without it."""
    rows = {(f"d{n}/0", n): message(n, f"d{n}", store_timestamp=NOON + n * HOUR) for n in range(40)}
    make_mirror(tmp_path, [Batch(rows)])
    kills = 0
    for milliseconds in range(500, 60_000, 500):
        with subprocess.Popen([sys.executable, "-m", "bridge.mirror", "export", "--out", str(tmp_path)]) as job:
            try:
                job.wait(milliseconds / 1000)
            except subprocess.TimeoutExpired:
                os.kill(job.pid, signal.SIGKILL)
                kills += 1
        if job.returncode == 0:
            break
    assert kills
    assert exported(tmp_path) == by_delta_rs(tmp_path, columns=PLACE)
