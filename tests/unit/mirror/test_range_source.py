"""What the sources in Python have in common, without a Spark: policies, outages, what is said of them."""

import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from bridge.errors import BackendUnavailable
from bridge.mirror.offsets import Gap, Ranges
from bridge.mirror.sources import OnDataLoss, Options, ranges
from bridge.mirror.sources.range_source import LAST_ERROR, DataLost, RangeReader, ReaderOptions, Source, Splits
from bridge.mirror.sources.ranges import Split

ALL = ReadAllAvailable()


class Shelf(RangeReader):
    """Logs in memory."""

    backend = "shelf"

    def __init__(self, on_data_loss: OnDataLoss = "fail", start: dict[str, int] | None = None) -> None:
        super().__init__(
            ReaderOptions(Options("memory://", "/out", on_data_loss=on_data_loss, rows=100), start or {}, 2)
        )
        self.logs: dict[str, tuple[int, int]] = {}
        self.away = False
        self.asked = 0
        self.stopped = 0

    def bounds(self) -> Ranges:
        self.asked += 1
        if self.away:
            raise BackendUnavailable("the shelf is away")
        return dict(self.logs)

    def stop(self) -> None:
        self.stopped += 1

    def read_splits(self, given: Splits) -> Iterator[pa.RecordBatch | Gap]:
        for log, start, end in given.splits:
            first = self.logs[log][0]
            if first > start:
                yield Gap(log, start, min(first, end))

    def destination_of(self, log: str, given: Splits) -> str:  # noqa: ARG002 - all logs are of one
        return "orders"


def wanted(shelf: Shelf, start: dict[str, object], end: dict[str, object]) -> list[Split]:
    found: list[Split] = []
    for partition in shelf.partitions(start, end):
        assert isinstance(partition, Splits)
        found += partition.splits
    return found


def test_options_travel_as_text() -> None:
    ask = ReaderOptions(Options("memory://", "/out", rows=7), {"a": 3}, 2)
    assert ReaderOptions.from_options(ask.to_options()) == ask


def test_a_batch_is_limited_as_the_options_say() -> None:
    shelf = Shelf(start={"a": 10})
    shelf.logs = {"a": (0, 500)}
    assert shelf.getDefaultReadLimit() == ReadMaxRows(100)
    after = shelf.latestOffset(shelf.initialOffset(), ReadMaxRows(100))
    assert after == {"a": [10, 110, 500]}
    assert wanted(shelf, {}, after) == [("a", 10, 110)]
    assert shelf.latestOffset(after, ALL) == {"a": [10, 500, 500]}


def test_an_outage_is_no_news_and_asked_about_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    shelf = Shelf()
    shelf.away = True
    start = {"a": [0, 4, 4]}
    for _ in range(200):
        assert shelf.latestOffset(start, ALL) == start
        now += 0.5
    assert shelf.asked == 8, "after 0, 1, 3, 7, 15, 31, 61 and 91 s"
    assert report_of(shelf) == ({}, "the shelf is away")
    shelf.away, now, shelf.logs = False, now + 31, {"a": (0, 9)}
    assert shelf.latestOffset(start, ALL) == {"a": [0, 9, 9]}
    assert report_of(shelf) == ({"a": (0, 9)}, None)


def report_of(shelf: Shelf) -> tuple[Ranges, str | None]:
    fields = shelf.reportLatestOffset()
    trouble = fields.pop(LAST_ERROR, None)
    return {log: (place.begin, place.next) for log, place in ranges.from_json(fields).items()}, trouble


def test_an_outage_does_not_pass_for_all_being_done() -> None:
    shelf = Shelf()
    shelf.logs = {"a": (0, 4)}
    shelf.prepareForTriggerAvailableNow()
    shelf.logs = {"a": (0, 9), "b": (0, 1)}
    assert shelf.latestOffset({}, ALL) == {"a": [0, 4, 4]}
    shelf.away = True
    with pytest.raises(BackendUnavailable):
        shelf.latestOffset({}, ALL)
    with pytest.raises(BackendUnavailable):
        shelf.prepareForTriggerAvailableNow()


def test_a_loss_ends_the_query_or_is_recorded() -> None:
    failing, recording = Shelf("fail"), Shelf("record")
    failing.logs = recording.logs = {"a": (7, 9)}
    with pytest.raises(DataLost, match=r"^a from 4 to 6$"):
        failing.latestOffset({"a": [0, 4, 4]}, ALL)
    after = recording.latestOffset({"a": [0, 4, 4]}, ALL)
    assert after == {"a": [0, 9, 9, 4, 7]}
    assert wanted(recording, {"a": [0, 4, 4]}, after) == [("a", 7, 9)]
    failing.logs = {}
    with pytest.raises(DataLost, match="a from 4 on"):
        failing.latestOffset({"a": [0, 4, 6]}, ALL)


def test_a_gap_with_nothing_behind_it_is_nothing_to_read() -> None:
    assert wanted(Shelf(), {"a": [0, 4, 4]}, {"a": [0, 7, 7, 4, 7], "b": [0, 9, 9, 9, None]}) == [("b", 0, 9)]


def test_what_went_after_it_was_planned_is_a_gap_or_an_error() -> None:
    failing, recording = Shelf("fail"), Shelf("record")
    failing.logs = recording.logs = {"a": (7, 9)}
    (partition,) = recording.partitions({}, {"a": [4, 9, 9]})
    (batch,) = recording.read(partition)
    assert recording.stopped == 1
    (row,) = batch.to_pylist()
    assert (row["area"], row["destination"], row["log"], row["offset"]) == ("gap", "orders", "a", 4)
    assert row["gap_end"] == 7
    assert row["error"] == "dropped before it was read: a from 4 to 6"
    with pytest.raises(DataLost):
        list(failing.read(partition))


TRACE = """[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_DATA_SOURCE_ERROR] ...
Traceback (most recent call last):
  File "x.py", line 3, in latestOffset
bridge.{}
SQLSTATE: 38000"""


def test_what_ended_a_query_is_told_apart() -> None:
    lost = Exception(TRACE.format("mirror.sources.reader.DataLost: a from 4 to 6"))
    away = Exception(TRACE.format("errors.BackendUnavailable: The bridge cannot be reached."))
    wrong = Exception(TRACE.format("errors.CannotStart: bridge: it is none."))
    other = Exception("something about BackendUnavailable: else")
    busy = Exception("[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back. SQLSTATE")
    assert [Source.outage(each) for each in (lost, away, busy, wrong, other)] == [False, True, True, False, False]
    assert Source.explain(wrong) == "bridge: it is none."
    assert [Source.explain(away), Source.explain(other)] == [None, None]
    told = Source.explain(lost)
    assert told is not None
    assert "a from 4 to 6" in told
    assert "--on-data-loss record" in told
