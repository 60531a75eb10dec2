"""A record on its way through delay topics: what it will be, and where and when, travels in headers of its own."""

from typing import Final, NamedTuple

from adapters.kafka.headers import DUE, PARTITION, STORED, TOPIC
from adapters.kafka.record import Outgoing, Part, Record

_OURS: Final = frozenset((DUE, TOPIC, PARTITION))
_DIGITS_MAX: Final = 19


class Waiting(NamedTuple):
    """What a record of a delay topic says about itself."""

    final: Part
    due: int
    """Milliseconds since 1970."""


def to_delayed(outgoing: Outgoing, due: int, part: Part) -> Outgoing:
    """Turn a record for its destination into one for a partition of a delay topic.

    Its storeTimestamp goes into a header, as the record's own timestamp will be when it is forwarded.
    """
    headers = [
        *outgoing.headers,
        (STORED, b"%d" % outgoing.timestamp),
        (DUE, b"%d" % due),
        (TOPIC, outgoing.topic.encode()),
        (PARTITION, b"%d" % outgoing.partition),
    ]
    return Outgoing(part.topic, part.partition, outgoing.timestamp, outgoing.key, outgoing.value, headers)


def waiting_of(record: Record) -> Waiting | None:
    """Read where a record of a delay topic goes and when; None: the bridge did not write it."""
    found = dict(record.headers)
    due, topic, partition = found.get(DUE, b""), found.get(TOPIC, b""), found.get(PARTITION, b"")
    if not (_is_number(due) and _is_number(partition) and topic):
        return None
    try:
        return Waiting(Part(topic.decode(), int(partition)), int(due))
    except UnicodeDecodeError:
        return None


def onward(record: Record, part: Part, now: int) -> Outgoing:
    """Move a record on to a partition of another level; `now` becomes its timestamp, from which it stays there."""
    return Outgoing(part.topic, part.partition, now, record.key, record.value or b"", record.headers)


def from_delayed(record: Record, final: Part, now: int) -> Outgoing:
    """Turn a record of a delay topic into the one for its destination; `now` becomes its timestamp."""
    headers = [header for header in record.headers if header[0] not in _OURS]
    return Outgoing(final.topic, final.partition, now, record.key, record.value or b"", headers)


def _is_number(raw: bytes) -> bool:
    return raw.isdigit() and len(raw) <= _DIGITS_MAX
