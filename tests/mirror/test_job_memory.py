"""The job as its users run it, on memory: processes, a bridge, from publishing to SQL."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

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
