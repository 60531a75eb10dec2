"""What was seen of a topic. Times in milliseconds, sizes in bytes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from adapters.kafka.record import Record


class Group(NamedTuple):
    """One consumer group that has committed offsets for the topic, or whose members read it."""

    name: str
    kind: str
    """classic, consumer (KIP-848), share …; empty where the brokers do not tell."""
    members: int
    assignor: str
    """How its members share partitions out at the moment; what else they offer is not told. Empty without members."""
    committed: Mapping[int, int]
    """Partition to offset."""


class Topic(NamedTuple):
    """Everything that the judges look at."""

    name: str
    partitions: int
    replicas: int
    """Of the partition with the fewest."""
    configs: Mapping[str, str]
    """As they count, defaults of the brokers included; empty where the user may not read them."""
    bounds: Mapping[int, tuple[int, int]]
    """Partition to its oldest offset and the one after its newest visible record; none for one without a leader."""
    groups: Sequence[Group] | None
    """None: the user may not list them."""
    sample: Sequence[Record]
    """The newest records of each partition."""
