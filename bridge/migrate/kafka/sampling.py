"""Reads the newest records of a topic without a group: nobody's offsets move."""

import asyncio
import time
from typing import Any, Final

from kafka import KafkaConsumer, TopicPartition

from adapters.kafka.drivers.kafka_python import errors
from adapters.kafka.drivers.kafka_python.network import BOOTSTRAP_TIMEOUT, Client
from adapters.kafka.drivers.kafka_python.security import connection_settings
from adapters.kafka.options import REQUEST_TIMEOUT, Options
from adapters.kafka.record import Record
from bridge.migrate.kafka.inspector import Bounds

_LATEST: Final = 2_000
"""Records in all, shared out among the partitions: enough to tell one hash from another."""
_EACH: Final = 20
"""Of each partition at least."""
_PATIENCE: Final = 10.0
"""Seconds without a record after which the sample is what has come: the rest may be markers of transactions."""
_POLL: Final = 200


async def sample(options: Options, topic: str, bounds: Bounds) -> list[Record]:
    """Return up to `_LATEST` committed records. Raises `BackendUnavailable` or `Refused`."""
    try:
        return await asyncio.to_thread(_read, options, topic, bounds)
    except Exception as error:
        raise errors.of_request(error, topic) from error


def _read(options: Options, topic: str, bounds: Bounds) -> list[Record]:
    clients: list[Client] = []

    def client(**configs: Any) -> Client:  # noqa: ANN401 - the library's settings
        clients.append(Client(**configs))
        return clients[0]

    try:
        consumer = KafkaConsumer(
            **connection_settings(options),
            kafka_client=client,
            bootstrap_timeout_ms=BOOTSTRAP_TIMEOUT,
            request_timeout_ms=REQUEST_TIMEOUT,
            enable_auto_commit=False,
            isolation_level="read_committed",
            metrics_enabled=False,
        )
        return _records(consumer, topic, bounds)
    finally:
        for each in clients:
            each.close()  # not the consumer: where none came about, its threads and sockets are there all the same


def _records(consumer: KafkaConsumer, topic: str, bounds: Bounds) -> list[Record]:
    ends = {TopicPartition(topic, partition): end for partition, (start, end) in bounds.items() if start < end}
    consumer.assign(list(ends))
    each = max(_EACH, _LATEST // max(1, len(ends)))
    for part, end in ends.items():
        consumer.seek(part, max(bounds[part.partition][0], end - each))
    records: list[Record] = []
    patient_until = time.monotonic() + _PATIENCE
    while time.monotonic() < patient_until and _unread(consumer, ends):
        for found in consumer.poll(timeout_ms=_POLL).values():
            patient_until = time.monotonic() + _PATIENCE
            for it in found:
                headers = [(name, value or b"") for name, value in it.headers]
                records.append(Record(topic, it.partition, it.offset, it.timestamp, it.key, it.value, headers))
    return records


def _unread(consumer: KafkaConsumer, ends: dict[TopicPartition, int]) -> bool:
    return any((consumer.position(part, timeout_ms=_POLL) or 0) < end for part, end in ends.items())
