"""What the job reports: log lines, the status file, the management port, metrics and probes of the backend."""

import json
import logging
import re
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import httpx
import pytest
from prometheus_client import Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql.streaming.listener import QueryStartedEvent, SourceProgress

from bridge.errors import BackendUnavailable, CannotStart
from bridge.mirror.monitoring import reporter as module
from bridge.mirror.monitoring.reporter import Reporter, lag, reporting, sentence
from bridge.mirror.monitoring.server import registry
from bridge.mirror.monitoring.status import Status
from bridge.mirror.offsets import Gap, Ranges, Record
from bridge.mirror.sources import Options, Source, ranges
from bridge.settings import Address
from tests.docs.page import Page
from tests.unit.mirror.monitored import BEGIN, batch, busy

OPTIONS = Options("kafka://user:hunter2@host:9092?password=hunter3", "s3a://key:hunter4@bucket/mirror")
LOOPBACK = Address("127.0.0.1", 0)
PAGE = Page("mirror-status.md")
TIMEOUT = 60


class Backend:
    """A source that only answers, or fails, when it is asked for its bounds."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.ends: Ranges = {}

    def moved(self, before: str | None, after: str) -> Ranges:
        return ranges.moved(ranges.read(before), ranges.read(after))

    def bounds(self) -> Ranges:
        if (error := self.answers.pop(0)) is not None:
            raise error
        return self.ends


class Started:
    """What Spark reports of a query."""

    def __init__(self, run: str) -> None:
        self.runId = run


def report(backend: Backend | None = None, *, log_batches: bool = False) -> Reporter:
    return Reporter(OPTIONS, cast("Source", backend or Backend()), log_batches=log_batches)


def reported(status_file: Path | None = None, metrics: Address | None = None) -> AbstractContextManager[Reporter]:
    source = cast("Source", Backend())
    return reporting(OPTIONS, source, status_file=status_file, metrics=metrics, show="quiet")


def start(reporter: Reporter, run: str = "run") -> None:
    reporter.onQueryStarted(cast("QueryStartedEvent", Started(run)))


def until(condition: Callable[[], bool]) -> None:
    over = threading.Event()
    timer = threading.Timer(TIMEOUT, over.set)
    timer.start()
    while not condition():
        assert not over.wait(0.002)
    timer.cancel()


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "bridge.mirror")
    return caplog


def test_what_needs_attention_is_logged_and_the_page_explains_every_line(caplog: pytest.LogCaptureFixture) -> None:
    reporter = report()
    start(reporter)
    reporter.activity("starting Spark")
    reporter.committed(batch(1, {"data": 5}))
    assert messages(caplog) == []
    gaps = (Gap("orders/0", 10, 20), Gap("x", 5, None))
    reporter.committed(batch(2, {"data": 5, "quarantine": 3}, gaps))
    assert (vars(caplog.records[0])["rows"], vars(caplog.records[0])["commit"]) == (3, "commit 2")
    assert vars(caplog.records[1])["gaps"] == "orders/0 from 10 to 19; x from 5 on"
    reporter.unavailable("refused")
    reporter.unavailable("refused again")
    reporter.available()
    reporter.available()
    reporter.unavailable("s3a://lake cannot be reached", "storage")
    reporter.available()
    start(reporter, "again")
    reporter.unmirrored({})
    reporter.unmirrored({"b": "old", "a": "full"})
    assert vars(caplog.records[-1])["first"] == "a: full; b: old"
    assert messages(caplog) == [
        "records could not be read; they are in quarantine",
        "offsets were dropped before they could be read",
        "the backend is not ready",
        "the backend is ready",
        "the storage is not ready",
        "the storage is ready",
        "the query runs again",
        "destinations are not mirrored",
    ]
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert set(messages(caplog)) < {row[0].strip("`") for row in PAGE.table("Logs")}


def test_without_a_terminal_the_start_and_each_batch_are_lines(caplog: pytest.LogCaptureFixture) -> None:
    reporter = report(log_batches=True)
    for _ in range(2):  # an idle mirror goes from one to the other without an end
        reporter.activity("looking for new messages")
        reporter.activity("waiting for new messages")
    reporter.committed(batch(1, {"data": 5, "dead-letters": 2}))
    reporter.activity("reading and writing a batch")
    assert reporter.status.activity == "reading and writing a batch"
    assert messages(caplog) == ["looking for new messages", "waiting for new messages", "a batch is mirrored"]
    fields = vars(caplog.records[2])
    assert (fields["rows_data"], fields["rows_dead_letters"], fields["bytes"], fields["files"]) == (5, 2, 350_000, 4)
    assert (fields["stage_ms"], fields["commit_ms"]) == (1800, 12)


def test_the_status_file_follows_and_says_why_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "status.json"

    def job(error: BaseException) -> None:
        with reported(path) as reporter:
            assert json.loads(path.read_text())["state"] == "starting"
            reporter.committed(batch(1, {"data": 7}))
            until(lambda: json.loads(path.read_text())["messages"] == 7)
            raise error

    with pytest.raises(RuntimeError):
        job(RuntimeError("Traceback (most recent call last):\n  File x\nValueError: bad\n\tat java"))
    document = json.loads(path.read_text())
    assert (document["state"], document["reason"]) == ("stopped", "ValueError: bad")
    assert "hunter" not in path.read_text()
    with pytest.raises(KeyboardInterrupt):
        job(KeyboardInterrupt())
    assert json.loads(path.read_text())["reason"] is None


def test_a_status_file_that_fails_later_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_STATUS_EVERY", 0.001)
    with pytest.raises(CannotStart, match=r"^the status file /.*/none/status.json cannot be written: No such file"):
        reported(tmp_path / "none" / "status.json").__enter__()
    path = tmp_path / "folder" / "status.json"
    path.parent.mkdir()
    with reported(path) as reporter:
        path.parent.rename(tmp_path / "moved")
        until(lambda: bool(caplog.records))
        documents, make = [], reporter.document

        def document() -> str:
            documents.append(make())
            return documents[-1]

        monkeypatch.setattr(reporter, "document", document)
        until(lambda: len(documents) > 2)
        path.parent.mkdir()
        reporter.committed(batch(2, {"data": 7}))
    assert json.loads(path.read_text())["messages"] == 7
    assert messages(caplog) == ["the status file cannot be written"]


def test_the_port_serves_its_pages_and_survives_its_clients(caplog: pytest.LogCaptureFixture) -> None:
    with reported(metrics=LOOPBACK) as reporter, httpx.Client(base_url=f"http://{reporter.address}") as client:
        assert (client.get("/livez").text, client.get("/readyz").status_code) == ("alive\n", 503)
        start(reporter)
        ready = client.get("/readyz?query=is&not=read")
        assert (ready.status_code, ready.text, ready.headers["server"]) == (200, "ready\n", "oms-bridge")
        reporter.committed(batch(1, {"data": 7}))
        families = {family.name: family for family in text_string_to_metric_families(client.get("/metrics").text)}
        assert families["oms_mirror_rows"].samples[0].value == 7
        counts = {
            sample.labels.get("phase"): sample.value for sample in families["oms_mirror_batch_duration_seconds"].samples
        }
        assert set(counts) == {"stage", "commit"}
        assert client.get("/status").json()["messages"] == 7
        head = client.head("/livez")
        assert (head.text, head.headers["content-length"]) == ("", "6")
        assert [client.get(path).status_code for path in ("/", "//livez/../../etc/passwd")] == [404, 404]
        assert client.post("/livez").status_code == 501
        assert reporter.address is not None
        for garbage in (b"\x16\x03\x01\r\n\r\n", b"GET " + b"a" * 100_000, b"GET http://[ HTTP/1.1\r\n\r\n"):
            # a connection that is closed before all was read is reset
            with socket.create_connection(reporter.address) as peer, suppress(OSError):
                peer.sendall(garbage)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(4096):
                    pass
        with socket.create_connection(reporter.address) as peer:
            peer.sendall(b"GET /livez")
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # it closes with a reset
        assert client.get("/livez").status_code == 200
        client.close()
        until(lambda: not any("process_request" in thread.name for thread in threading.enumerate()))
        with pytest.raises(CannotStart, match="cannot listen on"):
            reported(metrics=reporter.address).__enter__()
    assert caplog.records == []
    assert "oms-mirror-port" not in {thread.name for thread in threading.enumerate()}


def scraped(status: Status) -> dict[str, Metric]:
    metrics, seconds = registry(status)
    seconds.labels("stage").observe(1.8)
    return {family.name: family for family in text_string_to_metric_families(generate_latest(metrics).decode())}


def test_the_page_lists_every_metric_and_unknown_ones_are_absent() -> None:
    rows = re.findall(r"^\| (`(?:oms|process)_[^|]+) \| (\w+) \|", PAGE.section("Metrics"), re.MULTILINE)
    listed = [(name, kind) for names, kind in rows for name in re.findall(r"`(\w+)`", names)]
    suffix = {"counter": "_total"}
    found = scraped(busy())
    kinds = [(family.name + suffix.get(family.type, ""), family.type) for family in found.values()]
    assert sorted(listed) == sorted(kinds)
    values = {name: family.samples[0].value for name, family in found.items()}
    assert values["oms_mirror_rows"] == 678_975
    assert values["oms_mirror_lag_rows"] == 118_000
    assert values["oms_mirror_lag_seconds"] >= 0
    assert values["oms_mirror_up"] == 1
    named = set(re.findall(r"oms_mirror_\w+", PAGE.section("Alerts")))
    assert named
    assert named <= {sample.name for family in found.values() for sample in family.samples}
    unknown = {f"oms_mirror_lag_{name}" for name in ("seconds", "rows", "rows_max", "logs")}
    unknown.add("oms_mirror_last_commit_timestamp_seconds")
    assert found.keys() - scraped(Status("memory://", "/srv", BEGIN)).keys() == unknown


def test_the_backend_is_probed_while_no_rows_come(caplog: pytest.LogCaptureFixture) -> None:
    backend = Backend(None, BackendUnavailable("refused"), CannotStart("wrong password"), ZeroDivisionError(), None)
    reporter = report(backend)
    reporter.probe()
    assert len(backend.answers) == 5  # it is not asked before the start, unless it was unreachable
    reporter.unavailable("refused")
    reporter.probe()
    assert (reporter.status.state, reporter.status.reason) == ("starting", None)
    caplog.clear()
    start(reporter)
    reporter.probe()
    assert len(backend.answers) == 4  # it is not asked when rows came
    reporter.status.last_rows = datetime(2020, 1, 1, tzinfo=UTC)
    for reason in ("refused", "wrong password", "wrong password"):
        reporter.probe()
        assert (reporter.status.state, reporter.status.reason) == ("waiting", reason)
    reporter.probe()
    assert (reporter.status.state, backend.answers) == ("running", [])
    assert messages(caplog) == ["the backend is not ready", "the probe of the backend failed", "the backend is ready"]


def test_the_lag_is_known_before_the_first_batch() -> None:
    backend = Backend(None)
    backend.ends = {"a": (2, 9), "b": (0, 4), "c": (5, 5)}
    reporter = report(backend)
    reporter.began(Record(covered={"a": (0, 3), "b": (0, 4)}, written=1_500_000_000_000))
    until(lambda: reporter.status.lag["rows"] == 6)
    assert reporter.status.lag == {"rows": 6, "logs": 1, "worst": [{"log": "a", "rows": 6}]}
    document = json.loads(reporter.document())
    assert document["lag"]["seconds"] > 9 * 365 * 86_400  # since 2017
    assert document["last_commit"] is None


def test_work_is_repeated_until_its_block_ends() -> None:
    calls = threading.Semaphore(0)
    with module._repeating("repeated", 0.001, calls.release):
        for _ in range(3):
            assert calls.acquire(timeout=TIMEOUT)
    until(lambda: "repeated" not in {thread.name for thread in threading.enumerate()})


def test_the_lag_is_what_lies_between_two_offsets(subtests: pytest.Subtests) -> None:
    end = json.dumps({"a": [0, 5, 5], "b": [2, 9, 9], "c": [0, 7, 7]})
    cases = [
        (end, json.dumps({"a": [0, 8, 8], "b": [2, 9, 9], "c": [0, 6, 6], "new": [0, 4, 4]}), {"a": 3, "new": 4}),
        (end, json.dumps({"a": [0, 8, 8], "last_error": "connection refused"}), {"a": 3}),
        ("{}", "None", None),
        ("None", '{"a": [0, 5, 5]}', None),
        (end, "{}", None),
        (end, '{"last_error": "x"}', None),
    ]
    for first, latest, expected in cases:
        with subtests.test(end=first, latest=latest):
            assert lag(SourceProgress("", "", first, latest, 0, 0.0, 0.0, {}), Backend().moved) == expected

    def of_kafka(_: str | None, after: str) -> Ranges:
        assert json.loads(after) == {"last_error": {"0": 3}}  # a topic of that name
        return {"trouble/0": (1, 3), "trouble/1": (4, 4), "trouble/2": (5, 2)}

    topic = SourceProgress("", "", '{"last_error":{"0":1}}', '{"last_error":{"0":3}}', 0, 0.0, 0.0, {})
    assert lag(topic, of_kafka) == {"trouble/0": 2}


def test_the_sentence_of_an_exception() -> None:
    assert sentence("it is full\n\tat org.apache.spark") == "it is full"
    trace = "said: Traceback (most recent call last):\n  File x\n    y\nValueError: bad\nmore\n\n\tat a"
    assert sentence(trace) == "ValueError: bad"
    assert sentence("x" * 1000) == "x" * 500
    assert sentence("") == ""
