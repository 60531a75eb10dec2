import asyncio
from collections.abc import Awaitable

import pytest

from adapters.base import Replayed, Stored
from bridge.continuation import Continuation
from bridge.engine.dedup import Deduplicator, RecentMessages
from bridge.engine.engine import Engine
from bridge.engine.field_support import Applied
from bridge.engine.options import EngineOptions
from bridge.engine.produce_batch_and_results import Produced, WaitingMessage
from bridge.errors import BackendFull, BackendUnavailable, BridgeError, IdempotencyMismatch, OutcomeUnknown
from bridge.message import Message
from tests.unit.engine.fakes import FakeAdapter
from tests.unit.engine.virtual import LoopClock, turns

WINDOW = 1000
ORDER = Message(destination="orders", body=b"order", message_id="m")
DONE = Produced("m", 5, "host", Stored(0, 7), Applied(()))


def recent(window: int = WINDOW, max_bytes: int = 1 << 20) -> RecentMessages:
    return RecentMessages(window, max_bytes)


def test_a_name_is_remembered_until_the_window_ends() -> None:
    messages = recent()
    assert messages.claim(ORDER, None, 0) is None
    messages.passed(ORDER, DONE)
    first = messages.claim(ORDER, None, WINDOW - 1)
    assert first is not None
    assert first.outcome == DONE
    assert messages.claim(ORDER, None, WINDOW) is None
    assert len(messages) == 1


def test_a_name_belongs_to_its_destination() -> None:
    messages = recent()
    assert messages.claim(ORDER, "k", 0) is None
    assert messages.claim(ORDER._replace(destination="other"), "k", 0) is None
    assert messages.claim(ORDER._replace(message_id="k"), None, 0) is None, "a key is no messageId"


def test_events_of_two_sources_may_have_one_id() -> None:
    messages = recent()
    for source in ("/orders", "/returns"):
        event = ORDER._replace(properties={"source": source})
        assert messages.claim(event, None, 0) is None
        assert messages.claim(event, None, 0) is not None
    assert messages.claim(ORDER, None, 0) is None


def test_a_key_finds_a_message_whose_id_is_new_each_time() -> None:
    messages = recent()
    assert messages.claim(ORDER, "k", 0) is None
    assert messages.claim(ORDER._replace(message_id="n"), "k", 0) is not None
    assert messages.claim(ORDER, None, 0) is not None
    assert messages.claim(ORDER._replace(message_id="n"), None, 0) is None


@pytest.mark.parametrize(("key", "named"), [("k", "idempotency key"), (None, "messageId")])
def test_another_body_is_refused(key: str | None, named: str) -> None:
    messages = recent()
    messages.claim(ORDER._replace(message_id="first" if key else "m"), key, 0)
    with pytest.raises(IdempotencyMismatch, match=f"this {named} and another body"):
        messages.claim(ORDER._replace(body=b"another"), key, 0)


def test_the_oldest_are_forgotten_when_there_are_too_many_bytes() -> None:
    messages = recent(max_bytes=10_000)
    for number in range(100):
        messages.claim(ORDER._replace(message_id=f"{number}"), "k" * 8 + str(number), 0)
    assert 4 < len(messages) < 40
    assert messages.claim(ORDER._replace(message_id="99"), None, 0) is not None
    assert messages.claim(ORDER._replace(message_id="0"), None, 0) is None
    alone = recent(max_bytes=10)
    alone.claim(ORDER, None, 0)
    assert alone.claim(ORDER, None, 0) is not None, "one always fits"


async def test_what_the_backend_did_not_store_is_forgotten() -> None:
    for error in (BackendFull("full"), OutcomeUnknown("lost")):
        messages = recent()
        messages.claim(ORDER, "k", 0)
        messages.passed(ORDER, error)
        assert len(messages) == 0
        future: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
        messages.claim(ORDER, "k", 0)
        claimed = messages.claimed(ORDER)
        messages.passed(ORDER, WaitingMessage("m", 5, Applied(()), future))
        assert messages.claim(ORDER, "k", 0) is not None
        messages.refused(claimed)
        assert len(messages) == 2, "it was passed to the backend"
        future.set_exception(error)
        await turns()
        assert len(messages) == 0


async def test_a_late_answer_concerns_the_message_it_belongs_to() -> None:
    messages = recent()
    future: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
    messages.claim(ORDER, None, 0)
    messages.passed(ORDER, WaitingMessage("m", 5, Applied(()), future))
    assert messages.claim(ORDER, None, WINDOW) is None
    future.set_exception(BackendUnavailable("gone"))
    await turns()
    assert messages.claim(ORDER, None, WINDOW) is not None


def test_a_late_refusal_concerns_the_message_it_belongs_to() -> None:
    messages = recent()
    messages.claim(ORDER, None, 0)
    late = messages.claimed(ORDER)
    assert messages.claim(ORDER, None, WINDOW) is None, "the first one is too old"
    messages.refused(late)
    assert messages.claim(ORDER, None, WINDOW) is not None
    messages.refused(messages.claimed(ORDER))
    assert len(messages) == 0


class SlowProducer:
    """Stores on request."""

    def __init__(self, messages: RecentMessages) -> None:
        self.calls = 0
        self.answer: asyncio.Future[Produced] = asyncio.get_running_loop().create_future()
        self._recent = messages

    def produce(self, message: Message, _: object, __: str) -> Awaitable[Produced]:
        self.calls += 1
        return self._produce(message, self.answer)

    async def _produce(self, message: Message, answer: asyncio.Future[Produced]) -> Produced:
        produced = await asyncio.shield(answer)
        self._recent.passed(message, produced)
        return produced

    async def produce_all(self, messages: object, _: object, __: str) -> list[Produced | BridgeError]:
        raise NotImplementedError

    async def result_of(self, waiting: WaitingMessage) -> Produced:
        raise NotImplementedError


async def test_copies_wait_for_the_first_and_replace_it_when_it_is_refused(clock: LoopClock) -> None:
    messages = recent()
    producer = SlowProducer(messages)
    engine = Engine(FakeAdapter(), clock, EngineOptions("bridge"))
    dedup = Deduplicator(producer, messages, clock, engine.counters, 30_000)

    async def produce() -> Produced:
        produced = dedup.produce(ORDER, (), "peer", None)
        return produced if isinstance(produced, Produced) else await produced

    copies = [asyncio.create_task(produce()) for _ in range(3)]
    await turns()
    assert producer.calls == 1
    refused, producer.answer = producer.answer, asyncio.get_running_loop().create_future()
    refused.set_exception(BackendFull("full"))
    await turns()
    assert producer.calls == 2, "one of the copies is the first now"
    producer.answer.set_result(DONE)
    with pytest.raises(BackendFull):
        await copies[0]
    assert sorted(produced.duplicate for produced in await asyncio.gather(*copies[1:])) == [False, True]
    assert engine.counters.duplicates == 1


async def test_a_named_message_that_waits_for_the_backend_takes_no_task(clock: LoopClock) -> None:
    adapter = FakeAdapter()
    engine = Engine(adapter, clock, EngineOptions("bridge", dedup_window=WINDOW))
    await engine.start()
    adapter.slow = True
    pending = [engine.produce(ORDER._replace(message_id=name), (), "peer") for name in (None, "m")]
    assert [isinstance(each, Continuation) for each in pending] == [True, True]
    await engine.close()


async def test_a_copy_does_not_wait_for_ever(clock: LoopClock) -> None:
    messages = recent()
    producer = SlowProducer(messages)
    dedup = Deduplicator(producer, messages, clock, Engine(FakeAdapter(), clock, EngineOptions("b")).counters, 10)
    produced = dedup.produce(ORDER, (), "peer", None)
    assert not isinstance(produced, Produced)
    first = asyncio.ensure_future(produced)
    await turns()
    copy = dedup.produce(ORDER, (), "peer", None)
    assert not isinstance(copy, Produced)
    with pytest.raises(OutcomeUnknown):
        await copy
    first.cancel()
    await turns()
    assert len(messages) == 0, "a client that left before the backend had its message"


async def test_messages_of_one_batch_with_one_name_are_stored_once(clock: LoopClock) -> None:
    adapter = FakeAdapter()
    engine = Engine(adapter, clock, EngineOptions("bridge"))
    await engine.start()
    other = ORDER._replace(message_id="n")
    results = await engine.produce_all([ORDER, other, ORDER, ORDER._replace(body=b"another")], (), "peer")
    assert [isinstance(result, Produced) and result.duplicate for result in results] == [False, False, True, False]
    assert isinstance(results[3], IdempotencyMismatch)
    assert len(adapter.published) == 2
    assert engine.counters.duplicates == 1


async def test_without_a_window_nothing_is_remembered(clock: LoopClock) -> None:
    adapter = FakeAdapter()
    engine = Engine(adapter, clock, EngineOptions("bridge", dedup_window=0))
    await engine.start()
    for _ in range(2):
        engine.produce(ORDER, (), "peer", "k")
        await engine.produce_all([ORDER], (), "peer", "k")
    assert len(adapter.published) == 4


class Log:
    """One log, and what waits to enter it."""

    def __init__(self, messages: list[Message], waiting: list[Message]) -> None:
        self._messages = messages
        self._waiting = waiting

    def logs(self) -> dict[str, tuple[int, int]]:
        return {"epoch/orders/0": (0, len(self._messages))}

    def replay(self, log: str, start: int, limit: int, max_bytes: int) -> Replayed:
        assert (log, max_bytes > 0) == ("epoch/orders/0", True)
        following = min(len(self._messages), start + limit)
        return Replayed(range(start, following), self._messages[start:following], following, [])

    def delayed(self, since: int) -> list[Message]:
        return [each for each in self._waiting if (each.store_timestamp or 0) >= since]


async def test_a_restart_finds_what_was_stored_before_many_old_messages_that_fell_due() -> None:
    clock = LoopClock(asyncio.get_running_loop())
    now = clock.wall()
    long_ago = now - 9000
    stored = ORDER._replace(store_timestamp=now - WINDOW // 2)
    old = [
        Message("orders", b"", message_id=f"{n}", born_timestamp=long_ago, store_timestamp=long_ago, delay_time=8900)
        for n in range(1200)
    ]
    waiting = ORDER._replace(message_id="w", store_timestamp=now - 1, delay_time=9000)
    forgotten = waiting._replace(message_id="f", store_timestamp=now - WINDOW)
    messages = recent()
    engine = Engine(FakeAdapter(), clock, EngineOptions(store_host="host"))
    dedup = Deduplicator(engine._producer, messages, clock, engine.counters, 1000)
    await dedup.restore(
        Log([stored, *old], [waiting, forgotten]),
        WINDOW,
        lambda message, offset: DONE._replace(message_id=message.message_id or "", stored=Stored(0, offset)),
    )
    found = {each.message_id: messages.claim(each, None, clock.mono()) for each in (stored, waiting, forgotten, old[0])}
    outcomes = {name: first.outcome for name, first in found.items() if first is not None}
    assert outcomes == {
        "m": DONE._replace(stored=Stored(0, 0)),
        "w": DONE._replace(message_id="w", stored=Stored(0, None)),
    }
