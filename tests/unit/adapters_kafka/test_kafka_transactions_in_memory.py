"""Transactions on a topic in memory: what a call reports if other bridges claim, release and commit meanwhile."""

import asyncio
from typing import cast

import pytest

from adapters.base import Stored, Transaction, TransactionState
from adapters.kafka.admin import Admin
from adapters.kafka.mapping import Outgoing, Record
from adapters.kafka.options import Options
from adapters.kafka.produce.publisher import Publisher
from adapters.kafka.topics import Cluster, Topics
from adapters.kafka.transaction import group_commit, topic, transactions
from adapters.kafka.transaction.group_commit import CommitFailed, GroupCommit
from adapters.kafka.transaction.table import Entry, Kind, control
from adapters.kafka.transaction.topic import TransactionTopic
from adapters.kafka.transaction.transactions import Transactions
from bridge.errors import BackendUnavailable, TransactionEnded
from bridge.message import Message

NOW = 1_800_000_000_000
OPTIONS = Options(("nowhere",))
CLUSTER = Cluster(OPTIONS, cast("Admin", None), cast("Topics", None), cast("Publisher", None))
OPEN = Transaction("tx", TransactionState.OPEN, NOW, 60_000, None, messages=0, size=0)


class MemoryTopic(TransactionTopic):
    """Reads what it is sent at once."""

    async def read(self, *, create: bool) -> bool:
        del create
        return True

    async def _send(self, record: Outgoing) -> None:
        self.lay(record)

    def lay(self, *records: Outgoing) -> None:
        """Have records read together."""
        first = self.table.next
        self._take([Record(self.name, 0, first + n, *each[2:]) for n, each in enumerate(records)])

    def say(self, *entries: tuple[Kind, str]) -> None:
        """Have entries of other bridges' writers read together."""
        self.lay(*(control(self.name, Entry(kind, "tx", writer), NOW) for kind, writer in entries))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> tuple[Transactions, MemoryTopic]:
    monkeypatch.setattr(transactions, "TransactionTopic", MemoryTopic)

    async def to_outgoing(message: Message) -> Outgoing:
        raise AssertionError(message)

    made = Transactions(CLUSTER, to_outgoing)
    return made, cast("MemoryTopic", made._topic)


def message(body: bytes) -> Message:
    return Message("orders", body, message_id=body.decode(), born_timestamp=NOW, born_host="h")


async def test_a_message_behind_a_claim_that_failed_is_part_of_what_the_next_claim_commits(
    bench: tuple[Transactions, MemoryTopic],
) -> None:
    """The call must not report that the transaction had ended without the message."""
    made, log = bench
    await made.prepare(OPEN, message(b"1"))
    log.say((Kind.CLAIMED, "a"))
    preparing = asyncio.create_task(made.prepare(OPEN, message(b"2")))
    await asyncio.sleep(0.01)
    assert not preparing.done()
    log.say((Kind.RELEASED, "a"), (Kind.CLAIMED, "b"), (Kind.COMMITTED, "b"))
    await asyncio.wait_for(preparing, 60)


async def test_a_message_behind_the_claim_that_commits_is_not(bench: tuple[Transactions, MemoryTopic]) -> None:
    made, log = bench
    await made.prepare(OPEN, message(b"1"))
    log.say((Kind.CLAIMED, "a"))
    preparing = asyncio.create_task(made.prepare(OPEN, message(b"2")))
    await asyncio.sleep(0.01)
    log.say((Kind.COMMITTED, "a"))
    with pytest.raises(TransactionEnded):
        await asyncio.wait_for(preparing, 60)


async def test_a_topic_that_was_deleted_is_read_again_when_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if another bridge creates it, and this one has no call that would look."""
    monkeypatch.setattr(topic, "_LOOK", 0.001)
    reads: list[bool] = []

    class Counting(TransactionTopic):
        async def read(self, *, create: bool) -> bool:
            reads.append(create)
            self.is_read = True
            return True

    one = Counting(CLUSTER, lambda: asyncio.sleep(0))
    await one.start()
    await one._stop_reading()
    async with asyncio.timeout(60):
        while not one.is_read:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.001)
    assert len(reads) > 1
    await one.close()


class BrokenWriter:
    """A writer whose transactions fail, and that cannot even be closed."""

    def __init__(self, _: Options, name: str) -> None:
        self.name = name

    def start(self) -> None: ...

    def commit(self, *_: object, alone: bool) -> list[Stored]:
        raise CommitFailed(BackendUnavailable("away"), "orders", ending=False, alone=alone)

    def close(self) -> None:
        raise ZeroDivisionError("a defect of the library")


async def test_a_commit_that_fails_is_answered_whatever_else_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "_Writer", BrokenWriter)
    group = GroupCommit(OPTIONS)
    for _ in range(2):
        writer = await group.writer()
        with pytest.raises(CommitFailed):
            await asyncio.wait_for(group.commit(writer, [], alone=False), 20)
    assert group.current is None
    await group.close()
