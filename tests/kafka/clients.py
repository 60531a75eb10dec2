"""What the tests of the brokers do with kafka-python: topics, records there and back, a permission."""

import time
import uuid
from contextlib import closing

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ConfigResource,
    ConfigResourceType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

SECONDS = 60
USER = "orders"
PASSWORD = "of-order-7"  # noqa: S105 - of brokers that end with the tests


def new_topic(servers: str) -> str:
    """Make a topic of one partition, with a unique name."""
    name = f"topic-{uuid.uuid4()}"
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        admin.create_topics({name: {"num_partitions": 1}}, wait_for_metadata=True)
    return name


def copies(servers: str, topic: str) -> tuple[int, int]:
    """Return on how many nodes a record is kept, and on how many it must be before it is acknowledged."""
    name = "min.insync.replicas"
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: None})
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        [described] = admin.describe_topics([topic])
        configs = admin.describe_configs([resource], config_filter="all")
    return len(described["partitions"][0]["replica_nodes"]), int(configs["topic"][topic][name]["value"])


def allow(servers: str, user: str, topic: str) -> None:
    """Let the user do everything with the topic."""
    pattern = ResourcePattern(ResourceType.TOPIC, topic)
    permission = ACL(f"User:{user}", "*", ACLOperation.ALL, ACLPermissionType.ALLOW, pattern)
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        assert admin.create_acls([permission])["succeeded"] == [permission]


def forbid(servers: str, topic: str) -> None:
    """Take back what `allow` has given."""
    pattern = ResourcePatternFilter(ResourceType.TOPIC, topic, ACLResourcePatternType.LITERAL)
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        admin.delete_acls([ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, pattern)])


def produce(servers: str, topic: str, *values: bytes, **settings: object) -> None:
    """Send the values and wait until each is acknowledged by the replicas in sync."""
    with closing(KafkaProducer(bootstrap_servers=servers, acks="all", **settings)) as producer:
        for future in [producer.send(topic, value) for value in values]:
            future.get(SECONDS)


def consume(servers: str, topic: str, count: int, **settings: object) -> list[bytes]:
    """Return the first `count` values of the topic, or what has come when time is up."""
    values: list[bytes] = []
    with closing(KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest", **settings)) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        deadline = time.monotonic() + SECONDS
        while len(values) < count and time.monotonic() < deadline:
            for records in consumer.poll(timeout_ms=500).values():
                values += [record.value for record in records]
    return values
