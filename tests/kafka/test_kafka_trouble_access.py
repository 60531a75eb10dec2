"""A user unknown to Kafka, and permissions that are missing, taken and given back."""

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
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.brokers.kafka import Kafka
from tests.conformance.conversation import refused
from tests.kafka.bridged import backend, bridged
from tests.kafka.clients import PASSWORD, USER, new_topic
from tests.kafka.each_client import EACH_CLIENT
from tests.trouble import accepted, back_to, held, probe, ready, taken, until

pytestmark = pytest.mark.extended


@pytest.fixture
def kafka(stoppable_kafka: Kafka) -> Kafka:
    return stoppable_kafka


@pytest.fixture
def admin(kafka: Kafka) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap)) as client:
        yield client


@EACH_CLIENT
async def test_a_user_that_kafka_does_not_know_yet(
    client: str, tmp_path: Path, kafka: Kafka, admin: KafkaAdminClient
) -> None:
    """The bridge waits, says why, and is ready when the user has been added."""
    user, word, prefix = f"user-{uuid4().hex}", "may", f"t{uuid4().hex[:8]}."
    async with bridged(tmp_path, _url(kafka, user, client=client, prefix=prefix)) as (bridge, talk):
        for _ in range(2):
            await until(lambda: "authentic" in probe(bridge, "/readyz")[1].lower(), lambda: probe(bridge, "/readyz"))
            status, said = probe(bridge, "/readyz")
            assert (status, PASSWORD in said) == (503, False)
            assert probe(bridge, "/livez") == (200, "alive\n")
            refused(await talk.post(b"too early"), 503, "backend-unavailable")
        before = held(bridge)
        for kind in ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID:
            for start in word, prefix:
                _allow(admin, user, kind, start)
        made = admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_512, PASSWORD)]
        )
        assert made == {user: None}
        await ready(bridge)
        assert held(bridge).descriptors < before.descriptors + 20, "no connection is left of those that were refused"
        talk.destination, talk.group = f"{word}-{uuid4().hex}", word
        await talk.produce(b"known")
        assert (await talk.take()).body == b"known"


@EACH_CLIENT
async def test_topics_and_groups_without_a_permission(
    client: str, tmp_path: Path, kafka: Kafka, admin: KafkaAdminClient
) -> None:
    """403 for them, whether they exist or not; the others are unharmed."""
    word, prefix = f"may-{uuid4().hex[:8]}", f"t{uuid4().hex[:8]}."
    for kind in ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID:
        for start in word, prefix:
            _allow(admin, USER, kind, start)
    async with bridged(tmp_path, _url(kafka, USER, client=client, prefix=prefix)) as (bridge, talk):
        await ready(bridge)
        talk.destination, talk.group = f"{word}-topic", f"{word}-group"
        await talk.join()
        before = held(bridge)
        for closed in new_topic(kafka.bootstrap), f"there-is-none-{uuid4().hex}":
            assert closed in refused(await talk.post(b"x", destination=closed), 403, "backend-refused")
            assert closed in refused(await talk.get(source=closed), 403, "backend-refused")
            await talk.produce(b"open")
            assert await taken(talk, meanwhile=set()) == b"open"
        unread = new_topic(kafka.bootstrap)
        _allow(admin, USER, ResourceType.TOPIC, unread, ACLOperation.DESCRIBE)
        # It waits: the broker refuses the first fetch, which may come after a pull that does not.
        assert unread in refused(await talk.get(source=unread, waitmills=20_000), 403, "backend-refused")
        assert "may-not" in refused(await talk.get(consumerid="may-not"), 403, "backend-refused")
        await talk.produce(b"still open")
        assert await taken(talk, meanwhile=set()) == b"still open"
        await back_to(bridge, before)


@EACH_CLIENT
async def test_permissions_taken_and_given_back(
    client: str, tmp_path: Path, kafka: Kafka, admin: KafkaAdminClient
) -> None:
    """While the topic is in use: refused at once, and used again soon, without a new bridge."""
    word, prefix = f"may-{uuid4().hex[:8]}", f"t{uuid4().hex[:8]}."
    for kind in ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID:
        for start in word, prefix:
            _allow(admin, USER, kind, start)
    _allow(admin, USER, ResourceType.TOPIC, prefix)
    topics = _allow(admin, USER, ResourceType.TOPIC, word)
    async with bridged(tmp_path, _url(kafka, USER, client=client, prefix=prefix)) as (bridge, talk):
        await ready(bridge)
        talk.destination, talk.group = f"{word}-topic", f"{word}-group"
        await talk.join()
        before = held(bridge)
        await talk.produce(b"stored before")
        assert await taken(talk, meanwhile=set()) == b"stored before"
        admin.delete_acls([topics])
        answer = await talk.post(b"no more")
        while answer.status_code == 200:  # until every thread of the broker has it
            assert await taken(talk, meanwhile={403, 503}) == b"no more"
            answer = await talk.post(b"no more")
        refused(answer, 403, "backend-refused")
        assert probe(bridge, "/livez") == (200, "alive\n")
        assert (await talk.get(waitmills=2000)).status_code in {204, 403, 503}
        _allow(admin, USER, ResourceType.TOPIC, word)
        await accepted(talk, b"again")
        assert await taken(talk, meanwhile={403, 503}) == b"again"
        await back_to(bridge, before)


def _url(kafka: Kafka, user: str, **options: object) -> str:
    servers = kafka.bootstrap_of("SASL_PLAINTEXT")
    return backend(f"{user}:{PASSWORD}@{servers}", mechanism="SCRAM-SHA-512", **options)


def _allow(
    admin: KafkaAdminClient, user: str, kind: ResourceType, start: str, operation: ACLOperation = ACLOperation.ALL
) -> ACLFilter:
    """Let the user do this, or everything, with what is named so at the start. Returns what takes it away."""
    pattern = ResourcePattern(kind, start, ACLResourcePatternType.PREFIXED)
    permission = ACL(f"User:{user}", "*", operation, ACLPermissionType.ALLOW, pattern)
    assert admin.create_acls([permission])["succeeded"] == [permission]
    named = ResourcePatternFilter(kind, start, ACLResourcePatternType.PREFIXED)
    return ACLFilter(f"User:{user}", "*", operation, ACLPermissionType.ALLOW, named)
