"""Delays with no more permissions than they need, and a destination without one."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

from tests.brokers.kafka import Kafka
from tests.kafka.bridged import backend, bridged
from tests.kafka.clients import PASSWORD, USER
from tests.kafka.delays import gauge, waiting
from tests.kafka.natives import read, topic_of
from tests.trouble import until

pytestmark = pytest.mark.extended

NEEDED = {
    ResourceType.TOPIC: (ACLOperation.CREATE, ACLOperation.READ, ACLOperation.WRITE, ACLOperation.DELETE),
    ResourceType.GROUP: (ACLOperation.READ,),
}
"""On what begins with the prefix; DELETE removes what was forwarded. Describing is implied."""


@pytest.fixture
def kafka(stoppable_kafka: Kafka) -> Kafka:
    return stoppable_kafka


@pytest.fixture
def admin(kafka: Kafka) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap)) as client:
        yield client


async def test_a_destination_without_a_permission_holds_up_no_other(
    tmp_path: Path, kafka: Kafka, admin: KafkaAdminClient
) -> None:
    prefix = f"t{uuid4().hex[:8]}."
    for kind, operations in NEEDED.items():
        for operation in operations:
            _allow(admin, kind, operation, prefix)
    open_, closed = (topic_of(kafka.bootstrap, 1) for _ in range(2))
    _allow(admin, ResourceType.TOPIC, ACLOperation.WRITE, open_)
    permission = _allow(admin, ResourceType.TOPIC, ACLOperation.WRITE, closed)
    servers = f"{USER}:{PASSWORD}@{kafka.bootstrap_of('SASL_PLAINTEXT')}"
    async with bridged(tmp_path, backend(servers, mechanism="PLAIN", prefix=prefix, hold=200)) as (bridge, talk):
        await asyncio.gather(
            *(talk.produce(b"body", destination=topic, delaytime=3_000) for topic in (closed, open_) * 5)
        )
        admin.delete_acls([permission])
        await asyncio.to_thread(read, kafka.bootstrap, open_, 5, isolation="read_committed")
        await until(lambda: gauge(bridge, "delayed_put_off") == 1, lambda: bridge.log)
        await talk.produce(b"later", destination=open_, delaytime=1_000)
        await asyncio.to_thread(read, kafka.bootstrap, open_, 6, isolation="read_committed")
        _allow(admin, ResourceType.TOPIC, ACLOperation.WRITE, closed)
        await asyncio.to_thread(read, kafka.bootstrap, closed, 5, isolation="read_committed")
        await until(lambda: gauge(bridge, "delayed_put_off") == 0, lambda: bridge.log)
        assert bridge.terminate() == 0
    assert not +waiting(kafka.bootstrap, prefix), "it may delete what it has forwarded"


def _allow(admin: KafkaAdminClient, kind: ResourceType, operation: ACLOperation, start: str) -> ACLFilter:
    """Let the user do one thing with what is named so at the start. Returns what takes it away."""
    pattern = ResourcePattern(kind, start, ACLResourcePatternType.PREFIXED)
    permission = ACL(f"User:{USER}", "*", operation, ACLPermissionType.ALLOW, pattern)
    assert admin.create_acls([permission])["succeeded"] == [permission]
    named = ResourcePatternFilter(kind, start, ACLResourcePatternType.PREFIXED)
    return ACLFilter(f"User:{USER}", "*", operation, ACLPermissionType.ALLOW, named)
