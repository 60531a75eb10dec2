"""Programs without the bridge: plain kafka-python, as its users write it."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

from adapters.kafka.mapping import Headers, Record

SECONDS = 60
COMPRESSIONS = ["zstd", *(pytest.param(each, marks=pytest.mark.extended) for each in ("gzip", "snappy", "lz4"))]
"""Of batches: `make test` takes one of them."""


def topic_of(servers: str, partitions: int, **configs: str) -> str:
    """Make a topic without the bridge."""
    name = f"native-{uuid4().hex[:12]}"
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        admin.create_topics({name: {"num_partitions": partitions, "configs": configs}}, wait_for_metadata=True)
    return name


def read(servers: str, topic: str, count: int, *, isolation: str = "read_uncommitted") -> list[Record]:
    """Return `count` records of a topic from its beginning; AssertionError if they do not come."""
    with closing(_reader(servers, topic, isolation)) as consumer:
        consumer.seek_to_beginning()
        return take(consumer, count)


def everything(servers: str, topic: str, *, isolation: str = "read_uncommitted") -> list[Record]:
    """Return all records that lie in a topic now."""
    records = []
    with closing(_reader(servers, topic, isolation)) as consumer:
        ends = consumer.end_offsets(consumer.assignment())
        consumer.seek_to_beginning()
        while any(consumer.position(part) < end for part, end in ends.items()):
            records += _polled(consumer, 500)
    return records


def take(consumer: KafkaConsumer, count: int) -> list[Record]:
    """Return the next `count` records that a consumer gets; AssertionError if they do not come."""
    records: list[Record] = []
    deadline = time.monotonic() + SECONDS
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records have come"
        records += _polled(consumer, count - len(records))
    return records


def write(
    servers: str, topic: str, rows: Sequence[tuple[bytes | None, bytes | None, Headers]], partition: int | None = None
) -> list[tuple[int, int]]:
    """Store keys, values and headers; returns where each is: partition and offset."""
    with closing(KafkaProducer(bootstrap_servers=servers)) as producer:
        sent = [producer.send(topic, value, key, list(headers), partition) for key, value, headers in rows]
        return [(done.partition, done.offset) for done in (each.get(SECONDS) for each in sent)]


@contextmanager
def member(servers: str, topic: str, group: str, **settings: object) -> Iterator[KafkaConsumer]:
    """Join a group as a program does that commits automatically, and leave it at the end."""
    chosen = {"auto_offset_reset": "earliest", "enable_auto_commit": False} | settings
    with closing(KafkaConsumer(topic, bootstrap_servers=servers, group_id=group, **chosen)) as consumer:
        yield consumer


def _reader(servers: str, topic: str, isolation: str) -> KafkaConsumer:
    consumer = KafkaConsumer(bootstrap_servers=servers, isolation_level=isolation)
    consumer.assign([TopicPartition(topic, partition) for partition in consumer.partitions_for_topic(topic)])
    return consumer


def _polled(consumer: KafkaConsumer, most: int) -> list[Record]:
    batches = consumer.poll(timeout_ms=500, max_records=most).values()
    return [
        Record(r.topic, r.partition, r.offset, r.timestamp, r.key, r.value, r.headers) for rs in batches for r in rs
    ]
