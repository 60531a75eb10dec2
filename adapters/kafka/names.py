"""Names of topics and groups that the bridge makes: lanes of a destination, delay topics, metadata."""

from hashlib import blake2b
from typing import Final

HIGH: Final = ".oms-hi"
LOW: Final = ".oms-lo"
LANES: Final = ("", HIGH, LOW)
"""Suffixes of the topics of a destination with lanes; the place in this row is the lane's number."""
_NORMAL: Final = 5
_MEMBER_MAX: Final = 249
"""Characters that Kafka allows in the name of a static member."""
PARTITIONS_MAX: Final = 1 << 20
"""Above every partition number: `handle` packs a lane beside it."""


class Own:
    """The bridge's own topics and groups under one prefix."""

    def __init__(self, prefix: str) -> None:
        self.notes = f"{prefix}notes"
        """The compacted topic of the bridge's own metadata."""
        self.purges = f"{prefix}purges"
        """The compacted topic that says which delayed messages were purged."""
        self.transactions = f"{prefix}transactions"
        """The topic of prepared messages and their outcomes; a prefix of the transactional ids."""
        self.forwarders = f"{prefix}forwarder"
        """The consumer group of the bridges' forwarders of delayed messages."""
        self._prefix = prefix

    def delay(self, level: str) -> str:
        """Return the topic of a level of delay: `oms.delay.8s`."""
        return f"{self._prefix}delay.{level}"


def lane_of(priority: int | None) -> int:
    """Return the lane for a priority (1 to 10): normal for 5 and none, high above, low below."""
    if priority is None or priority == _NORMAL:
        return 0
    return 1 if priority > _NORMAL else 2


def destination_of(topic: str) -> str:
    """Return the destination of a topic, which may be one of its lanes."""
    return topic.removesuffix(HIGH).removesuffix(LOW)


def handle(lane: int, partition: int, stay: int = 0) -> int:
    """Return a number for a partition of a lane in a stay with a subscription; (0, n, 0) has the number n."""
    return (stay * len(LANES) + lane) * PARTITIONS_MAX + partition


def member(instance: str, destination: str) -> str:
    """Return the name of a bridge's static member: it is in a group once for each destination."""
    if len(instance) + len(destination) < _MEMBER_MAX:
        return f"{instance}.{destination}"
    return f"{instance}.{blake2b(destination.encode(), digest_size=8).hexdigest()}"
