"""The job as its users run it: a process, a bridge, a real backend, from publishing to SQL and back."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.mirror.deployment import GUARD, Deployment, deployed
from tests.mirror.killing import VICTIMS, Reader, kill_and_finish
from tests.mirror.readers import by_duckdb

KILLS = 20 if os.environ.get("OMS_TEST_SOAK") else 2
BACKENDS = ("memory", "kafka", "rabbitmq")
ALONE = BACKENDS if os.environ.get("OMS_TEST_SOAK") else BACKENDS[:1]
"""Where the backend makes no difference, one is enough: a job takes half a minute of both cores."""


@pytest.fixture(params=BACKENDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    with deployed(request.param, tmp_path) as found:
        yield found


def numbered(amount: int, first: int = 0) -> list[str]:
    return [f'{{"order": {number}}}' for number in range(first, first + amount)]


def test_from_publishing_to_sql_and_back(place: Deployment) -> None:
    place.publish("orders", numbered(300), "--key", "customer-7", "--property", "region=eu")
    place.publish("reminders", numbered(20), "--delay-ms", "1")
    assert "320 rows mirrored" in place.once()
    place.publish("orders", numbered(50, 300))
    place.publish("made-meanwhile", ["first"])
    assert "51 rows mirrored" in place.once()
    told = json.loads(
        place.mirror("query", "--json", "SELECT count(*) n, count(DISTINCT message_id) ids FROM messages").stdout
    )
    assert told == {"n": 371, "ids": 371}
    what = "SELECT message_key, properties['region'] region, count(*) n FROM messages"
    keys = f"{what} WHERE destination = 'orders' GROUP BY ALL ORDER BY n"
    answers = [json.loads(line) for line in place.mirror("query", "--json", keys).stdout.splitlines()]
    assert [(a["message_key"], a["region"], a["n"]) for a in answers] == [(None, None, 50), ("customer-7", "eu", 300)]
    found = place.verify()
    assert (found["exit"], found["findings"]) == (0, []), found
    assert place.mirror("report", "--html", str(place.folder / "report.html")).returncode == 0
    assert "made" in (place.folder / "report.html").read_text()


@pytest.mark.parametrize("place", ALONE, indirect=True)
def test_restored_messages_are_the_same(place: Deployment) -> None:
    place.publish("orders", numbered(40), "--key", "k", "--property", "a=b")
    place.once()
    options = ("--url", place.bridge.url, "--destination", "orders", "--to-destination", "again")
    assert place.mirror("restore", *options).returncode == 0
    place.once()
    shown = "SELECT message_id, message_key, properties['a'] a, body FROM messages WHERE destination = "
    before, after = (
        sorted(place.mirror("query", "--json", f"{shown}'{name}'").stdout.splitlines()) for name in ("orders", "again")
    )
    assert before == after
    assert len(before) == 40


@pytest.mark.parametrize("place", ALONE, indirect=True)
def test_it_runs_until_it_is_told_to_stop(place: Deployment, wait_for: Callable[[Callable[[], object]], None]) -> None:
    status = place.folder / "status.json"
    command = place.command("--status", str(status), "--every", "0.5")
    command[2] = "run"
    with (place.folder / "job.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as job:
        try:
            for first in (0, 100):
                place.publish(f"orders-{first}", numbered(100, first))
                wait_for(lambda: status.exists() and json.loads(status.read_text())["rows"] == first + 100)  # noqa: B023 - at once
            assert json.loads(status.read_text())["state"] == "running"
            job.send_signal(signal.SIGTERM)
            assert job.wait(GUARD) == 0, (place.folder / "job.log").read_text()
        finally:
            job.kill()
    assert json.loads(status.read_text())["state"] == "stopped"
    assert place.verify()["exit"] == 0


def test_whatever_is_killed_each_message_is_there_once(place: Deployment) -> None:
    amount = 2_000 * (KILLS + 1)
    place.publish("orders", numbered(amount))
    reader, victims = Reader(place.out), (VICTIMS * KILLS)[:KILLS]
    with reader.reading():
        kill_and_finish(place.command("--rows", "400"), place.out, victims, 1, place.folder / "job.log")
    assert reader.wrong == []
    assert len(by_duckdb(place.out)) == amount
    found = place.verify()
    assert (found["exit"], found["findings"]) == (0, []), found
