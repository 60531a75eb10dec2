"""What Spark's connector and Java's client say when a query ends, and what it means. Pure."""

import re
from collections.abc import Callable
from typing import Final

from bridge.errors import BackendUnavailable

_PART: Final = r"(\S+)-(\d+)"
_RECORD: Final = "--on-data-loss record records the gap and continues."

_INVALID_TIMESTAMP: Final = re.compile(
    r"Record at topic (\S+) partition (\d+) offset (\d+) has timestamp value (-?\d+)"
)

_Sentence = Callable[..., str]


def _partition(topic: str, number: str) -> str:
    return f"Kafka's topic {topic}, partition {number}"


def _unread(start: str, end: str, topic: str, number: str) -> str:
    lost = f"some of the offsets {start} to {int(end) - 1} were dropped before the mirror read them"
    return f"{_partition(topic, number)}: {lost}; {_RECORD}"


def _starts_late(topic: str, number: str, first: str) -> str:
    lost = f"the offsets 0 to {int(first) - 1} were dropped before the mirror read them"
    return f"{_partition(topic, number)}: {lost}; {_RECORD}"


def _reset(topic: str, number: str, wanted: str, found: str) -> str:
    return f"{_partition(topic, number)}: offset {wanted} was expected, and {found} was read; {_RECORD}"


def _went_back(topic: str, number: str, wanted: str, end: str) -> str:
    lost = f"offset {wanted} was expected, and it ends at {end}: it was recreated, or lost its last records"
    return f"{_partition(topic, number)}: {lost}; {_RECORD}"


def _deleted(parts: str) -> str:
    return f"Kafka's partitions {parts} were deleted, possibly before the mirror had read all of them; {_RECORD}"


def _invalid_timestamp(topic: str, number: str, offset: str, time: str) -> str:
    wrong = f"the record at offset {offset} has the timestamp {time}, which is not a time in milliseconds"
    return f"{_partition(topic, number)}: {wrong}, and Spark's connector cannot read it."


def _not_authorized(topics: str) -> str:
    return f"The mirror has no permission to read {topics} in Kafka: it needs Describe and Read on its topics."


_SENTENCES: Final[tuple[tuple[re.Pattern[str], _Sentence], ...]] = (
    (re.compile(rf"Could not read records in offset \[(\d+), (\d+)\) for topic partition {_PART}"), _unread),
    (re.compile(rf"Added partition {_PART} starts from (\d+) instead of 0"), _starts_late),
    (re.compile(rf"Starting offset for {_PART} was (\d+) but consumer reset to (\d+)"), _reset),
    (re.compile(rf"Partition {_PART} offset was changed from (\d+) to (\d+)"), _went_back),
    (re.compile(r"Partitions \w*\(([^)]+)\) have been deleted"), _deleted),
    (re.compile(r"Cannot find initial offsets for partitions \w*\(([^)]+)\)"), _deleted),
    (_INVALID_TIMESTAMP, _invalid_timestamp),
    (re.compile(r"Not authorized to access topics: \[([^\]]+)\]"), _not_authorized),
    (
        re.compile(r"SaslAuthenticationException"),
        lambda: "Kafka refuses the login of the mirror: a wrong user, password or mechanism.",
    ),
    (
        re.compile(r"SslAuthenticationException"),
        lambda: "The TLS handshake with Kafka failed: one side does not trust the certificate of the other.",
    ),
)
"""In the words of Spark 4.2 and of its kafka-clients 3.9."""

_TRANSIENT: Final = re.compile(
    r"(?:Timeout|Disconnect|Network|NotLeaderOrFollower|LeaderNotAvailable|UnknownTopicOrPartition|UnknownTopicId"
    r"|KafkaStorage|FencedLeaderEpoch|UnknownLeaderEpoch)Exception"
    r"|No resolvable bootstrap urls"
    r"|The error could be transient"
    r"|Partitions specified for Kafka start offsets don't match what are assigned"  # a topic came or went just then
)


def explain(error: BaseException) -> str | None:
    """Return a sentence for an operator; None: nothing that is known, or an outage."""
    text = str(error)
    found = ((pattern.search(text), sentence) for pattern, sentence in _SENTENCES)
    return next((sentence(*match.groups()) for match, sentence in found if match), None)


def unreadable(error: BaseException) -> bool:
    """Whether it was one record's timestamp that ended a batch: the connector has no way past it."""
    return _INVALID_TIMESTAMP.search(str(error)) is not None


def outage(error: BaseException) -> bool:
    """Whether it is an outage: the same query is started again later."""
    if isinstance(error, BackendUnavailable):
        return True
    return explain(error) is None and _TRANSIENT.search(str(error)) is not None
