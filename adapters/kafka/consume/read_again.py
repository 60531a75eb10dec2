"""Reads records of a group's partitions once more, by their offsets, beside the consumer that has passed them."""

import asyncio
import threading
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final

from kafka import KafkaConsumer, TopicPartition

from adapters.kafka import errors
from adapters.kafka.connections import reading
from adapters.kafka.mapping import Part, Record, fetched
from adapters.kafka.options import Options
from bridge.errors import BackendUnavailable, BridgeError

_PATIENCE: Final = 20.0
"""Seconds without a record, before the last offset is reached, after which the brokers are said not to answer."""
_POLL: Final = 100
"""Milliseconds of a poll that finds nothing; so long may stopping take."""
_FAR: Final = 1_000
"""Offsets between two records that are passed over and not read."""
_FETCH_MAX: Final = 2 << 20

Offsets = Mapping[Part, Sequence[int]]
"""Of each partition, in ascending order."""


class ReadAgain:
    """Reads records again, each time with a consumer for this purpose: that is rare, and takes some 50 ms."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._stopping = threading.Event()

    def stop(self) -> None:
        """End a read under way soon."""
        self._stopping.set()

    async def read(self, offsets: Offsets) -> list[Record]:
        """Return the records that are still kept. Raises `BackendUnavailable` or `Refused`."""
        return await asyncio.to_thread(self._read, offsets)

    def _read(self, offsets: Offsets) -> list[Record]:
        settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        try:
            with reading(self._options, fetch_max_bytes=_FETCH_MAX, fetch_max_wait_ms=_POLL, **settings) as consumer:
                return [record for part, those in offsets.items() for record in self._read_part(consumer, part, those)]
        except BridgeError:
            raise
        except Exception as error:
            raise errors.of_exception(error, ", ".join(sorted({part.topic for part in offsets}))) from error

    def _read_part(self, consumer: KafkaConsumer, part: Part, offsets: Sequence[int]) -> list[Record]:
        place = TopicPartition(*part)
        consumer.assign([place])
        consumer.seek(place, offsets[0])
        found: list[Record] = []
        left, until = 0, time.monotonic() + _PATIENCE
        while not self._stopping.is_set() and time.monotonic() < until:
            # a position behind markers, gaps and what is not kept any more counts as read
            position = consumer.position(place, timeout_ms=_POLL) or 0
            left = bisect_left(offsets, position, left)
            if left == len(offsets):
                return found
            if offsets[left] > position + _FAR:
                consumer.seek(place, offsets[left])
            for each in consumer.poll(timeout_ms=_POLL).get(place, ()):
                until = time.monotonic() + _PATIENCE
                left = bisect_left(offsets, each.offset, left)
                if left < len(offsets) and offsets[left] == each.offset:
                    found.append(fetched(each))
        raise BackendUnavailable(f"{part.topic}: Kafka has not returned all messages in time.")
