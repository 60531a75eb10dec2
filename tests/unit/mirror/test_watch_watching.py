import json
import logging
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import DataFrame, SparkSession

from adapters.clock import wall
from bridge.errors import BackendUnavailable, CannotStart
from bridge.mirror.manifest import Gap, Ranges
from bridge.mirror.options import Options
from bridge.mirror.watch import watching as module
from bridge.mirror.watch.events import Ended, Event, OutageBegan, Started
from bridge.mirror.watch.probe import probing
from bridge.mirror.watch.state import State, after
from bridge.mirror.watch.watching import PATIENCE, Watch, watching
from bridge.settings import Address
from tests.unit.mirror.watched import BEGIN, batch, told

OPTIONS = Options("kafka://user:hunter2@host:9092", "/srv/mirror")
LOOPBACK = Address("127.0.0.1", 0)
GUARD = 60


class Backend:
    """A source whose backend comes and goes."""

    def __init__(self, *answers: Ranges | Exception) -> None:
        self.answers = iter(answers)
        self.asked = threading.Event()
        """Set once there is no other answer."""

    def rows(self, spark: SparkSession, start: Mapping[str, int]) -> DataFrame:
        raise NotImplementedError

    def moved(self, before: str | None, after: str) -> Ranges:
        raise NotImplementedError

    def gaps(self, before: str | None, after: str) -> Iterator[Gap]:
        raise NotImplementedError

    def explain(self, error: BaseException) -> str | None:
        raise NotImplementedError

    def instead(self, spark: SparkSession, before: str | None, after: str, error: BaseException) -> None:
        raise NotImplementedError

    def outage(self, error: BaseException) -> bool:
        raise NotImplementedError

    def bounds(self) -> Ranges:
        answer = next(self.answers, None)
        if answer is None:
            self.asked.set()
            return {}
        if isinstance(answer, Exception):
            raise answer
        return answer


def until(condition: Callable[[], bool]) -> None:
    guard = threading.Event()
    timer = threading.Timer(GUARD, guard.set)
    timer.start()
    while not condition():
        assert not guard.wait(0.002)
    timer.cancel()


def read(path: Path) -> dict[str, object]:
    fields = json.loads(path.read_text())
    assert isinstance(fields, dict)
    return fields


def watched(status_file: Path | None = None, metrics: Address | None = None) -> AbstractContextManager[Watch]:
    return watching(OPTIONS, Backend(), status_file=status_file, metrics=metrics, show="quiet")


def test_the_status_file_follows(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    with watched(path) as watch:
        assert read(path)["state"] == "starting"
        watch.tell(Started("run", wall()))
        until(lambda: read(path)["state"] == "running")
        watch.observer(batch(1, {"data": 7}))
        until(lambda: read(path)["messages"] == 7)
    assert (read(path)["state"], read(path)["reason"], read(path)["messages"]) == ("stopped", None, 7)
    assert "hunter2" not in path.read_text()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (CannotStart("The disk is full."), "The disk is full."),
        (RuntimeError("Traceback (most recent call last):\n  File x\nValueError: bad\n\tat java"), "ValueError: bad"),
        (ZeroDivisionError(), "ZeroDivisionError"),
        (KeyboardInterrupt(), None),
    ],
)
def test_why_it_stopped_is_the_last_word(tmp_path: Path, error: BaseException, reason: str | None) -> None:
    with pytest.raises(type(error)), watched(tmp_path / "status.json"):
        raise error
    fields = read(tmp_path / "status.json")
    assert (fields["state"], fields["reason"]) == ("stopped", reason)


def test_a_status_file_that_cannot_be_had_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"^the status file /.*/none/status.json cannot be written: No such file"):
        watched(tmp_path / "none" / "status.json").__enter__()


def test_an_address_that_cannot_be_had_leaves_nothing_running(tmp_path: Path) -> None:
    with watched(metrics=LOOPBACK) as other, pytest.raises(CannotStart, match="cannot listen on"):
        watched(tmp_path / "status.json", other.metrics_at).__enter__()
    assert not {t.name for t in threading.enumerate()} & {"oms-mirror-status", "oms-mirror-port"}


def test_a_disk_that_fails_later_is_a_warning_and_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "status.json"
    with watched(path) as watch:
        shutil.rmtree(folder)
        watch.tell(Started("run", wall()))
        until(lambda: bool(caplog.records))
        watch.observer(batch(1, {"data": 7}))
        until(lambda: not watch.changed.is_set())
        folder.mkdir()
        watch.observer(batch(2, {"data": 7}))
        until(path.exists)
    assert [record.getMessage() for record in caplog.records] == ["the status file cannot be written"]
    assert read(path)["messages"] == 14


def test_the_port(caplog: pytest.LogCaptureFixture) -> None:
    with watched(metrics=LOOPBACK) as watch, httpx.Client(base_url=f"http://{watch.metrics_at}") as client:
        assert client.get("/livez").text == "alive\n"
        answer = client.get("/readyz")
        assert (answer.status_code, answer.text) == (503, "not ready: the mirror is starting\n")
        watch.tell(Started("run", wall()))
        answer = client.get("/readyz")
        assert (answer.status_code, answer.text) == (200, "ready\n")
        watch.observer(batch(1, {"data": 7}))
        families = {f.name: f for f in text_string_to_metric_families(client.get("/metrics").text)}
        assert {s.labels["area"]: s.value for s in families["oms_mirror_rows"].samples}["data"] == 7
        (count,) = [
            s.value
            for s in families["oms_mirror_batch_seconds"].samples
            if s.name.endswith("count") and s.labels == {"phase": "stage"}
        ]
        assert count == 1
        assert client.get("/status").json()["messages"] == 7
        watch.tell(Ended("run", "it broke", wall()))
        answer = client.get("/readyz")
        assert (answer.status_code, answer.text) == (503, "not ready: the mirror is starting: it broke\n")
    assert caplog.records == []


@pytest.mark.parametrize(("since", "status"), [(PATIENCE - 1, 200), (PATIENCE, 503)])
def test_ready_through_a_short_outage(since: int, status: int) -> None:
    state = told([Started("run", BEGIN), OutageBegan("refused", BEGIN)])
    answer = module._ready(state, BEGIN + since)
    assert answer.status == status
    assert answer.body in {b"ready\n", b"not ready: the mirror is waiting: refused\n"}


def test_nothing_that_goes_wrong_reaches_the_job(caplog: pytest.LogCaptureFixture) -> None:
    with watched() as watch:
        watch.observer(batch(1, {"data": "seven"}))  # type: ignore[dict-item]
        watch.observer(batch(2, {"data": 7}))
    assert [record.getMessage() for record in caplog.records] == ["an event could not be shown"]
    assert watch.state().rows["data"] == 7


def test_events_from_many_threads_are_all_counted() -> None:
    def observe(watch: Watch) -> None:
        for number in range(500):
            watch.observer(batch(number, {"data": 1}))

    with watched() as watch:
        threads = [threading.Thread(target=observe, args=(watch,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert watch.state().rows["data"] == 4000
    assert b'oms_mirror_batch_seconds_count{phase="stage"} 4000.0' in watch.metrics.exposition()


def test_the_summary() -> None:
    with watched() as watch:
        watch.observer(batch(1, {"data": 1}))
    assert re.match(r"1 row mirrored in 1 batch and \d\.\d s\n", watch.summary())


class Told:
    """Where events go."""

    def __init__(self, *events: Event) -> None:
        self.now = told(events, State(wall()))
        self.events: list[Event] = []

    def state(self) -> State:
        return self.now

    def tell(self, event: Event) -> None:
        self.events.append(event)
        self.now = after(self.now, event)


def kinds(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def test_an_outage_is_found_out_while_no_rows_come() -> None:
    seen, backend = Told(Started("run", 0)), Backend({}, BackendUnavailable("refused"), BackendUnavailable("refused"))
    with probing(backend.bounds, seen.state, seen.tell, pause=0.01):
        assert backend.asked.wait(GUARD)
        until(lambda: seen.now.condition == "running")
    assert kinds(seen.events) == ["OutageBegan", "OutageBegan", "OutageEnded"]
    assert isinstance(first := seen.events[0], OutageBegan)
    assert first.reason == "refused"


def test_an_outage_before_the_first_run_ends_too() -> None:
    seen, backend = Told(OutageBegan("refused", BEGIN)), Backend()
    with probing(backend.bounds, seen.state, seen.tell, pause=0.01):
        until(lambda: seen.now.condition == "starting")


def test_nobody_asks_before_the_start_or_while_rows_come() -> None:
    for events in ([], [Started("run", wall() + 10**9)]):
        seen, backend = Told(*events), Backend()
        looks: list[State] = []

        def look(seen: Told = seen, looks: list[State] = looks) -> State:
            looks.append(seen.now)
            return seen.now

        with probing(backend.bounds, look, seen.tell, pause=0.01):
            until(lambda looks=looks: len(looks) > 5)  # type: ignore[misc]
        assert not backend.asked.is_set()


def test_a_defect_of_a_source_does_not_end_the_probing(caplog: pytest.LogCaptureFixture) -> None:
    seen, backend = Told(Started("run", 0)), Backend(ZeroDivisionError(), BackendUnavailable("refused"))
    with probing(backend.bounds, seen.state, seen.tell, pause=0.01):
        until(lambda: kinds(seen.events) == ["OutageBegan", "OutageEnded"])
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
