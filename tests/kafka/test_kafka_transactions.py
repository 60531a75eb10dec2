"""Transactions on Kafka: all or nothing for native programs, whichever bridge commits, and whatever is killed."""

import asyncio
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing, suppress
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    OffsetSpec,
    ResourcePattern,
    ResourceType,
)
from kafka.structs import TopicPartition

from adapters.base import Complete, Stored, Transaction, TransactionState
from adapters.kafka.adapter import KafkaAdapter
from adapters.kafka.options import parse
from adapters.kafka.transaction import topic, transactions
from adapters.kafka.transaction.table import Kind, control
from adapters.wall_clock import wall
from bridge.errors import BackendFull, BodyTooLarge, BridgeError, Refused, TransactionEnded
from bridge.message import Message
from tests.brokers.kafka import Kafka
from tests.kafka import child_commits
from tests.kafka.bridged import backend
from tests.kafka.clients import PASSWORD, USER
from tests.kafka.natives import everything, read, topic_of
from tests.trouble import until

WAIT = 60.0
STATES = TransactionState


class Place:
    """Adapters on the same topics."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.url = backend(servers, hold=200)
        self.opened: list[KafkaAdapter] = []

    async def open(self, url: str = "") -> KafkaAdapter:
        adapter = KafkaAdapter(parse(url or self.url))
        self.opened.append(adapter)
        await adapter.start()
        return adapter

    def bodies(self, destination: str) -> list[bytes]:
        """Return what a native program with `read_committed` finds."""
        return [record.value or b"" for record in everything(self.servers, destination, isolation="read_committed")]


@pytest.fixture
async def place(kafka_servers: str) -> AsyncIterator[Place]:
    found = Place(kafka_servers)
    yield found
    for adapter in found.opened:
        await adapter.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let bridges take others for dead soon."""
    monkeypatch.setattr(transactions, "_PATIENCE", 0.3)
    monkeypatch.setattr(topic, "_PATIENCE", 0.3)
    monkeypatch.setattr(topic, "_ROUNDS", 200)


async def prepare(
    adapter: KafkaAdapter, name: str, destination: str, body: bytes, delay_time: int | None = None
) -> None:
    begun = Transaction(name, STATES.OPEN, wall(), 60_000, None, messages=0, size=0)
    message = Message(destination, body, message_id=uuid4().hex, born_timestamp=wall(), delay_time=delay_time)
    await asyncio.wait_for(adapter.prepare(begun, message), WAIT)


async def complete(messages: Sequence[Message]) -> Sequence[Message]:
    return [message._replace(partition=0, store_timestamp=wall(), store_host="h:1") for message in messages]


async def commit(adapter: KafkaAdapter, name: str, completing: Complete = complete) -> Sequence[Stored | None]:
    return await asyncio.wait_for(adapter.commit(name, completing), WAIT)


def state(adapter: KafkaAdapter, name: str) -> TransactionState:
    return adapter.known_transactions()[name].state


async def test_what_one_destination_refuses_no_destination_gets(place: Place) -> None:
    adapter = await place.open()
    small, large = topic_of(place.servers, 1, **{"max.message.bytes": "2000"}), topic_of(place.servers, 1)
    for name in ("refused", "other"):
        await prepare(adapter, name, large, name.encode())
        await prepare(adapter, name, small, b"x" * (5_000 if name == "refused" else 10))
    refused, other = await asyncio.gather(
        commit(adapter, "refused"), commit(adapter, "other"), return_exceptions=True
    )  # in one transaction of Kafka's, at first
    assert isinstance(refused, BodyTooLarge)
    assert not isinstance(other, BaseException)
    assert (state(adapter, "refused"), state(adapter, "other")) == (STATES.OPEN, STATES.COMMITTED)
    assert (place.bodies(large), place.bodies(small)) == ([b"other"], [b"x" * 10])
    await adapter.rollback("refused")
    assert place.bodies(large) == [b"other"]


async def test_a_bridge_has_no_messages_of_others_in_memory_and_commits_them(place: Place) -> None:
    first, second = await place.open(), await place.open()
    destination = topic_of(place.servers, 1)
    for number in range(4):
        await prepare((first, second)[number % 2], "tx", destination, b"%d" % number + bytes(1_000))
        await prepare(first, "open", destination, b"open" + bytes(1_000))
    await until(lambda: second.known_transactions()["open"].messages == 4, lambda: "all are read")
    for adapter, own in (first, 6), (second, 2):
        gauges = adapter.gauges()
        assert 8_000 < gauges["prepared_bytes"] < 20_000
        assert round(gauges["prepared_held_bytes"] * 8 / gauges["prepared_bytes"]) == own
    assert len(await commit(second, "tx")) == 4
    third = await place.open()
    assert third.gauges()["prepared_held_bytes"] == 0
    assert 4_000 < third.gauges()["prepared_bytes"] < 10_000
    assert len(await commit(third, "open")) == 4
    assert [body[:4].strip(b"\0") for body in place.bodies(destination)] == [
        *(b"%d" % number for number in range(4)),
        *[b"open"] * 4,
    ]
    assert third.gauges()["prepared_bytes"] == 0


async def test_the_open_transactions_of_all_bridges_are_bounded(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = await place.open(), await place.open()
    destination = topic_of(place.servers, 1)
    await prepare(first, "first", destination, bytes(10_000))
    monkeypatch.setattr(transactions, "PREPARED_MAX", 15_000)
    await until(lambda: second.gauges()["prepared_bytes"] > 0, lambda: "it is read")
    with pytest.raises(BackendFull, match="of all bridges"):
        await prepare(second, "second", destination, bytes(10_000))
    await first.rollback("first")
    await until(lambda: second.gauges()["prepared_bytes"] == 0, lambda: "it is read")
    await prepare(second, "second", destination, bytes(10_000))


async def test_refused_commits_take_no_other_transactional_id(place: Place) -> None:
    """Brokers remember each id for 7 days."""
    adapter = await place.open()
    small = topic_of(place.servers, 1, **{"max.message.bytes": "2000"})
    for number in range(2):
        await prepare(adapter, f"refused {number}", small, bytes(5_000))
        await prepare(adapter, f"other {number}", small, b"%d" % number)
        refused, other = await asyncio.gather(
            commit(adapter, f"refused {number}"), commit(adapter, f"other {number}"), return_exceptions=True
        )
        assert isinstance(refused, BodyTooLarge)
        assert not isinstance(other, BaseException)
    assert sorted(place.bodies(small)) == [b"%d" % number for number in range(2)]
    prefix = parse(place.url).prefix
    with closing(KafkaAdminClient(bootstrap_servers=place.servers)) as admin:
        ids = [each.transactional_id for listed in admin.list_transactions().values() for each in listed]
    assert len([each for each in ids if each.startswith(prefix)]) == 1


async def test_refused_commits_at_the_same_time_end_no_other_for_long(place: Place) -> None:
    """Each failure fences the writer before, and never the next one."""
    adapter = await place.open()
    small = topic_of(place.servers, 1, **{"max.message.bytes": "2000"})
    names = [f"tx {number}" for number in range(20)]
    for number, name in enumerate(names):
        await prepare(adapter, name, small, bytes(5_000) if number % 4 == 0 else b"%d" % number)
    results = await asyncio.gather(*(commit(adapter, name) for name in names), return_exceptions=True)
    assert [isinstance(each, BodyTooLarge) for each in results] == [number % 4 == 0 for number in range(20)]
    assert sorted(place.bodies(small)) == sorted(b"%d" % number for number in range(20) if number % 4)


@pytest.mark.usefixtures("impatient")
async def test_a_bridge_that_was_fenced_in_its_commit_stores_nothing_twice(place: Place) -> None:
    first, second = await place.open(), await place.open()
    destination = topic_of(place.servers, 1)
    await prepare(first, "tx", destination, b"once")
    claimed, go_on = asyncio.Event(), asyncio.Event()

    async def stand_still(messages: Sequence[Message]) -> Sequence[Message]:
        claimed.set()
        await go_on.wait()
        return await complete(messages)

    slow = asyncio.create_task(commit(first, "tx", stand_still))
    await claimed.wait()
    assert len(await commit(second, "tx")) == 1
    go_on.set()
    assert len(await slow) == 0
    assert place.bodies(destination) == [b"once"]
    assert state(first, "tx") is STATES.COMMITTED
    await prepare(first, "next", destination, b"next")
    assert len(await commit(first, "next")) == 1
    assert place.bodies(destination) == [b"once", b"next"]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("end", ["commit", pytest.param("rollback", marks=pytest.mark.extended)])
async def test_a_bridge_killed_in_its_commit_holds_up_no_other(place: Place, end: str) -> None:
    adapter = await place.open()
    destination = topic_of(place.servers, 1)
    await prepare(adapter, "tx", destination, b"once")
    log = adapter._transactions._topic
    with closing(KafkaProducer(bootstrap_servers=place.servers, transactional_id=f"{log.name}.dead")) as dead:
        dead.init_transactions()
        await log.append(log.entry(Kind.CLAIMED, "tx", f"{log.name}.dead"))
        dead.begin_transaction()
        dead.send(destination, b"once").get(WAIT)
        marker = control(log.name, log.entry(Kind.COMMITTED, "tx", f"{log.name}.dead"), wall())
        dead.send(marker.topic, marker.value, headers=list(marker.headers), partition=0).get(WAIT)
        await prepare(adapter, "other", destination, b"other")
        if end == "commit":
            assert len(await commit(adapter, "tx")) == 1
        else:
            await asyncio.wait_for(adapter.rollback("tx"), WAIT)
        await commit(adapter, "other")
        assert place.bodies(destination) == ([b"once", b"other"] if end == "commit" else [b"other"])


async def test_records_of_ended_transactions_are_deleted(place: Place) -> None:
    adapter = await place.open()
    destination = topic_of(place.servers, 1)
    for name in ("committed", "dropped", "open"):
        await prepare(adapter, name, destination, name.encode())
    await commit(adapter, "committed")
    await adapter.rollback("dropped")
    log = adapter._transactions._topic
    await log.tidy()
    part = TopicPartition(log.name, 0)
    with closing(KafkaAdminClient(bootstrap_servers=place.servers)) as admin:
        assert admin.list_partition_offsets({part: OffsetSpec.EARLIEST})[part].offset == 2, "the open one remains"
    again = await place.open()
    assert {name: each.state for name, each in again.known_transactions().items()} == {
        "committed": STATES.COMMITTED,
        "dropped": STATES.ROLLED_BACK,
        "open": STATES.OPEN,
    }
    with pytest.raises(TransactionEnded):
        await commit(again, "dropped")
    assert len(await commit(again, "open")) == 1
    assert place.bodies(destination) == [b"committed", b"open"]


@pytest.mark.extended
async def test_a_delayed_message_waits_after_its_commit(place: Place) -> None:
    adapter = await place.open()
    destination = topic_of(place.servers, 1)
    await prepare(adapter, "tx", destination, b"now")
    await prepare(adapter, "tx", destination, b"late", delay_time=4_000)
    assert [each == Stored(None, None) for each in await commit(adapter, "tx") if each] == [False, True]
    assert place.bodies(destination) == [b"now"]
    found = await asyncio.to_thread(read, place.servers, destination, 2, isolation="read_committed")
    assert [record.value for record in found] == [b"now", b"late"]


@pytest.mark.extended
async def test_a_commit_without_the_permission_leaves_the_transaction_open(stoppable_kafka: Kafka) -> None:
    place = Place(f"{USER}:{PASSWORD}@{stoppable_kafka.bootstrap_of('SASL_PLAINTEXT')}")
    url = f"{place.url}&mechanism=PLAIN"
    prefix = parse(url).prefix
    destination = topic_of(stoppable_kafka.bootstrap, 1)
    with closing(KafkaAdminClient(bootstrap_servers=stoppable_kafka.bootstrap)) as admin:

        def allow(kind: ResourceType, start: str, *operations: ACLOperation) -> None:
            pattern = ResourcePattern(kind, start, ACLResourcePatternType.PREFIXED)
            rules = [ACL(f"User:{USER}", "*", each, ACLPermissionType.ALLOW, pattern) for each in operations]
            assert admin.create_acls(rules)["succeeded"] == rules

        allow(ResourceType.TOPIC, destination, ACLOperation.WRITE)
        allow(ResourceType.TOPIC, prefix, ACLOperation.READ, ACLOperation.WRITE, ACLOperation.CREATE)
        adapter = await place.open(url)
        await prepare(adapter, "tx", destination, b"once")
        with pytest.raises(Refused, match="no permission for the transactional id"):
            await commit(adapter, "tx")
        assert state(adapter, "tx") is STATES.OPEN
        allow(ResourceType.TRANSACTIONAL_ID, prefix, ACLOperation.WRITE)
        assert len(await commit(adapter, "tx")) == 1
        await adapter.close()
    [record] = everything(stoppable_kafka.bootstrap, destination, isolation="read_committed")
    assert record.value == b"once"


@pytest.mark.extended
async def test_a_restart_of_the_broker_leaves_each_transaction_whole(stoppable_kafka: Kafka) -> None:
    place = Place(stoppable_kafka.bootstrap)
    adapter = await place.open()
    destinations = [topic_of(place.servers, 1) for _ in range(2)]
    answered: list[str] = []

    async def work(number: int, enough: Callable[[], bool]) -> None:
        while not enough():
            name = f"{number} {uuid4().hex}"
            with suppress(BridgeError):
                for destination in destinations:
                    await prepare(adapter, name, destination, name.encode())
                await commit(adapter, name)
                answered.append(name)
            await asyncio.sleep(0.01)

    async def work_until(enough: Callable[[], bool]) -> None:
        await asyncio.wait_for(asyncio.gather(*(work(number, enough) for number in range(8))), 3 * WAIT)

    await work_until(lambda: len(answered) > 50)
    started = asyncio.Event()
    working = asyncio.create_task(work_until(started.is_set))
    [node] = stoppable_kafka.nodes
    await asyncio.to_thread(node.kill)
    await asyncio.to_thread(node.start)
    started.set()
    await working
    wanted = len(answered) + 50
    await work_until(lambda: len(answered) > wanted)
    for name, each in adapter.known_transactions().items():
        if each.state is STATES.OPEN:
            await asyncio.wait_for(adapter.rollback(name), WAIT)
    stored = [Counter(place.bodies(destination)) for destination in destinations]
    await adapter.close()
    assert stored[0] == stored[1]
    assert set(stored[0].values()) == {1}
    assert {name.encode() for name in answered} <= stored[0].keys()


@pytest.mark.extended
async def test_a_kill_in_the_middle_of_commits_leaves_each_transaction_whole(place: Place) -> None:
    destinations = [topic_of(place.servers, 1) for _ in range(2)]
    answered: set[str] = set()
    dropped: set[str] = set()
    sizes: dict[str, int] = {}
    """Messages of transactions that were open after a kill."""
    for _ in range(4):
        arguments = json.dumps([place.url, destinations])
        command = [sys.executable, "-m", child_commits.__name__, arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:  # noqa: ASYNC220 - it starts only
            assert child.stdout is not None
            wanted = random.randint(20, 200)  # noqa: S311 - for the moment of the kill
            answered.update([(await asyncio.to_thread(child.stdout.readline)).strip() for _ in range(wanted)])
            child.kill()
            answered.update(child.stdout.read().split())
        adapter = await place.open()
        left = [each for each in adapter.known_transactions().values() if each.state is STATES.OPEN]
        for number, each in enumerate(left):
            if number % 2:
                dropped.add(each.id)
                await asyncio.wait_for(adapter.rollback(each.id), WAIT)
            else:
                sizes[each.id] = each.messages
                await commit(adapter, each.id)
        await adapter.close()
    found = Counter(body.decode() for destination in destinations for body in place.bodies(destination))
    assert {name: count for name, count in found.items() if count != sizes.get(name, 3)} == {}
    assert answered | sizes.keys() <= found.keys()
    assert not dropped & found.keys()
