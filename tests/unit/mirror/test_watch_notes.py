import logging

import pytest

from bridge.mirror.manifest import Gap
from bridge.mirror.watch.events import Event, OutageBegan, OutageEnded, Progressed, Started, Stopped, Unmirrored
from bridge.mirror.watch.notes import note
from bridge.mirror.watch.state import State, after
from tests.docs.page import Page
from tests.unit.mirror.watched import BEGIN, batch

AWAY = OutageBegan("refused", BEGIN)


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "bridge.mirror")
    return caplog


def noted(caplog: pytest.LogCaptureFixture, *events: Event, batches: bool = False) -> list[str]:
    state = State(BEGIN)
    for event in events:
        before, state = state, after(state, event)
        note(event, before, state, batches=batches)
    return [record.getMessage() for record in caplog.records]


def test_a_batch_is_a_line_where_nothing_else_shows_it(caplog: pytest.LogCaptureFixture) -> None:
    assert noted(caplog, batch(1, {"data": 5})) == []
    assert noted(caplog, batch(1, {"data": 5, "dead-letters": 2}), batches=True) == ["a batch is mirrored"]
    fields = vars(caplog.records[0])
    assert fields["manifest"] == "manifests/q/000000000001.json"
    assert (fields["rows_data"], fields["rows_dead_letters"], fields["bytes"], fields["files"]) == (5, 2, 350_000, 4)
    assert (fields["stage_ms"], fields["commit_ms"], fields["publish_ms"]) == (1800, 12, 240)


def test_what_needs_an_eye_is_always_logged(caplog: pytest.LogCaptureFixture) -> None:
    gaps = (Gap("orders/0", 10, 20), Gap("x", 5, None))
    assert noted(caplog, batch(1, {"data": 5, "quarantine": 3}, gaps)) == [
        "records could not be read; they are in quarantine",
        "offsets were gone before they could be read",
    ]
    assert vars(caplog.records[0])["rows"] == 3
    assert vars(caplog.records[1])["gaps"] == "orders/0 from 10 to 19; x from 5 on"
    assert {record.levelname for record in caplog.records} == {"WARNING"}


@pytest.mark.parametrize("end", [OutageEnded(BEGIN), Progressed(1, 1, None, BEGIN)])
def test_an_outage_is_two_lines(caplog: pytest.LogCaptureFixture, end: Event) -> None:
    started = Started("run", BEGIN)
    lines = noted(caplog, started, AWAY, OutageBegan("refused again", BEGIN), Progressed(0, 1, None, BEGIN), end, end)
    assert lines == ["the backend is not ready", "the backend is ready"]
    assert vars(caplog.records[0])["reason"] == "refused"


def test_a_restart_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    assert noted(caplog, Started("1", BEGIN), Started("2", BEGIN)) == ["the query runs again"]


def test_an_end_is_none_the_command_says_it(caplog: pytest.LogCaptureFixture) -> None:
    assert noted(caplog, Started("1", BEGIN), AWAY, Stopped("disk full", BEGIN)) == ["the backend is not ready"]


def test_destinations_that_are_not_mirrored_are_named_when_they_change(caplog: pytest.LogCaptureFixture) -> None:
    two = {"b": "old", "a": "full"}
    events = [Unmirrored({}), Unmirrored(two), Unmirrored({**two}), Unmirrored({"a": "old"}), Unmirrored({})]
    assert noted(caplog, *events) == ["destinations are not mirrored"] * 2
    assert [vars(record)["first"] for record in caplog.records] == ["a: full; b: old", "a: old"]


def test_the_page_explains_every_line(caplog: pytest.LogCaptureFixture) -> None:
    explained = {row[0].strip("`") for row in Page("mirror-status.md").table("Logs")}
    noisy = batch(1, {"data": 5, "quarantine": 3}, (Gap("orders/0", 10, 20),))
    noted(
        caplog,
        Started("1", BEGIN),
        noisy,
        AWAY,
        OutageEnded(BEGIN),
        Unmirrored({"a": "old"}),
        Started("2", 1),
        batches=True,
    )
    assert len(caplog.records) == 7
    assert {record.getMessage() for record in caplog.records} < explained
