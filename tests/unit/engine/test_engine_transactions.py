"""Open transactions after their timeout, what clients may hold, and what outlives a client's patience."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from adapters.base import Complete, Stored, Transaction, TransactionState
from adapters.memory.adapter import MemoryAdapter
from adapters.memory.options import Options
from adapters.testing.replay import logs_of
from bridge.engine.engine import Engine
from bridge.engine.open_transactions import (
    CHECKS_MAX,
    Decision,
    TransactionChecks,
    TransactionDeadlines,
    TransactionRequest,
)
from bridge.engine.options import EngineOptions
from bridge.engine.produced import Produced
from bridge.errors import (
    BackendFull,
    BackendUnavailable,
    CallbackRefused,
    FieldUnsupported,
    LimitReached,
    OutcomeUnknown,
    TransactionEnded,
)
from bridge.message import FIELDS, Message
from tests.calls import only
from tests.unit.engine.virtual import LoopClock, until

OPTIONS = EngineOptions(store_host="here", produce_timeout=1000)
SECOND = 1000


def request(name: str, *, commits: bool = False, check: str | None = None, timeout: int = 10_000) -> TransactionRequest:
    return TransactionRequest(name, commits, timeout, check)


class Backend(MemoryAdapter):
    """A memory backend whose commits fail or wait as a test says."""

    def __init__(self) -> None:
        super().__init__(Options(partitions=1))
        self.failures: list[Exception] = []
        self.may_commit = asyncio.Event()
        self.may_commit.set()

    async def commit(self, transaction: str, complete: Complete) -> Sequence[Stored | None]:
        await self.may_commit.wait()
        if self.failures:
            raise self.failures.pop(0)
        return await super().commit(transaction, complete)


class Bridge:
    """An engine, and an endpoint that answers its checks."""

    def __init__(self, adapter: Backend, clock: LoopClock, options: EngineOptions = OPTIONS) -> None:
        self.engine = Engine(adapter, clock, options)
        self.adapter = adapter
        self.clock = clock
        self.transactions = self.engine.transactions
        self.answers: list[Decision] = []
        self.asked: list[int] = []
        """Seconds since the start of the test."""
        self._begun = clock.mono()

        async def ask(transaction: Transaction) -> Decision:
            assert transaction.check == "https://shop.example/"
            self.asked.append((clock.mono() - self._begun) // SECOND)
            return self.answers.pop(0) if self.answers else Decision.UNKNOWN

        self.transactions.checks = TransactionChecks(lambda _: None, ask)

    async def prepare(self, name: str, body: bytes = b"x", peer: str = "10.0.0.1:5", **more: Any) -> None:  # noqa: ANN401 - the same
        await self.produce(request(name, **more), Message("orders", body), peer)

    async def produce(self, request: TransactionRequest, message: Message, peer: str = "10.0.0.1:5") -> Produced:
        return only(await self.transactions.produce(request, [message], (), peer, None))

    async def commit(self, name: str) -> Transaction:
        return await self.transactions.commit(name)

    def state(self, name: str) -> TransactionState:
        return self.transactions.get(name).state

    async def ended(self, name: str) -> TransactionState:
        await until(lambda: self.state(name) is not TransactionState.OPEN, 0.05)
        return self.state(name)

    @property
    def seconds(self) -> int:
        return (self.clock.mono() - self._begun) // SECOND


Start = Callable[..., Awaitable[Bridge]]


@pytest.fixture
async def start(clock: LoopClock) -> AsyncIterator[Start]:
    started: list[Bridge] = []

    async def start(adapter: Backend | None = None, **options: Any) -> Bridge:  # noqa: ANN401 - of any option
        bridge = Bridge(adapter or Backend(), clock, OPTIONS._replace(**options))
        started.append(bridge)
        await bridge.engine.start()
        return bridge

    yield start
    for bridge in started:
        await bridge.engine.close()


@pytest.mark.parametrize("decision", [Decision.COMMIT, Decision.ROLLBACK])
async def test_the_producer_decides_after_the_timeout(start: Start, decision: Decision) -> None:
    bridge = await start()
    bridge.answers = [Decision.UNKNOWN, Decision.UNKNOWN, decision]
    await bridge.prepare("tx", check="https://shop.example/")
    expected = TransactionState.COMMITTED if decision is Decision.COMMIT else TransactionState.ROLLED_BACK
    assert await bridge.ended("tx") is expected
    assert bridge.asked == [10, 15, 25], "the pause between two checks doubles"
    assert bridge.engine.counters.transaction_checks == 3


async def test_without_an_answer_it_is_rolled_back_in_the_end(start: Start) -> None:
    bridge = await start()
    await bridge.prepare("tx", check="https://shop.example/")
    assert await bridge.ended("tx") is TransactionState.ROLLED_BACK
    assert len(bridge.asked) == CHECKS_MAX


async def test_without_a_check_the_timeout_rolls_back(start: Start) -> None:
    bridge = await start()
    await bridge.prepare("tx")
    await bridge.prepare("other", timeout=30_000)
    assert await bridge.ended("tx") is TransactionState.ROLLED_BACK
    assert (bridge.seconds, bridge.asked, bridge.state("other")) == (10, [], TransactionState.OPEN)
    with pytest.raises(TransactionEnded) as caught:
        await bridge.commit("tx")
    assert caught.value.extra == {"state": "rolled-back"}
    assert bridge.transactions.opened == 1


async def test_another_bridge_ends_what_a_dead_one_began_some_seconds_later(start: Start) -> None:
    adapter = Backend()
    first, second = await start(adapter), await start(adapter)
    await first.prepare("tx")
    await first.engine._transaction_watch.close()
    assert await second.ended("tx") is TransactionState.ROLLED_BACK
    assert second.seconds in range(15, 17)


async def test_a_retry_at_another_bridge_is_committed_once(start: Start) -> None:
    adapter = Backend()
    first, second = await start(adapter), await start(adapter)
    source = {"source": "/shop"}
    other = Message("orders", b"x", message_id="m", properties=source)
    messages = [
        Message("orders", b"x", message_id="m"),
        other,
        Message("bills", b"x", message_id="m"),
        Message("orders", b"unnamed"),
    ]
    for bridge in (first, second):
        for message in messages:
            await bridge.produce(request("tx"), message)
    assert adapter.known_transactions()["tx"].messages == 8
    [result] = await second.transactions.produce(request("tx", commits=True), [other], (), "10.0.0.1:5", None)
    assert isinstance(result, Produced)
    assert (result.duplicate, result.stored.offset is not None) == (True, True)
    assert (second.engine.counters.produced, second.engine.counters.duplicates) == (5, 1 + 3)
    assert sorted(logs_of(adapter).values()) == [(0, 1), (0, 4)]


async def test_messages_of_one_name_with_two_bodies_are_both_committed(start: Start) -> None:
    """Only a bridge that has prepared the first one can refuse the second; nothing is lost."""
    adapter = Backend()
    for number, bridge in enumerate((await start(adapter), await start(adapter))):
        await bridge.produce(request("tx"), Message("orders", b"%d" % number, message_id="m"))
    await bridge.commit("tx")
    assert list(logs_of(adapter).values()) == [(0, 2)]


async def test_a_backend_that_cannot_commit_is_asked_again(start: Start) -> None:
    adapter = Backend()
    bridge = await start(adapter)
    bridge.answers = [Decision.COMMIT, Decision.COMMIT]
    adapter.failures = [BackendUnavailable("down")]
    await bridge.prepare("tx", check="https://shop.example/")
    assert await bridge.ended("tx") is TransactionState.COMMITTED
    assert bridge.asked == [10, 15]


async def test_a_commit_goes_on_after_the_client_was_answered(start: Start) -> None:
    adapter = Backend()
    bridge = await start(adapter)
    await bridge.prepare("tx")
    adapter.may_commit.clear()
    with pytest.raises(OutcomeUnknown):
        await bridge.commit("tx")
    adapter.may_commit.set()
    assert await bridge.ended("tx") is TransactionState.COMMITTED
    assert bridge.engine.counters.transactions_committed == 1
    assert bridge.engine.destination_counts["orders"].stored == 1


async def test_clients_have_shares_of_what_is_open(start: Start) -> None:
    bridge = await start(transactions=4, prepared_bytes=1000)
    await bridge.prepare("a")
    await bridge.prepare("b")
    with pytest.raises(LimitReached, match=r"limits\.transactions"):
        await bridge.prepare("c")
    await bridge.prepare("c", peer="10.0.0.2:5")
    with pytest.raises(LimitReached, match=r" limits\.prepared_bytes\.$"):
        await bridge.prepare("c", b"x" * 500)
    with pytest.raises(BackendFull, match=r" limits\.prepared_bytes\.$"):
        await bridge.prepare("d", b"x" * 1000, peer="127.0.0.1:5")
    await bridge.transactions.rollback("a")
    await bridge.prepare("e")
    await bridge.commit("b")
    await bridge.prepare("f")
    assert {each.id for each in bridge.transactions.all_open()} == {"c", "e", "f"}


async def test_a_message_that_is_refused_creates_no_destination(start: Start) -> None:
    bridge = await start(transactions=2)
    await bridge.prepare("ended")
    await bridge.commit("ended")
    await bridge.prepare("open")
    for name, error in ("ended", TransactionEnded), ("new", LimitReached):
        with pytest.raises(error):
            await bridge.produce(request(name), Message("never", b""))
    assert bridge.adapter.known_partitions("never") is None


@pytest.mark.parametrize("commits", [True, False])
async def test_delayed_messages_of_transactions_count_in_the_share_of_their_client(start: Start, commits: bool) -> None:
    bridge = await start(delayed=4)

    async def prepare(name: str, delay: int = 60_000, peer: str = "10.0.0.1:5") -> None:
        await bridge.produce(request(name), Message("orders", b"x", delay_time=delay), peer)

    await prepare("a")
    await prepare("a")
    with pytest.raises(LimitReached, match=r"limits\.delayed"):
        await prepare("a")
    with pytest.raises(LimitReached, match=r"limits\.delayed"):
        await prepare("b")
    await prepare("c", peer="10.0.0.2:5")
    if not commits:
        await bridge.transactions.rollback("a")
        await prepare("b")
        await prepare("b")
        return
    await bridge.commit("a")
    with pytest.raises(LimitReached, match=r"limits\.delayed"):
        await prepare("b")
    await prepare("c", peer="10.0.0.2:5")


async def test_bytes_of_delayed_messages_count_until_the_transaction_ends(start: Start) -> None:
    bridge = await start(delayed_bytes=1000)
    for number in range(3):
        for size in (300, 150):
            await bridge.produce(request(f"tx {number}"), Message("orders", bytes(size), delay_time=60_000))
        with pytest.raises(LimitReached, match=r"limits\.delayed_bytes"):
            await bridge.produce(request("other"), Message("orders", bytes(300), delay_time=60_000))
        await bridge.transactions.rollback(f"tx {number}")


async def test_what_a_prepared_message_requires_is_checked(start: Start) -> None:
    bridge = await start()
    require = [field for field in FIELDS if field.name == "durability"]  # in memory nothing is
    message = Message("orders", b"", durability=1)
    [result] = await bridge.transactions.produce(request("tx"), [message], require, "10.0.0.1:5", None)
    assert isinstance(result, FieldUnsupported)
    assert bridge.adapter.known_transactions() == {}


async def test_the_url_of_a_check_is_checked_before_anything_is_stored(start: Start) -> None:
    bridge = await start()

    def refuse(url: str) -> None:
        raise CallbackRefused(f"{url} may not be called")

    assert bridge.transactions.checks is not None
    bridge.transactions.checks = bridge.transactions.checks._replace(check_url=refuse)
    with pytest.raises(CallbackRefused, match=r"https://shop\.example/ may not be called"):
        await bridge.prepare("tx", check="https://shop.example/")
    assert bridge.adapter.known_transactions() == {}


async def test_a_retry_of_a_message_that_is_being_prepared_gets_its_result(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = Backend()
    bridge = await start(adapter)
    await bridge.prepare("other")
    prepare, may_prepare = adapter.prepare, asyncio.Event()

    async def late(*arguments: Any) -> Any:  # noqa: ANN401 - of the adapter's method
        await may_prepare.wait()
        return await prepare(*arguments)

    monkeypatch.setattr(adapter, "prepare", late)
    message = Message("orders", b"x", message_id="m")
    both = [asyncio.ensure_future(bridge.produce(request("tx"), message)) for _ in range(2)]
    await asyncio.sleep(0.1)
    assert not any(each.done() for each in both)
    may_prepare.set()
    first, second = await asyncio.gather(*both)
    assert (first.duplicate, second) == (False, first._replace(duplicate=True))
    assert adapter.known_transactions()["tx"].messages == 1


async def test_a_commit_that_is_stored_at_once_says_where(clock: LoopClock) -> None:
    adapter = MemoryAdapter(Options(partitions=1))
    engine = Engine(adapter, clock, OPTIONS)
    await engine.start()
    sent = [Message("orders", b"x", message_id=str(number)) for number in range(2)]
    results = await engine.transactions.produce(request("tx", commits=True), sent, (), "10.0.0.1:5", None)
    assert [each.stored for each in results if isinstance(each, Produced)] == [Stored(0, 0), Stored(0, 1)]
    assert (engine.counters.transactions_committed, engine.counters.produced) == (1, 2)
    await engine.close()


async def test_what_could_not_be_prepared_is_not_counted(start: Start) -> None:
    adapter = Backend()
    bridge = await start(adapter, transactions=2)

    async def fail(*_: object) -> None:
        raise BackendFull("full")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adapter, "prepare", fail)
        for number in range(5):
            with pytest.raises(BackendFull):
                await bridge.prepare(f"tx {number}")
    assert bridge.transactions.opened == 0
    assert bridge.engine.counters.in_flight == 0
    await bridge.prepare("tx")


async def test_an_expired_message_is_not_stored_by_the_commit(start: Start, clock: LoopClock) -> None:
    bridge = await start()
    expires = clock.wall() + 2 * SECOND
    for body, expire_time in ((b"kept", None), (b"expired", expires)):
        message = Message("orders", body, expire_time=expire_time)
        await bridge.produce(request("tx"), message)
    await asyncio.sleep(3)
    committed = clock.wall()
    last = await bridge.produce(request("tx", commits=True), Message("orders", b"last"))
    assert bridge.state("tx") is TransactionState.COMMITTED
    assert (last.store_timestamp, last.stored) == (committed, Stored(0, 1))
    assert (bridge.engine.counters.expired, bridge.engine.counters.produced) == (1, 3)


def test_ended_transactions_leave_no_deadlines() -> None:
    deadlines = TransactionDeadlines()
    deadlines.add("open", 1 << 40)
    for number in range(10_000):
        deadlines.add(f"tx {number}", 1 << 41)
        deadlines.remove(f"tx {number}")
    assert len(deadlines) < 2000
    assert deadlines.take_due(1 << 42) == ["open"]


def test_a_transaction_that_ended_is_not_due() -> None:
    deadlines = TransactionDeadlines()
    for name, deadline in (("b", 20), ("a", 10), ("c", 30)):
        deadlines.add(name, deadline)
    deadlines.add("a", 50)
    deadlines.remove("b")
    assert deadlines.take_due(30) == ["a", "c"]
    assert deadlines.undecided("a", 30)
    deadlines.remove("a")
    assert deadlines.take_due(1 << 40) == []
