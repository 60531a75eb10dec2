"""What can happen to a mirror, and the document that the status file, `/status` and its page hold."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.mirror.monitoring.reporter import READY_FOR, readiness
from bridge.mirror.monitoring.status import LISTED, WORST, Status, write
from bridge.mirror.offsets import Gap
from tests.docs.page import Page
from tests.unit.mirror.monitored import BEGIN, after, batch, busy

PAGE = Page("mirror-status.md")


def started(run: str = "run") -> Status:
    status = Status("memory://", "/srv/mirror", BEGIN)
    status.query_started(run, BEGIN)
    return status


def test_the_document_is_that_of_the_page() -> None:
    [shown] = re.findall(r"```json\n(.*?)```", PAGE.section("The status file"), re.DOTALL)
    document = json.loads(busy().to_json(after(105)))
    example = json.loads(shown)
    worst = document["lag"].pop("worst")
    assert worst[: len(example["lag"]["worst"])] == example["lag"].pop("worst")
    assert document == example
    named = {name for row in PAGE.table("The status file") for name in re.findall(r"`([a-z_]+)`", row[0])}
    assert named <= set(document)


def test_states_and_reasons(subtests: pytest.Subtests) -> None:
    cases: dict[str, tuple[list[Callable[[Status], None]], str, str | None]] = {
        "an outage": ([lambda s: s.unavailable("gone", BEGIN)], "waiting", "gone"),
        "an outage ends": ([lambda s: s.unavailable("gone", BEGIN), Status.available], "running", None),
        "rows end it": ([lambda s: s.unavailable("a", BEGIN), lambda s: s.triggered(1, 1, {}, BEGIN)], "running", None),
        "none do not": ([lambda s: s.unavailable("a", BEGIN), lambda s: s.triggered(0, 1, {}, BEGIN)], "waiting", "a"),
        "a query ends": ([lambda s: s.query_ended("run", "it broke")], "starting", "it broke"),
        "and the next starts": (
            [lambda s: s.query_ended("run", "it broke"), lambda s: s.query_started("2", BEGIN)],
            "running",
            None,
        ),
        "reported late": (
            [lambda s: s.query_started("2", BEGIN), lambda s: s.query_ended("run", "it broke")],
            "running",
            None,
        ),
        "waiting for the next query": (
            [lambda s: s.unavailable("a", BEGIN), lambda s: s.query_ended("run", "b"), Status.available],
            "starting",
            None,
        ),
        "stopped": ([lambda s: s.unavailable("gone", BEGIN), lambda s: s.stopped(None)], "stopped", None),
        "stopped by an error": ([lambda s: s.stopped("disk full")], "stopped", "disk full"),
    }
    for name, (transitions, state, reason) in cases.items():
        with subtests.test(msg=name):
            status = started()
            for transition in transitions:
                transition(status)
            assert (status.state, status.reason) == (state, reason)
            if state != "running":
                assert status.rows_per_second == 0


def test_rows_per_second_are_between_two_triggers_and_restarts_are_counted() -> None:
    status = started()
    status.committed(batch(1, {"data": 90, "quarantine": 10}))
    assert status.last_rows == after(10)
    status.triggered(200, 1, {}, after(4))
    assert (status.rows_per_second, status.last_rows) == (25, after(4))
    status.idle(after(5))
    assert (status.rows_per_second, status.last_rows) == (0, after(4))
    status.query_started("2", after(100))
    status.committed(batch(2, {"data": 50}))
    status.idle(after(102))
    assert (status.rows_per_second, status.restarts) == (25, 1)


def test_lists_are_bounded_and_unknown_lag_is_null() -> None:
    status = started()
    assert json.loads(status.to_json(BEGIN))["lag"] == {"rows": None, "logs": None, "seconds": None, "worst": []}
    names = [f"log {number:04}" for number in range(1000)]
    status.committed(batch(1, {}, tuple(Gap(name, 0, None) for name in names)))
    status.triggered(0, 1, dict(zip(names, range(1000), strict=True)), BEGIN)
    status.not_mirrored(dict.fromkeys(names, "why"))
    document = json.loads(status.to_json(BEGIN))
    assert (document["gap_count"], len(document["gaps"]), document["gaps"][-1]["log"]) == (1000, LISTED, names[-1])
    assert (document["unmirrored_count"], len(document["unmirrored"])) == (1000, LISTED)
    assert (document["lag"]["logs"], len(document["lag"]["worst"])) == (1000, WORST)
    assert document["lag"]["worst"][0] == {"log": names[-1], "rows": 999}


def test_the_lag_in_seconds_counts_from_when_the_mirror_was_whole() -> None:
    status = started()
    assert status.lag_seconds(after(5)) is None
    status.looked({"a": 3}, after(7))
    assert status.lag_seconds(after(9)) == 9  # a new mirror: from its start
    status.looked({}, after(20))
    assert status.lag_seconds(after(30)) == 0
    status.looked({"a": 3}, after(40))
    assert status.lag_seconds(after(50)) == 30
    status.looked({"a": 3, "b": 1}, after(50))
    assert status.lag_seconds(after(50.25)) == 30.2
    assert status.lag_seconds(after(10)) == 0  # a clock that was set back
    status.triggered(5, 2000, {}, after(60))
    status.triggered(0, 10, {"a": 1}, after(70))
    assert status.lag_seconds(after(70)) == 12  # that batch was planned two seconds before its end
    status.looked(None, after(80))
    assert status.lag_seconds(after(80)) is None


def test_a_job_that_goes_on_is_behind_since_the_last_commit() -> None:
    status = Status("memory://", "/srv/mirror", after(3600))
    status.began(after(100))
    status.looked({"a": 3}, after(3610))
    assert status.lag_seconds(after(3620)) == 3520
    status = Status("memory://", "/srv/mirror", after(3600))
    status.began(after(9000))  # the clock was set back
    status.looked({"a": 3}, after(3610))
    assert status.lag_seconds(after(3620)) == 20


def test_readiness_lasts_through_a_short_outage() -> None:
    status = started()
    assert readiness(status, BEGIN)[0] == 200
    status.unavailable("refused", BEGIN)
    assert readiness(status, after(READY_FOR - 1))[0] == 200
    assert readiness(status, after(READY_FOR)) == (503, "text/plain", b"not ready: the mirror is waiting: refused\n")
    status.stopped(None)
    assert readiness(status, BEGIN)[0] == 503


def test_a_file_that_cannot_be_replaced_is_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    write(path, "old")
    write(path, "new")
    assert path.read_text() == "new"
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        write(path, "")
    assert [entry.name for entry in tmp_path.iterdir()] == ["status.json"]
