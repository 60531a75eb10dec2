"""The job as its users run it, on memory: processes, a bridge, from publishing to SQL."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mirror.deployment import GUARD, Deployment, deployed
from tests.mirror.end_to_end import ALL, FIRST, assert_queried, assert_verified, numbered, publish_first, publish_more
from tests.mirror.killing import assert_kills_lose_nothing

pytestmark = pytest.mark.usefixtures("quick_jvm")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Deployment]:
    with deployed("memory", tmp_path) as found:
        yield found


@pytest.mark.usefixtures("commands_share_spark")
def test_once_and_then_run_until_ctrl_c(place: Deployment, wait_for: Callable[[Callable[[], object]], None]) -> None:
    publish_first(place)
    assert f"{FIRST} rows mirrored" in place.once()
    status = place.folder / "status.json"

    def rows() -> int:
        return int(json.loads(status.read_text())["rows"]) if status.exists() else 0

    with (place.folder / "job.log").open("wb") as log:
        job = subprocess.Popen(place.running(status), stdout=log, stderr=log, start_new_session=True)
    try:
        publish_more(place)
        wait_for(lambda: job.poll() is not None or rows() == ALL - FIRST)
        assert json.loads(status.read_text())["state"] == "running", (place.folder / "job.log").read_text()
        os.killpg(job.pid, signal.SIGINT)  # a terminal signals Spark's processes, too
        assert job.wait(GUARD) == 0, (place.folder / "job.log").read_text()
        said = (place.folder / "job.log").read_text()
        assert "Traceback" not in said
        assert all(activity in said for activity in ("starting Spark", "reading and writing a batch"))
    finally:
        job.kill()
        job.wait()
    assert json.loads(status.read_text())["state"] == "stopped"
    assert_queried(place)
    assert_verified(place)


@pytest.mark.extended
def test_the_lag_is_shown_before_the_first_commit(
    place: Deployment, wait_for: Callable[[Callable[[], object]], None]
) -> None:
    place.publish("orders", numbered(20))
    status, seen = place.folder / "status.json", list[dict[str, Any]]()

    def look() -> dict[str, Any]:
        seen.append(json.loads(status.read_text()) if status.exists() else {"lag": {"rows": None}, "batches": 0})
        return seen[-1]

    with (place.folder / "job.log").open("wb") as log:
        job = subprocess.Popen(place.running(status), stdout=log, stderr=log)
    try:
        wait_for(lambda: job.poll() is not None or (look()["batches"] and seen[-1]["lag"]["rows"] == 0))
    finally:
        job.kill()
        job.wait()
    before = [each["lag"] for each in seen if not each["batches"] and each["lag"]["rows"] is not None]
    assert before, (place.folder / "job.log").read_text()
    assert {lag["rows"] for lag in before} == {20}
    assert all(0 <= lag["seconds"] < GUARD for lag in before)
    assert seen[-1]["lag"] == {"rows": 0, "logs": 0, "seconds": 0, "worst": []}


@pytest.mark.extended
def test_once_that_is_stopped_did_not_finish(
    place: Deployment, wait_for: Callable[[Callable[[], object]], None]
) -> None:
    place.publish("orders", numbered(2_000))
    status = place.folder / "status.json"
    command = place.command("--rows", "20", "--status", str(status))
    for to_all in (False, True):
        with (place.folder / "job.log").open("wb") as log:
            job = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            rows = int(status.exists() and json.loads(status.read_text())["rows"])
            wait_for(lambda rows=rows: status.exists() and json.loads(status.read_text())["rows"] not in {0, rows})  # type: ignore[misc]
            (os.killpg if to_all else os.kill)(job.pid, signal.SIGTERM)  # systemd signals every process
            assert job.wait(GUARD) == 143, (place.folder / "job.log").read_text()
            assert "Stopped before everything was mirrored." in (place.folder / "job.log").read_text()
        finally:
            job.kill()
            job.wait()
    place.once()
    assert place.verify()["findings"] == []


@pytest.mark.extended
@pytest.mark.usefixtures("archived_jvm")
def test_kills_lose_and_double_nothing(place: Deployment) -> None:
    assert_kills_lose_nothing(place, "driver", "worker")
