"""What the tests of long delays look at from outside: when native consumers see a record, and what waits where."""

import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from time import monotonic, sleep, time_ns

from kafka import KafkaAdminClient, KafkaConsumer, OffsetAndMetadata, TopicPartition

from adapters.kafka.mapping import Record
from tests.kafka.natives import everything
from tests.launch import Bridge
from tests.trouble import probe

SECONDS = 60
LEVELS = ("1s", "8s", "64s", "512s", "4096s", "32768s", "262144s", "2097152s", "due")


def wall() -> int:
    """Milliseconds since 1970."""
    return time_ns() // 1_000_000


def value_of(record: Record) -> bytes:
    """Return the body of a record that has one."""
    assert record.value is not None
    return record.value


def number(record: Record, header: str) -> int:
    """Return what a header with digits says."""
    return int(dict(record.headers)[header])


def due_of(record: Record) -> int:
    """When a record may first be handed out, by the headers that its producer's fields became."""
    return number(record, "oms_h_bornTimestamp") + number(record, "oms_h_delayTime")


class Watch:
    """A native consumer that looks all the time, and notes when it saw what."""

    def __init__(self, servers: str, topic: str, isolation: str) -> None:
        self.seen: list[tuple[int, bytes]] = []
        """The moment, and the value."""
        self._ready, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._look, args=(servers, topic, isolation))

    def wait_for(self, count: int) -> list[tuple[int, bytes]]:
        """Return what it has seen when it is so many; AssertionError if they do not come."""
        deadline = monotonic() + SECONDS
        while len(self.seen) < count:
            assert monotonic() < deadline, f"{len(self.seen)} of {count} records have come"
            sleep(0.01)
        return self.seen

    @contextmanager
    def looking(self) -> Iterator["Watch"]:
        """Look from now on, at the topic's beginning, until the end of the context."""
        self._thread.start()
        assert self._ready.wait(SECONDS)
        try:
            yield self
        finally:
            self._over.set()
            self._thread.join()

    def _look(self, servers: str, topic: str, isolation: str) -> None:
        with closing(KafkaConsumer(bootstrap_servers=servers, isolation_level=isolation)) as consumer:
            consumer.assign([TopicPartition(topic, partition) for partition in consumer.partitions_for_topic(topic)])
            consumer.seek_to_beginning()
            self._ready.set()
            while not self._over.is_set():
                found = consumer.poll(timeout_ms=100)
                self.seen += [(wall(), each.value) for records in found.values() for each in records]


def waiting(servers: str, prefix: str) -> Counter[str]:
    """How many records lie in each level, moved on or not."""
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        there = [topic for topic in admin.list_topics() if topic.startswith(f"{prefix}delay.")]
    return Counter({topic.removeprefix(f"{prefix}delay."): len(everything(servers, topic)) for topic in there if topic})


def committed(servers: str, prefix: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """What the forwarders have committed."""
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        group = f"{prefix}forwarder"
        return {part: at for part, at in admin.list_group_offsets(group)[group].items() if at.offset >= 0}


def members(servers: str, prefix: str) -> list[int]:
    """How many partitions each of the forwarders has; empty while they are being shared out."""
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        group = admin.describe_groups([f"{prefix}forwarder"])[f"{prefix}forwarder"]
    if group["group_state"] != "Stable":
        return []
    shares = [member["member_assignment"] for member in group["members"]]
    return [sum(len(topic["partitions"]) for topic in share["assigned_partitions"]) for share in shares if share]


def gauge(bridge: Bridge, name: str) -> int:
    """Return one of the backend's figures; 0 where it is not shown."""
    found = re.search(rf"^oms_backend_{name} (\S+)$", probe(bridge, "/metrics")[1], re.MULTILINE)
    return int(float(found[1])) if found else 0
