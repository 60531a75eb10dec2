"""Which topics the Kafka source mirrors, how it plans around deleted ones, and which errors end the job."""

import re
from pathlib import Path
from typing import Any

import pytest
from kafka import errors as kafka
from pyspark.sql.streaming.datasource import ReadMaxRows

from adapters.kafka.errors import no_connection
from adapters.kafka.names import Own
from adapters.kafka.options import parse
from bridge.errors import BackendUnavailable, CannotStart, Refused
from bridge.mirror.offsets import Gap
from bridge.mirror.sources import OnDataLoss, Options, ranges
from bridge.mirror.sources import kafka as source
from bridge.mirror.sources.kafka import Bounds, KafkaSource, Topic, _check_deleted, _KafkaReader, described, pattern
from bridge.mirror.sources.range_source import DataLost, ReaderOptions

URL = "kafka://127.0.0.1:9092"


class Planner:
    """A reader over brokers that keep `bounds`; remembers its offset as Spark does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, loss: OnDataLoss = "record") -> None:
        self.reader = _KafkaReader(ReaderOptions(Options(URL, "out", on_data_loss=loss), {}, 2))
        self.offset: dict[str, Any] = {}
        monkeypatch.setattr(source, "read_bounds", lambda *_: self.kept)

    def plan(self, *topics: tuple[str, str, int, int]) -> tuple[dict[str, tuple[int, int]], list[Gap]]:
        """Return ranges and gaps of the next batch; a topic is its name, id, first offset and end."""
        kept = {f"{name}/0": (first, end) for name, _, first, end in topics}
        self.kept = Bounds(tuple(Topic(name, key, 1) for name, key, _, _ in topics), kept)
        before = ranges.from_json(self.offset)
        self.offset = self.reader.latestOffset(self.offset, ReadMaxRows(1000))
        after = ranges.from_json(self.offset)
        return dict(ranges.moved(before, after)), ranges.gaps(before, after)


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> Planner:
    return Planner(monkeypatch)


def test_a_topic_whose_offsets_went_back_begins_anew(planner: Planner) -> None:
    assert planner.plan(("a", "1", 0, 50), ("b", "1", 0, 5)) == ({"a/0": (0, 50), "b/0": (0, 5)}, [])
    assert planner.plan(("a", "1", 0, 5), ("b", "1", 0, 6)) == ({"b/0": (5, 6)}, [Gap("a/0", 50, None)])
    assert planner.plan(("a", "1", 0, 5), ("b", "1", 0, 6)) == ({"a/0": (0, 5)}, [])


def test_a_topic_with_another_id_begins_anew_although_it_is_longer(planner: Planner) -> None:
    planner.plan(("a", "1", 0, 50))
    assert planner.plan(("a", "2", 0, 60)) == ({}, [Gap("a/0", 50, None)])
    assert planner.plan(("a", "2", 0, 60)) == ({"a/0": (0, 60)}, [])
    assert planner.plan(("a", "2", 0, 61)) == ({"a/0": (60, 61)}, [])


def test_a_topic_that_is_gone_and_one_that_comes_again(planner: Planner) -> None:
    planner.plan(("a", "1", 0, 50), ("b", "1", 0, 5))
    assert planner.plan(("b", "1", 0, 5)) == ({}, [Gap("a/0", 50, None)])
    assert planner.plan(("a", "2", 0, 3), ("b", "1", 0, 5)) == ({"a/0": (0, 3)}, [])


def test_a_topic_that_is_only_not_listed_is_not_gone() -> None:
    gone = {"name": "a", "error_code": 3}
    _check_deleted([gone, gone])
    with pytest.raises(CannotStart, match="may no longer describe the topic b, which is mirrored"):
        _check_deleted([gone, {"name": "b", "error_code": 29}])
    for code in (0, 5):  # it is there; it has no leader
        with pytest.raises(BackendUnavailable, match="does not list the topic b now"):
            _check_deleted([gone, {"name": "b", "error_code": code}])


def test_nothing_new_is_the_same_offset(planner: Planner) -> None:
    planner.plan(("a", "1", 0, 50))
    before = planner.offset
    assert planner.plan(("a", "1", 7, 50)) == ({}, [])
    assert planner.offset == before


def test_a_recreated_topic_stops_the_job_if_losses_shall(monkeypatch: pytest.MonkeyPatch) -> None:
    planner = Planner(monkeypatch, "fail")
    planner.plan(("a", "1", 0, 50))
    with pytest.raises(DataLost, match="a/0 from 50 on"):
        planner.plan(("a", "1", 0, 5))


def test_which_errors_only_an_operator_can_change() -> None:
    options = parse(URL)
    refused = no_connection(options, kafka.SaslAuthenticationFailedError("no"))
    untrusted = no_connection(options, kafka.KafkaConnectionError("Handshake failed: certificate verify failed"))
    for error in (refused, untrusted, Refused("no permission"), kafka.TopicAuthorizationFailedError({"t"})):
        assert isinstance(described(error), CannotStart), error
    away = no_connection(options, kafka.KafkaConnectionError("ECONNREFUSED"))
    for error in (away, kafka.KafkaTimeoutError(), OSError("x"), kafka.UnknownTopicOrPartitionError()):
        assert isinstance(described(error), BackendUnavailable), error


def test_a_url_that_is_none_is_told() -> None:
    with pytest.raises(CannotStart, match="is not host:port"):
        KafkaSource(Options("kafka://nowhere", "out"))


def test_a_file_that_is_no_certificate_ends_the_start(tmp_path: Path) -> None:
    none = tmp_path / "none.pem"
    none.write_text("no certificate")
    with pytest.raises(CannotStart, match=r"ca: .*none\.pem holds no certificates"):
        KafkaSource(Options(f"{URL}?tls=true&ca={none}", "out"))


def test_which_topics_are_mirrored(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, bool]] = [
        ("orders", True),
        ("orders.dlq", True),
        ("orders.oms-hi", True),
        ("_schemas", True),
        ("mine-x", True),
        ("mine-delayed", True),
        ("mine-notes-of-ours", True),
        ("x__y", True),
        ("__consumer_offsets", False),
        ("oms.delay.8s", False),
        ("oms.notes", False),
        ("mine-notes", False),
        ("mine-delay.8s", False),
        ("mine-delay.due", False),
    ]
    for topic, mirrored in cases:
        with subtests.test(topic=topic, mirrored=mirrored):
            assert (re.fullmatch(pattern(Own("mine-")), topic) is not None) is mirrored
