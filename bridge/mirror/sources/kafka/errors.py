"""What Spark's connector and Java's client say when a query ends, and what it means. Pure.

The patterns are of Spark 4.2 and of its kafka-clients 3.9.
"""

import re
from typing import Final

from bridge.errors import BackendUnavailable

_PART: Final = r"(?P<topic>\S+)-(?P<number>\d+)"
_PARTITION: Final = "Kafka's topic {topic}, partition {number}"
_RECORD: Final = "--on-data-loss record records the gap and continues."
_DELETED: Final = (
    f"Kafka's partitions {{parts}} were deleted, possibly before the mirror had read all of them; {_RECORD}"
)
_INVALID_TIMESTAMP: Final = (
    r"Record at topic (?P<topic>\S+) partition (?P<number>\d+) offset (?P<offset>\d+)"
    r" has timestamp value (?P<time>-?\d+)"
)

_SENTENCES: Final = {
    rf"Could not read records in offset \[(?P<start>\d+), (?P<end>\d+)\) for topic partition {_PART}": (
        f"{_PARTITION}: some of the offsets {{start}} to {{last}} were dropped before the mirror read them; {_RECORD}"
    ),
    rf"Added partition {_PART} starts from (?P<end>\d+) instead of 0": (
        f"{_PARTITION}: the offsets 0 to {{last}} were dropped before the mirror read them; {_RECORD}"
    ),
    rf"Starting offset for {_PART} was (?P<start>\d+) but consumer reset to (?P<found>\d+)": (
        f"{_PARTITION}: offset {{start}} was expected, and {{found}} was read; {_RECORD}"
    ),
    rf"Partition {_PART} offset was changed from (?P<start>\d+) to (?P<end>\d+)": (
        f"{_PARTITION}: offset {{start}} was expected, and it ends at {{end}}: it was recreated, or lost its last "
        f"records; {_RECORD}"
    ),
    r"Partitions \w*\((?P<parts>[^)]+)\) have been deleted": _DELETED,
    r"Cannot find initial offsets for partitions \w*\((?P<parts>[^)]+)\)": _DELETED,
    _INVALID_TIMESTAMP: (
        f"{_PARTITION}: the record at offset {{offset}} has the timestamp {{time}}, which is not a time in "
        "milliseconds, and Spark's connector cannot read it."
    ),
    r"Not authorized to access topics: \[(?P<topics>[^\]]+)\]": (
        "The mirror has no permission to read {topics} in Kafka: it needs Describe and Read on its topics."
    ),
    r"SaslAuthenticationException": "Kafka refuses the login of the mirror: a wrong user, password or mechanism.",
    r"SslAuthenticationException": (
        "The TLS handshake with Kafka failed: one side does not trust the certificate of the other."
    ),
}
"""A pattern of the error, and the operator's sentence with its groups; `last` is the offset before `end`."""

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
    for pattern, sentence in _SENTENCES.items():
        if found := re.search(pattern, text):
            return sentence.format(**found.groupdict(), last=int(found.groupdict().get("end", 0)) - 1)
    return None


def unreadable(error: BaseException) -> bool:
    """Whether it was one record's timestamp that ended a batch: the connector has no way past it."""
    return re.search(_INVALID_TIMESTAMP, str(error)) is not None


def outage(error: BaseException) -> bool:
    """Whether it is an outage: the same query is started again later."""
    if isinstance(error, BackendUnavailable):
        return True
    return explain(error) is None and _TRANSIENT.search(str(error)) is not None
