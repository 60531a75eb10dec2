"""Records to Kafka and from it, the same for every client library."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Headers = Sequence[tuple[str, bytes]]
"""In order, names may repeat. A header whose value is null in Kafka is kept as empty."""


class Part(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class Record(NamedTuple):
    """A record as it was fetched."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970, by the producer's clock or the broker's as the topic is configured."""
    key: bytes | None
    value: bytes | None
    headers: Headers


def fetched(found: Any) -> Record:  # noqa: ANN401 - kafka-python's, which has no type
    """Return a record of kafka-python's consumer."""
    headers = found.headers
    for _, value in headers:  # without a generator: this is done for each record
        if value is None:
            headers = [(name, value or b"") for name, value in headers]
            break
    return Record(found.topic, found.partition, found.offset, found.timestamp, found.key, found.value, headers)


class Outgoing(NamedTuple):
    """A record to be written."""

    topic: str
    partition: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    """None: the end of a key in a compacted topic. A message always has a body."""
    headers: Headers


class Commit(NamedTuple):
    """The commit of a group for one partition."""

    offset: int
    """Of the first record that is not settled."""
    metadata: str
    """The settled offsets beyond it, by `commit_metadata`; the text of another tool is ignored."""


Commits = Mapping[Part, Commit]
