"""Reads one partition from its beginning to its end, once: for topics that hold a state of the bridge's own."""

import asyncio
import threading
import time
from typing import Any, Final

from kafka import KafkaConsumer, TopicPartition

from adapters.kafka.drivers.kafka_python import errors
from adapters.kafka.drivers.kafka_python.network import BOOTSTRAP_TIMEOUT, Client
from adapters.kafka.drivers.kafka_python.security import connection_settings
from adapters.kafka.options import REQUEST_TIMEOUT, Options
from adapters.kafka.record import Part, Record
from bridge.errors import BackendUnavailable

_PATIENCE: Final = 10.0
"""Seconds without a record after which the brokers are said not to answer."""
_LOOK: Final = 200
"""Milliseconds between two looks at whether anybody still waits."""


async def read_through(options: Options, part: Part) -> list[Record]:
    """Return every record up to the end as it is now. Raises `BackendUnavailable` or `Refused`."""
    abandoned = threading.Event()
    try:
        return await asyncio.to_thread(_read, options, part, abandoned)
    except Exception as error:
        raise errors.of_request(error, part.topic) from error
    finally:
        abandoned.set()


def _read(options: Options, part: Part, abandoned: threading.Event) -> list[Record]:
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
            auto_offset_reset="earliest",
            metrics_enabled=False,
        )
        return _records(consumer, part, abandoned)
    finally:
        for each in clients:
            each.close()  # not the consumer: where none came about, its threads and sockets are there all the same


def _records(consumer: KafkaConsumer, part: Part, abandoned: threading.Event) -> list[Record]:
    partition = TopicPartition(part.topic, part.partition)
    consumer.assign([partition])
    end = consumer.end_offsets([partition], timeout_ms=REQUEST_TIMEOUT)[partition]
    records: list[Record] = []
    patient_until = time.monotonic() + _PATIENCE
    while (consumer.position(partition, timeout_ms=_LOOK) or 0) < end and not abandoned.is_set():
        if time.monotonic() > patient_until:
            raise BackendUnavailable(f"{part.topic}: Kafka has not answered in time.")
        for found in consumer.poll(timeout_ms=_LOOK).get(partition, ()):
            patient_until = time.monotonic() + _PATIENCE
            headers = [(name, value or b"") for name, value in found.headers]
            records.append(
                Record(part.topic, part.partition, found.offset, found.timestamp, found.key, found.value, headers)
            )
    return records
