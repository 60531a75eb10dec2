"""S3 that is gone is an outage like the broker's: waited for, said, shown and counted, and no message is lost."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.mirror.deployment import GUARD, Deployment, deployed
from tests.mirror.end_to_end import numbered
from tests.mirror.s3 import Bucket, bucket

pytestmark = [pytest.mark.extended, pytest.mark.usefixtures("archived_jvm")]
WaitFor = Callable[[Callable[[], object]], None]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    with bucket(tmp_path / "s3") as found:
        for name, value in found.environ.items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture
def place(lake: Bucket, tmp_path: Path) -> Iterator[Deployment]:
    with deployed("memory", tmp_path) as found:
        yield found._replace(url=lake.out)


class Job:
    """A process of the mirror, with its log, its status file and its port."""

    def __init__(self, place: Deployment, command: Sequence[str], port: int) -> None:
        self.log_file, self._status, self._port = place.folder / "job.log", place.folder / "status.json", port
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def status(self) -> dict[str, Any]:
        """Return the document; nothing before the first. The job must not have ended."""
        assert self.process.poll() is None, self.log
        found: dict[str, Any] = json.loads(self._status.read_text()) if self._status.exists() else {}
        return found

    def metric(self, name: str) -> float:
        text = httpx.get(f"http://127.0.0.1:{self._port}/metrics", trust_env=False).text
        return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))


@contextmanager
def mirroring(place: Deployment) -> Iterator[Job]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    status = place.folder / "status.json"
    job = Job(place, place.running(status, "--metrics", f"127.0.0.1:{port}"), port)
    try:
        yield job
        os.kill(job.process.pid, signal.SIGTERM)
        assert job.process.wait(GUARD) == 0, job.log
        assert "Traceback" not in job.log
    finally:
        job.process.kill()
        job.process.wait()


@pytest.mark.parametrize("behind", [False, True], ids=["idle", "with messages"])
def test_s3_that_is_gone_is_waited_for(place: Deployment, lake: Bucket, wait_for: WaitFor, *, behind: bool) -> None:
    place.publish("orders", numbered(20))
    with mirroring(place) as job:
        wait_for(lambda: job.status().get("rows") == 20)
        assert job.metric("oms_mirror_up") == 1
        lake.server.stop()
        if behind:
            place.publish("orders", numbered(20, 20))
        wait_for(lambda: job.status()["state"] == "waiting")
        assert lake.out in job.status()["reason"]
        assert job.metric("oms_mirror_up") == 0
        assert "the storage is not ready" in job.log
        if behind:  # Spark gives up after minutes, and the query ends
            wait_for(lambda: job.status()["activity"] == "waiting for the storage")
            assert job.metric("oms_mirror_up") == 0
        lake.server.start()
        if not behind:
            place.publish("orders", numbered(20, 20))
        wait_for(lambda: job.status()["rows"] == 40)
        wait_for(lambda: job.status()["state"] == "running")
        assert job.metric("oms_mirror_up") == 1
    assert place.verify()["findings"] == []


@pytest.mark.parametrize("behind", [False, True], ids=["idle", "with messages"])
def test_a_job_can_be_stopped_while_s3_is_gone(
    place: Deployment, lake: Bucket, wait_for: WaitFor, *, behind: bool
) -> None:
    place.publish("orders", numbered(20))
    with mirroring(place) as job:
        wait_for(lambda: job.status().get("rows") == 20)
        lake.server.stop()
        if behind:
            place.publish("orders", numbered(20, 20))
        wait_for(lambda: job.status()["state"] == "waiting")
    lake.server.start()
    subprocess.run(place.command(), check=True, timeout=GUARD)
    assert place.verify()["findings"] == []


def test_s3_that_is_gone_at_the_start_is_waited_for(place: Deployment, lake: Bucket, wait_for: WaitFor) -> None:
    place.publish("orders", numbered(20))
    lake.server.stop()
    with mirroring(place) as job:
        wait_for(lambda: job.status().get("state") == "waiting")
        assert job.metric("oms_mirror_up") == 0
        lake.server.start()
        wait_for(lambda: job.status()["rows"] == 20)
    assert place.verify()["findings"] == []


def test_once_gives_up_after_its_timeout(place: Deployment, lake: Bucket) -> None:
    lake.server.stop()
    done = subprocess.run(place.command("--timeout", "3"), capture_output=True, text=True, timeout=GUARD, check=False)
    assert done.returncode == 1
    assert "The storage could not be reached for 3 s" in done.stderr
    assert f"{lake.out} cannot be reached: " in done.stderr
    assert "Traceback" not in done.stderr
