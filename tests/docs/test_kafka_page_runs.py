"""The commands on the page about Kafka, run against a real one."""

import asyncio
import re
import shlex
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from kafka.admin import ACLResourcePatternType as PatternType

from adapters.kafka.consume import commit_metadata
from tests.brokers.kafka import Kafka
from tests.brokers.provide import own_kafka
from tests.brokers.security import Security
from tests.conformance.conversation import Conversation, now
from tests.docs.steps import buries, calls_back, consumes, produces, waits_for
from tests.kafka import natives
from tests.kafka.bridged import backend, bridged
from tests.kafka.console import console_of
from tests.trouble import probe, ready, taken, until

PAGE: Final = (Path(__file__).parents[2] / "docs" / "kafka.md").read_text("utf-8")
_PREFIXED: Final = PatternType.PREFIXED
PASSWORD: Final = "of-order-7"  # noqa: S105 - of a broker of our own
COMMANDS: Final = [
    shlex.split(line)[1:]
    for line in re.findall(r"^kafka-acls\.sh .*--add.*$", PAGE, re.MULTILINE)
    if "User:bridge" in line
]


class Secured(NamedTuple):
    """A Kafka on which the user `bridge` may do what the page allows."""

    kafka: Kafka
    url: str
    admin: KafkaAdminClient


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with own_kafka(tmp_path_factory.mktemp("brokers") / "kafka", security=Security({"bridge": PASSWORD})) as kafka:
        console = console_of(tmp_path_factory.mktemp("tools") / "console", kafka.bootstrap)
        for command in COMMANDS:
            console.run("kafka-acls.sh", *(word for word in command[2:]))
        servers = kafka.bootstrap_of("SASL_PLAINTEXT")
        url = f"kafka://bridge:{PASSWORD}@{servers}?mechanism=SCRAM-SHA-256&hold=200&lanes=true&partitions=2"
        with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap)) as admin:
            yield Secured(kafka, url, admin)


async def waits(talk: Conversation) -> None:
    await waits_for(talk, 2_500)


STEPS: Final = (produces, consumes, buries, waits, calls_back)
SETTINGS: Final = {
    "OMS_DELIVERY__MAX_DELIVERIES": "1",
    "OMS_CALLBACKS__TARGETS": "http://127.0.0.1:9",
    "OMS_CALLBACKS__NETWORKS": "127.0.0.1/32",
    "OMS_CALLBACKS__SECRETS": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=",
}


@pytest.mark.extended
async def test_the_permissions_suffice(secured: Secured, tmp_path: Path) -> None:
    async with bridged(tmp_path, secured.url, **SETTINGS) as (bridge, talk):
        await ready(bridge)
        for step in STEPS:
            talk.destination, talk.group = "orders", "billing"
            await step(talk)


class Case(NamedTuple):
    """A permission, a step that needs it, and what exactly happens without it."""

    kind: ResourceType
    name: str
    operation: ACLOperation
    step: Callable[[Conversation], Awaitable[None]]
    refused: str
    """The detail of the 403 with which the step is answered."""


CASES: Final = (
    Case(ResourceType.TOPIC, "orders", ACLOperation.WRITE, produces, "orders: {} the topic"),
    Case(
        ResourceType.TOPIC, "orders", ACLOperation.READ, consumes, "orders, orders.oms-hi, orders.oms-lo: {} the topic"
    ),
    Case(ResourceType.TOPIC, "orders", ACLOperation.CREATE, produces, "orders: {} the topic"),
    Case(ResourceType.GROUP, "billing", ACLOperation.READ, consumes, "billing: {} the group"),
    Case(ResourceType.TOPIC, "oms.", ACLOperation.WRITE, waits, "oms.delay.1s: {} the topic"),
    Case(ResourceType.TOPIC, "oms.", ACLOperation.CREATE, calls_back, "oms.notes: {} the topic"),
)


@pytest.mark.extended
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.operation.name} {case.kind.name} {case.name}")
async def test_each_permission_is_needed(case: Case, secured: Secured, tmp_path: Path) -> None:
    """Without it the step is answered 403; once it is given the step succeeds, without a new start of the bridge."""
    if case.operation is ACLOperation.CREATE:
        _forget_topics(secured, case.name)
    detail = case.refused.format("the bridge's user has no permission for") + " (Kafka's ACLs)."
    async with bridged(tmp_path, secured.url, **SETTINGS) as (bridge, talk):
        await ready(bridge)
        with _without(secured, case.kind, case.name, case.operation):
            talk.destination, talk.group = "orders", "billing"
            refused = await _refusal(lambda: case.step(talk))
            assert ('"code": "backend-refused"' in refused, f'"detail": "{detail}"' in refused) == (True, True), refused
        talk.destination = "orders"
        await _in_the_end(lambda: case.step(talk))


class Forwarding(NamedTuple):
    """A permission without which the bridge cannot forward what is delayed, and how its log says so."""

    kind: ResourceType
    operation: ACLOperation
    logged: str


FORWARDING: Final = (
    Forwarding(ResourceType.TOPIC, ACLOperation.READ, "Not authorized to read from topic oms.delay."),
    Forwarding(
        ResourceType.GROUP, ACLOperation.READ, "oms.forwarder: the bridge's user has no permission for the group"
    ),
)


@pytest.mark.extended
@pytest.mark.parametrize("case", FORWARDING, ids=lambda case: f"{case.operation.name} {case.kind.name}")
async def test_without_a_permission_to_forward_a_delayed_message_waits_for_it(
    case: Forwarding, secured: Secured, tmp_path: Path
) -> None:
    """The message is stored, the log names the permission, and the message comes once the permission is given."""
    late, delay = b"late", 2_500
    async with bridged(tmp_path, secured.url, **SETTINGS) as (bridge, talk):
        await ready(bridge)
        talk.destination, talk.group = f"orders.{uuid4().hex[:8]}", "billing"
        await _in_the_end(lambda: waits(talk))  # now the topics are there
        log = len(bridge.log)  # each error of a library is logged once a minute: it may come before the message is due
        with _without(secured, case.kind, "oms.", case.operation):
            await talk.produce(late, delaytime=delay)
            due = now() + delay
            await until(lambda: now() > due, lambda: "the clock stands still")
            await until(lambda: case.logged in bridge.log[log:], lambda: f"the log does not say {case.logged}")
            if case.kind is ResourceType.TOPIC:  # else a bridge that has read the record forwards it, and commits later
                await talk.nothing()
        assert await taken(talk, meanwhile=set()) == late


@contextmanager
def _without(secured: Secured, kind: ResourceType, name: str, operation: ACLOperation) -> Iterator[None]:
    """Take a permission of the page away from `bridge`, and give it back in the end."""
    pattern = ResourcePattern(kind, name, PatternType.LITERAL if name == "billing" else _PREFIXED)
    permission = ("User:bridge", "*", operation, ACLPermissionType.ALLOW, pattern)
    [(_, deleted, _)] = secured.admin.delete_acls([ACLFilter(*permission)])
    assert deleted, "the commands of the page have not given it"
    try:
        yield
    finally:
        secured.admin.create_acls([ACL(*permission)])


async def _refusal(step: Callable[[], Awaitable[None]]) -> str:
    """Try until a step is refused, and return the answer: brokers may take a while to forget a permission."""
    deadline = time.monotonic() + natives.SECONDS
    while time.monotonic() < deadline:
        try:
            await step()
        except AssertionError as refused:
            if '"code": "backend-unavailable"' not in str(refused):
                return str(refused)
        await asyncio.sleep(0.2)
    pytest.fail("the step is not refused")


@pytest.mark.extended
async def test_it_waits_for_the_permission_to_look_at_its_own_topics(secured: Secured, tmp_path: Path) -> None:
    permissions = _permissions(ACLOperation.READ, ACLOperation.WRITE, ACLOperation.DELETE)
    secured.admin.delete_acls([ACLFilter(*permission) for permission in permissions])
    try:
        async with bridged(tmp_path, secured.url) as (bridge, talk):
            await until(lambda: "oms.notes" in probe(bridge, "/readyz")[1], lambda: probe(bridge, "/readyz"))
            assert probe(bridge, "/readyz")[0] == 503
            secured.admin.create_acls([ACL(*permission) for permission in permissions])
            talk.destination, talk.group = "orders", "billing"
            await _in_the_end(lambda: produces(talk))
    finally:
        secured.admin.create_acls([ACL(*permission) for permission in permissions])


@pytest.mark.extended
async def test_without_delete_what_was_forwarded_stays(secured: Secured, tmp_path: Path) -> None:
    permission = _permissions(ACLOperation.DELETE)[0]
    secured.admin.delete_acls([ACLFilter(*permission)])
    try:
        stayed = await _let_go_of(secured, tmp_path / "without")
    finally:
        secured.admin.create_acls([ACL(*permission)])
    assert stayed == 0
    # at its end a bridge takes no more than 2 s for it
    assert any([await _let_go_of(secured, tmp_path / f"with-{attempt}") for attempt in range(3)])


async def _let_go_of(secured: Secured, directory: Path) -> int:
    """Return how many records of the delay topics a bridge deletes by its end, after it has forwarded some."""
    before = _oldest(secured)
    async with bridged(directory, secured.url, **SETTINGS) as (bridge, talk):
        talk.destination, talk.group = "orders", "billing"
        await waits(talk)
        assert bridge.terminate() == 0
    return _oldest(secured) - before


def _oldest(secured: Secured) -> int:
    """Return the sum of the oldest offsets in the delay topics."""
    with closing(KafkaConsumer(bootstrap_servers=secured.kafka.bootstrap)) as consumer:
        topics = [name for name in consumer.topics() if name.startswith("oms.delay.")]
        parts = [TopicPartition(name, part) for name in topics for part in consumer.partitions_for_topic(name)]
        return sum(consumer.beginning_offsets(parts).values())


def test_every_permission_of_the_table_is_given_by_the_commands() -> None:
    given = {operation for command in COMMANDS for operation in re.findall(r"--operation (\w+)", shlex.join(command))}
    table = PAGE.partition("### Permissions")[2].partition("For a bridge that")[0]
    named = set(re.findall(r"\b(?:Read|Write|Create|Describe|Delete|Alter\w*|DescribeConfigs)\b", table))
    assert given == named


async def test_the_group_is_shown_as_the_page_shows_it(tmp_path: Path, kafka_servers: str) -> None:
    (head,) = re.findall(r"^GROUP .*$", PAGE, re.MULTILINE)
    console = console_of(tmp_path / "tools", kafka_servers)
    async with bridged(tmp_path / "bridge", backend(kafka_servers, partitions=1)) as (bridge, talk):
        for number in range(10):
            await talk.produce(b"%d" % number)
        pulled = [await talk.take() for _ in range(7)]
        for at in (0, 1, 2, 4, 5):
            await talk.ack(pulled[at].receipt)
        [row] = console.group(talk.group)
        assert list(row) == head.split()
        shown = dict(zip(head.split(), re.findall(r"^billing .*$", PAGE, re.MULTILINE)[0].split(), strict=False))
        numbers = ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
        assert {name: row[name] for name in numbers} == {name: shown[name] for name in numbers}
        assert bridge.terminate() == 0
        call = re.findall(r"`KafkaAdminClient\(.*\)\.(list_group_offsets)\(\"billing\"\)`", PAGE)[0]
        with closing(KafkaAdminClient(bootstrap_servers=kafka_servers)) as admin:
            found = getattr(admin, call)(talk.group)
        [at] = found[talk.group].values() if talk.group in found else found.values()
        settled, _ = commit_metadata.decode(at.metadata, at.offset)
        assert (at.offset, list(settled)) == (3, [range(4, 6)])


async def test_every_figure_of_the_backend_is_listed_and_no_other(tmp_path: Path, kafka_servers: str) -> None:
    listed = set(re.findall(r"^\| `(oms_backend_\w+)` \|", PAGE, re.MULTILINE))
    async with bridged(tmp_path, backend(kafka_servers, hold=0)) as (bridge, talk):
        await talk.produce(b"now")
        await talk.produce(b"late", delaytime=1_500)
        await talk.take_all(2)
        metrics = (await talk.http.get(f"{bridge.management}/metrics")).text
    assert set(re.findall(r"^(oms_backend_\w+) ", metrics, re.MULTILINE)) == listed


async def _in_the_end(step: Callable[[], Awaitable[None]]) -> None:
    """Try until it goes: what is refused is looked at again after some seconds."""
    deadline = time.monotonic() + natives.SECONDS
    while True:
        try:
            return await asyncio.wait_for(step(), 20)
        except (AssertionError, TimeoutError):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.2)


def _permissions(*operations: ACLOperation) -> list[tuple[object, ...]]:
    """Return what `bridge` may do with the bridge's own topics."""
    own = ResourcePattern(ResourceType.TOPIC, "oms.", _PREFIXED)
    return [("User:bridge", "*", operation, ACLPermissionType.ALLOW, own) for operation in operations]


def _forget_topics(secured: Secured, prefix: str) -> None:
    """Delete them, so that they have to be made."""
    names = [name for name in secured.admin.list_topics() if name.startswith(prefix)]
    secured.admin.delete_topics(names)
    while any(name.startswith(prefix) for name in secured.admin.list_topics()):
        pass
