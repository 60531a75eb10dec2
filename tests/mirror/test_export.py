"""`mirror export`: each message once, in files that any reader can glob."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from bridge.cli.program import main
from bridge.mirror import parquet_export as bridge_export
from tests.http.wall import WallClock
from tests.launch import Bridge
from tests.mirror.deployment import Deployment
from tests.mirror.end_to_end import numbered
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


def test_what_was_mirrored_in_ended_hours_is_in_files(tmp_path: Path) -> None:
    late = {("audit/0", n): message(n, "audit", store_timestamp=NOON - 900 * HOUR + n) for n in range(3)}
    tomorrow = NOON + 20 * HOUR
    make_mirror(tmp_path, [Batch(some(4), mirrored=NOON + 10), Batch(late, mirrored=NOON + 20)])
    first = export(tmp_path)
    assert first == [{"path": "parquet/date=2025-11-21/0000000000000.parquet", "rows": 7}]
    assert export(tmp_path) == []
    make_mirror(tmp_path, [Batch(some(2, first=4), mirrored=NOON + 30), Batch(some(1, first=6), mirrored=tomorrow)])
    before = (tmp_path / str(first[0]["path"])).read_bytes()
    assert export(tmp_path) == [
        {"path": f"parquet/date=2025-11-21/{NOON + 20}.parquet", "rows": 2},
        {"path": "parquet/date=2025-11-22/0000000000000.parquet", "rows": 1},
    ]
    assert (tmp_path / str(first[0]["path"])).read_bytes() == before
    assert exported(tmp_path) == by_delta_rs(tmp_path, columns=PLACE)
    assert len(pd.read_parquet(tmp_path / "parquet")) == 10
    run = CliRunner().invoke(main, ["mirror", "compact", "--out", str(tmp_path)])
    assert run.exit_code == 0
    assert export(tmp_path) == []


def test_the_current_hour_waits(tmp_path: Path) -> None:
    now = int(time.time() * 1000)
    make_mirror(tmp_path, [Batch(some(2), mirrored=now - 3 * HOUR), Batch(some(3, first=2), mirrored=now)])
    assert [file["rows"] for file in export(tmp_path)] == [2]
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
    make_mirror(tmp_path, [Batch(some(1, f"d{n}", n), mirrored=NOON + n * 24 * HOUR) for n in range(40)])
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


@pytest.mark.extended
@pytest.mark.usefixtures("quick_jvm")
def test_a_mirror_that_is_killed_exports_each_message_once(
    tmp_path: Path, wait_for: Callable[[Callable[[], object]], None]
) -> None:
    """The job's clock is three hours late, so that the hours in which it mirrors have ended."""
    clock = WallClock(tmp_path / "clock")
    clock.move(-3 * HOUR)
    folder = tmp_path / "place"
    with Bridge(tmp_path / "bridge") as bridge:
        place = Deployment(bridge, "memory://", folder)
        folder.mkdir()
        for first in range(0, 900, 300):
            place.publish("orders", numbered(300, first))
            with (folder / "job.log").open("ab") as log:
                running = [*place.running(folder / "status.json"), "--export"]
                late = os.environ | clock.settings
                job = subprocess.Popen(running, stdout=log, stderr=log, start_new_session=True, env=late)
            try:
                wait_for(lambda first=first, job=job: job.poll() is not None or done(place.out, first))  # type: ignore[misc]
                assert job.poll() is None, (folder / "job.log").read_text()
            finally:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
    export(place.out)
    assert exported(place.out) == sorted(by_delta_rs(place.out, columns=PLACE))


def done(out: Path, first: int) -> bool:
    """Whether the job has mirrored 300 messages after the first ones, and exported those, which were there before."""
    if not (out / "messages" / "_delta_log").exists() or len(by_delta_rs(out, columns=PLACE)) < first + 300:
        return False
    return not first or (bool(list(out.glob("parquet/**/*.parquet"))) and len(exported(out)) >= first)


def test_an_export_beside_the_job_goes_on_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries = iter([OSError("no route to the store")])
    files = bridge_export.export

    def failing(out: str, closed: datetime) -> Iterator[bridge_export.Exported]:
        for error in tries:
            raise error
        return files(out, closed)

    monkeypatch.setattr(bridge_export, "export", failing)
    monkeypatch.setattr(bridge_export, "_EVERY", 0.01)
    make_mirror(tmp_path, [Batch(some(4))])
    until = time.monotonic() + 60
    with bridge_export.exporting(str(tmp_path)):
        while not list(tmp_path.rglob("parquet/**/*.parquet")) and time.monotonic() < until:
            time.sleep(0.01)
    assert exported(tmp_path) == by_delta_rs(tmp_path, columns=PLACE)
    assert [record.__dict__.get("reason") for record in caplog.records if record.levelname == "WARNING"] == [
        "no route to the store"
    ]
