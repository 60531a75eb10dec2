"""What Spark 4.2 said in experiments, and the operator's sentence."""

import re

import pytest

from adapters.kafka.names import Own
from bridge.errors import BackendUnavailable
from bridge.mirror.sources.kafka.errors import explain, outage
from bridge.mirror.sources.kafka.source import pattern

_LOST = """[STREAM_FAILED] Query [id = bbdd00cd] terminated with exception: Some data may have been lost because they
are not available in Kafka any more;
If you don't want your streaming query to fail on such cases, set the source option failOnDataLoss to false.
Reason: """


def test_lost_data_is_named(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        (
            "Could not read records in offset [50, 75) for topic partition my-orders-0\nwith consumer group s-1",
            "topic my-orders, partition 0: some of the offsets 50 to 74 were dropped",
        ),
        (
            "Added partition my-orders-12 starts from 10 instead of 0. SQLSTATE: XXKST",
            "topic my-orders, partition 12: the offsets 0 to 9 were dropped",
        ),
        (
            "Partition my-orders-0 offset was changed from 50 to 5.\nThis could be either",
            "topic my-orders, partition 0: offset 50 was expected, and it ends at 5",
        ),
        (
            "Starting offset for my-orders-0 was 5 but consumer reset to 7.",
            "topic my-orders, partition 0: offset 5 was expected, and 7 was read",
        ),
        ("Partitions Set(a-0, b-1) have been deleted. SQLSTATE", "partitions a-0, b-1 were deleted"),
        ("Partitions HashSet(a-0, b-1) have been deleted.", "partitions a-0, b-1 were deleted"),
        ("Cannot find initial offsets for partitions Set(a-0). They may", "partitions a-0 were deleted"),
    ]
    for reason, said in cases:
        with subtests.test(reason=reason, said=said):
            error = RuntimeError(_LOST + reason)
            sentence = explain(error)
            assert sentence is not None
            assert said in sentence
            assert "--on-data-loss record" in sentence
            assert not outage(error)


def test_a_record_that_spark_cannot_read_is_named() -> None:
    said = explain(
        RuntimeError(
            "Record at topic t partition 0 offset 2 has timestamp value 4611686018427387904 that overflows when"
        )
    )
    assert said is not None
    assert "topic t, partition 0: the record at offset 2 has the timestamp 4611686018427387904" in said


def test_what_only_an_operator_can_mend_is_no_outage(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        ("org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: [t]", "read t"),
        ("org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed", "refuses the login"),
        ("org.apache.kafka.common.errors.SslAuthenticationException: SSL handshake failed", "TLS handshake"),
    ]
    for text, said in cases:
        with subtests.test(text=text, said=said):
            assert said in str(explain(RuntimeError(text)))
            assert not outage(RuntimeError(text + "\nCaused by: org.apache.kafka.common.errors.TimeoutException"))


def test_what_passes_is_an_outage(subtests: pytest.Subtests) -> None:
    cases: list[str] = [
        "terminated with exception: org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node",
        "java.util.concurrent.TimeoutException: Cannot fetch record for offset 45 in 30000 milliseconds",
        "org.apache.kafka.common.KafkaException: No resolvable bootstrap urls given in bootstrap.servers",
        "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this",
        "Some of partitions in Kafka topic(s) have been lost. The error could be transient - restart your query",
    ]
    for text in cases:
        with subtests.test(text=text):
            assert outage(RuntimeError(text))
            assert explain(RuntimeError(text)) is None


def test_so_is_what_our_own_questions_meet() -> None:
    assert outage(BackendUnavailable("Kafka does not answer."))


def test_a_defect_is_neither() -> None:
    assert not outage(RuntimeError("KeyError: 'x'"))
    assert explain(RuntimeError("KeyError: 'x'")) is None


def test_which_topics_are_mirrored(subtests: pytest.Subtests) -> None:
    """The connector looks for the pattern anywhere in a name, as `search` does."""
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
            assert (re.search(pattern(Own("mine-")), topic) is not None) is mirrored
