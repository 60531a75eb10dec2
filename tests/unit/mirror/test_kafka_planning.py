"""Which topics the Kafka source mirrors, how it plans around deleted ones, and which errors end the job."""

import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kafka import errors as kafka
from pyspark.sql.streaming.datasource import ReadMaxRows

from adapters.kafka.errors import no_connection
from adapters.kafka.names import Own
from adapters.kafka.options import parse
from bridge.errors import BackendUnavailable, CannotStart, Refused
from bridge.mirror.offsets import Gap
from bridge.mirror.sources import OnDataLoss, Options, ranges
from bridge.mirror.sources.kafka import source
from bridge.mirror.sources.kafka.source import KafkaSource, _KafkaReader
from bridge.mirror.sources.kafka.topics import check_deleted, described, pattern, topic_of
from bridge.mirror.sources.range_source import DataLost, ReaderOptions

URL = "kafka://127.0.0.1:9092"


class Planner:
    """A reader over brokers that keep `bounds`; remembers its offset as Spark does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, loss: OnDataLoss = "record") -> None:
        self.reader = _KafkaReader(ReaderOptions(Options(URL, "out", on_data_loss=loss), {}, 2))
        self.offset: dict[str, Any] = {}
        self.known: list[set[str]] = []
        monkeypatch.setattr(source, "read_bounds", self._bounds)

    def plan(self, limit: int = 1000, **logs: tuple[int, int]) -> tuple[dict[str, tuple[int, int]], list[Gap]]:
        """Return ranges and gaps of the next batch; `a_1` is the topic `a` with the id 1: first offset and end."""
        self._kept = {_log(name): pair for name, pair in logs.items()}
        before = ranges.from_json(self.offset)
        self.offset = self.reader.latestOffset(self.offset, ReadMaxRows(limit))
        after = ranges.from_json(self.offset)
        return dict(ranges.moved(before, after)), ranges.gaps(before, after)

    def _bounds(self, _: object, known: set[str]) -> dict[str, tuple[int, int]]:
        self.known.append(known)
        return self._kept


def _log(name: str) -> str:
    topic, key = name.split("_")
    return f"{key}/{topic}/0"


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> Planner:
    return Planner(monkeypatch)


def test_a_topic_with_another_id_is_another_log(planner: Planner) -> None:
    planner.plan(a_1=(0, 50))
    assert planner.plan(a_2=(0, 60)) == ({"2/a/0": (0, 60)}, [])
    assert planner.plan(a_2=(0, 61)) == ({"2/a/0": (60, 61)}, [])


def test_a_topic_that_is_gone_and_one_that_comes_again(planner: Planner) -> None:
    planner.plan(a_1=(0, 50), b_1=(0, 5))
    assert planner.plan(b_1=(0, 5)) == ({}, [])
    assert planner.plan(a_2=(0, 3), b_1=(0, 5)) == ({"2/a/0": (0, 3)}, [])
    assert planner.known == [set(), {"a", "b"}, {"b"}]


def test_a_topic_that_goes_before_it_was_read_is_a_gap(planner: Planner) -> None:
    assert planner.plan(10, a_1=(0, 50)) == ({"1/a/0": (0, 10)}, [])
    assert planner.plan(b_1=(0, 5)) == ({"1/b/0": (0, 5)}, [Gap("1/a/0", 10, None)])


def test_a_topic_that_is_only_not_listed_is_not_gone() -> None:
    gone = {"name": "a", "error_code": 3}
    check_deleted([gone, gone])
    with pytest.raises(CannotStart, match="may no longer describe the topic b, which is mirrored"):
        check_deleted([gone, {"name": "b", "error_code": 29}])
    for code in (0, 5):  # it is there; it has no leader
        with pytest.raises(BackendUnavailable, match="does not list the topic b now"):
            check_deleted([gone, {"name": "b", "error_code": code}])


def test_nothing_new_is_the_same_offset(planner: Planner) -> None:
    planner.plan(a_1=(0, 50))
    before = planner.offset
    assert planner.plan(a_1=(7, 50)) == ({}, [])
    assert planner.offset == before


def test_unread_messages_of_a_deleted_topic_stop_the_job_if_losses_shall(monkeypatch: pytest.MonkeyPatch) -> None:
    planner = Planner(monkeypatch, "fail")
    planner.plan(10, a_1=(0, 50))
    with pytest.raises(DataLost, match="1/a/0 from 10 on"):
        planner.plan(a_2=(0, 5))


def test_brokers_without_topic_ids_are_refused() -> None:
    for found in ({"name": "a", "partitions": []}, {"name": "a", "partitions": [], "topic_id": str(UUID(int=0))}):
        with pytest.raises(CannotStart, match=r"brokers of version 2\.8"):
            topic_of(found)


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
