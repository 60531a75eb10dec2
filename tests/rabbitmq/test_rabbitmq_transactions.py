"""Transactions in a real RabbitMQ: what the kit cannot ask of every backend, and a bridge that is killed."""

import asyncio
import os
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from adapters.base import Stored, TransactionState
from adapters.rabbitmq.adapter import RabbitMQAdapter
from adapters.rabbitmq.options import parse
from adapters.rabbitmq.topology.names import Own
from adapters.rabbitmq.transaction import ledger, transactions
from adapters.rabbitmq.transaction.ledger import encode
from adapters.testing import Harness, KitReader, Session
from bridge.errors import BackendFull, OutcomeUnknown, TransactionEnded
from bridge.message import Message
from tests.rabbitmq.bridged import backend
from tests.rabbitmq.rooms import until
from tests.rabbitmq.transacting import PARTS, commit, prepare, transactional

GUARD = 60.0
ROUNDS = 6
DEAD = "of-a-bridge-that-has-ended.1"


@pytest.fixture
def url(rabbitmq_url: str) -> str:
    return backend(rabbitmq_url, partitions=2)


@pytest_asyncio.fixture
async def session(url: str) -> AsyncIterator[Session]:
    async with Session(Harness("adapters.rabbitmq:connect", url)) as found:
        yield found


async def opened(session: Session) -> RabbitMQAdapter:
    adapter = await session.open()
    assert isinstance(adapter, RabbitMQAdapter)
    await session.partitions(adapter)
    return adapter


async def test_a_commit_of_a_bridge_that_has_ended_is_finished_once(session: Session) -> None:
    adapter, name = await opened(session), f"{session.destination}/tx"
    reader = await session.reader(adapter)
    for body in (b"a", b"b", b"c"):
        await prepare(adapter, name, session.destination, body)
    store = {"store_timestamp": 5, "partition": 1}
    await adapter._transactions._log.write(encode("commit", name, DEAD, [store, None, store]))
    other = await opened(session)
    assert transactional(other).known_transactions()[name].state is TransactionState.COMMITTED
    assert [await commit(each, name) for each in (other, adapter)] == [(), ()]
    found = await session.rest(adapter, reader)
    assert [(each.message.body, each.message.store_timestamp) for each in found] == [(b"a", 5), (b"c", 5)]
    third = await opened(session)
    assert not third._transactions._ledger.unfinished
    assert await commit(third, name) == ()
    assert await session.rest(adapter, reader) == []


@pytest.mark.extended
async def test_what_cannot_be_stored_yet_is_stored_later_and_nothing_twice(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "_CHECK_INTERVAL", (0.05, 0.05))
    adapter, name = await opened(session), f"{session.destination}/tx"
    reader = await session.reader(adapter)
    for body in (b"a", b"b"):
        await prepare(adapter, name, session.destination, body)
    refused = iter(range(3))
    publish = adapter.publish

    def fail(message: Message) -> asyncio.Future[Stored]:
        if message.body == b"b" and next(refused, None) is not None:
            failed: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
            failed.set_exception(BackendFull("full"))
            return failed
        return publish(message)

    monkeypatch.setattr(adapter, "publish", fail)
    with pytest.raises(OutcomeUnknown, match="is committed"):
        await commit(adapter, name)
    await until(lambda: name not in adapter._transactions._ledger.unfinished)
    assert [each.message.body for each in await session.rest(adapter, reader)] == [b"a", b"b"]


async def test_delayed_messages_wait_until_they_are_due(rabbitmq_url: str, prefix: str) -> None:
    async with Session(Harness("adapters.rabbitmq:connect", backend(rabbitmq_url, prefix=prefix))) as session:
        await _delayed(session)


async def _delayed(session: Session) -> None:
    adapter, name = await opened(session), f"{session.destination}/tx"
    reader = await session.reader(adapter)
    late = await prepare(adapter, name, session.destination, b"late", delay_time=2000)
    await prepare(adapter, name, session.destination, b"now")
    await commit(adapter, name)
    first, second = await reader.take(2)
    assert [first.message.body, second.message.body] == [b"now", b"late"]
    assert (second.message.due, second.message.transaction_id) == (late.due, name)


async def test_transactions_outlast_lost_connections(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        transactions, "_CHECK_INTERVAL", (0.05, 0.05)
    )  # also until the second bridge reads the new stream
    adapter, other, name = await opened(session), await opened(session), f"{session.destination}/tx"
    reader = await session.reader(adapter)
    await prepare(adapter, name, session.destination, b"a")
    link = other._consuming
    assert link._connection is not None
    link._connection.abort()
    await until(lambda: not link.up)
    await prepare(adapter, name, session.destination, b"b")
    await until(lambda: transactional(other).known_transactions().get(name, [0] * 6)[5] == 2)
    assert len(await commit(other, name)) == 2
    assert [each.message.body for each in await session.rest(adapter, reader)] == [b"a", b"b"]


@pytest.mark.extended
async def test_what_a_stream_has_lost_is_written_again(session: Session) -> None:
    """RabbitMQ can lose the last records of a stream if it is killed; here all are gone."""
    adapter, other = await opened(session), await opened(session)
    reader = await session.reader(adapter)
    names = [f"{session.destination}/{kind}" for kind in ("open", "committed", "dropped")]
    for name in names:
        await prepare(adapter, name, session.destination, name.encode())
    await commit(adapter, names[1])
    await transactional(adapter).rollback(names[2])
    before = adapter._transactions._ledger
    channel = await adapter._declaring.channel()
    stream = Own(parse(session.harness.url).prefix).transactions
    await channel.ask(stream, "queue_delete", queue=stream)
    await until(lambda: adapter._transactions._log._next is not before)
    await prepare(adapter, names[0], session.destination, b"more")
    assert len(await commit(other, names[0])) == 2
    assert await commit(adapter, names[1]) == ()
    with pytest.raises(TransactionEnded):
        await commit(adapter, names[2])
    found = [each.message.body for each in await session.rest(adapter, reader)]
    assert found == [names[1].encode(), names[0].encode(), b"more"]


@pytest.mark.extended
async def test_an_open_transaction_outlasts_the_oldest_records(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream drops its oldest records; what is unfinished was copied before, and what has ended is listed."""
    monkeypatch.setattr(transactions, "_CHECK_INTERVAL", (0.02, 0.02))
    monkeypatch.setattr(transactions, "LOG_BYTES", 400_000)
    monkeypatch.setattr(ledger, "_COPY", 100_000)
    monkeypatch.setattr(ledger, "_LIST", 100_000)
    adapter = await opened(session)
    reader = await session.reader(adapter)
    names = [f"{session.destination}/{kind}" for kind in ("open", "first", "other")]
    for name in names:
        for body in (b"a", b"b"):
            await prepare(adapter, name, session.destination, f"{name}{body!r}".encode())
    await transactional(adapter).rollback(names[1])
    for number in range(300):
        noise = f"{session.destination}/noise {number}"
        await prepare(adapter, noise, session.destination, bytes(10_000))
        await transactional(adapter).rollback(noise)
    late = await opened(session)
    known = transactional(late).known_transactions()
    assert known[names[1]].messages == 0, "the stream was cut"
    with pytest.raises(TransactionEnded):
        await commit(late, names[1])
    assert known[names[0]] == transactional(adapter).known_transactions()[names[0]]
    for name in (names[0], names[2]):
        assert len(await commit(late, name)) == 2
    found = [each.message.body for each in await session.rest(adapter, reader)]
    assert found == [f"{name}{body!r}".encode() for name in (names[0], names[2]) for body in (b"a", b"b")]


@pytest.mark.extended
async def test_killed_bridges_leave_no_transaction_in_part(session: Session, url: str) -> None:
    """Nothing is lost once a commit was answered, and of the others all messages come or none."""
    adapter, second = await opened(session), session.harness.name()
    readers = [await session.reader(adapter, source=name) for name in (session.destination, second)]
    answered: list[str] = []
    for _ in range(ROUNDS):
        answered += await killed(url, session.destination, second)
    after = await opened(session)
    await until(lambda: all(each.bridge is None for each in after._transactions._ledger.unfinished.values()))
    known = transactional(after).known_transactions()
    committed = {name for name, each in known.items() if each.state is TransactionState.COMMITTED}
    assert committed >= set(answered)
    found = Counter[bytes]()
    for reader, destination in zip(readers, (session.destination, second), strict=True):
        found.update(await taken(session, adapter, reader, destination))
    assert found.keys() == {f"{name}#{part}".encode() for name in committed for part in range(PARTS)}
    once = {f"{name}#{part}".encode() for name in answered for part in range(PARTS)}
    assert {body for body, count in found.items() if count > 1}.isdisjoint(once), (
        "a finished commit is not stored again"
    )


async def taken(session: Session, adapter: RabbitMQAdapter, reader: KitReader, destination: str) -> list[bytes]:
    """Settle all messages of the first partition; more than the reader can hold unsettled."""
    await session.publish(adapter, b"end", destination=destination)
    bodies: list[bytes] = []
    while b"end" not in bodies:
        found = await reader.fetch()
        await reader.settle(found)
        bodies += [each.message.body for each in found]
    return bodies[:-1]


async def killed(url: str, *destinations: str) -> list[str]:
    """Run a bridge that commits, kill it at a random moment, and return the transactions whose commit it answered."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.rabbitmq.transacting", url, *destinations),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert process.stdout is not None
    answered: list[bytes] = []
    enough = random.randint(10, 50)  # noqa: S311 - no secret
    try:
        async with asyncio.timeout(GUARD):
            while len(answered) < enough:
                answered.append(await process.stdout.readline())
    finally:
        process.kill()
        rest, _ = await process.communicate()
    lines = [*answered, *rest.splitlines(keepends=True)]
    return [line.decode().strip() for line in lines if line.endswith(b"\n")]
