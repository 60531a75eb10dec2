"""How far the mirror of Kafka has come, as Spark writes it: `{"topic":{"0":123}}`, where 123 comes next. Pure."""

import json
from collections.abc import Iterator, Mapping
from typing import Final

from adapters.kafka.record import Part
from bridge.mirror.offsets import Gap, Ranges
from bridge.mirror.sources.kafka.rows import log_of

Offsets = Mapping[Part, int]

EARLIEST: Final = -2
"""What stands for the oldest offset in a text that says where the connector begins."""


def read(text: str) -> dict[Part, int]:
    """Read offsets, also from Spark's file of those where everything began: it puts a NUL and `v1` before them."""
    topics = json.loads(text[text.index("{") :])
    return {Part(topic, int(partition)): at for topic, parts in topics.items() for partition, at in parts.items()}


def write(offsets: Offsets) -> str:
    """Write offsets."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), at in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = at
    return json.dumps(topics)


def starting(start: Mapping[str, int], parts: Iterator[Part]) -> str:
    """Write where to begin: the connector requires every partition, and no other."""
    return write({part: start.get(log_of(*part), EARLIEST) for part in parts})


def moved(before: Offsets, after: Offsets) -> Ranges:
    """Return what was read; a partition that was not there before begins at 0."""
    starts = {part: before.get(part, 0) for part in after}
    return {log_of(*part): (starts[part], end) for part, end in after.items() if end > starts[part]}


def gaps(before: Offsets, after: Offsets, firsts: Offsets, remade: frozenset[str]) -> Iterator[Gap]:
    """Yield what is gone of what lies between.

    `firsts`: the oldest offset of every partition that there is; `remade`: topics that were deleted and made again.
    """
    for part, start in before.items():
        end = after.get(part)
        if end is None:
            yield Gap(log_of(*part), start, None)
        elif end < start or part.topic in remade:
            yield Gap(log_of(*part), start, None)
            if skipped := min(start, end):  # of its new life, for the connector goes on where it was, or at the new end
                yield Gap(log_of(*part), 0, skipped)
    for part, end in after.items():
        start = before.get(part, 0)
        first = firsts.get(part, end)
        if start < min(first, end):
            yield Gap(log_of(*part), start, min(first, end))
