import asyncio
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.base import Replayed, Stored
from bridge.engine.batch import Batch
from bridge.engine.client_limits import INTERNAL
from bridge.engine.counters import Counters
from bridge.engine.dedup import Deduplicator
from bridge.engine.engine import Engine
from bridge.engine.field_support import Applied
from bridge.engine.message_names import named, names_of
from bridge.engine.options import EngineOptions
from bridge.engine.produced import Produced, WaitingMessage
from bridge.engine.recent_messages import FirstMessage, RecentMessages
from bridge.errors import BackendFull, BackendUnavailable, BridgeError, IdempotencyMismatch, OutcomeUnknown
from bridge.message import Message
from tests.unit.engine.fakes import FakeAdapter
from tests.unit.engine.virtual import LoopClock, turns

WINDOW = 1000
ORDER = Message(destination="orders", body=b"order", message_id="m")
DONE = Produced("m", 5, "host", Stored(0, 7), Applied(()))


def recent(window: int = WINDOW, max_bytes: int = 1 << 20) -> RecentMessages:
    return RecentMessages(window, max_bytes, 50)


def claim(
    messages: RecentMessages, message: Message, key: str | None, mono: int, client: str = INTERNAL
) -> FirstMessage | None:
    """Return the first message of the name, or None and claim the name."""
    names = names_of(message, key)
    if (first := messages.find(names, message.body, mono)) is None:
        messages.claim(names, message.body, client, mono)
    return first


def claimed(messages: RecentMessages, message: Message, key: str | None, mono: int) -> FirstMessage:
    return messages.claim(names_of(message, key), message.body, INTERNAL, mono)


def test_a_name_is_remembered_until_the_window_ends() -> None:
    messages = recent()
    messages.note(claimed(messages, ORDER, None, 0), DONE)
    first = claim(messages, ORDER, None, WINDOW - 1)
    assert first is not None
    assert first.outcome == DONE
    assert claim(messages, ORDER, None, WINDOW) is None
    assert len(messages) == 1


def test_a_name_belongs_to_its_destination() -> None:
    messages = recent()
    assert claim(messages, ORDER, "k", 0) is None
    assert claim(messages, ORDER._replace(destination="other"), "k", 0) is None
    assert claim(messages, ORDER._replace(message_id="k"), None, 0) is None, "a key is no messageId"


def test_events_of_two_sources_may_have_one_id() -> None:
    messages = recent()
    for source in ("/orders", "/returns"):
        event = ORDER._replace(properties={"source": source})
        assert claim(messages, event, None, 0) is None
        assert claim(messages, event, None, 0) is not None
    assert claim(messages, ORDER, None, 0) is None


def test_a_key_finds_a_message_whose_id_is_new_each_time() -> None:
    messages = recent()
    assert claim(messages, ORDER, "k", 0) is None
    assert claim(messages, ORDER._replace(message_id="n"), "k", 0) is not None
    assert claim(messages, ORDER, None, 0) is not None
    assert claim(messages, ORDER._replace(message_id="n"), None, 0) is None


@pytest.mark.parametrize(("key", "named"), [("k", "idempotency key"), (None, "messageId")])
def test_another_body_is_refused(key: str | None, named: str) -> None:
    messages = recent()
    claim(messages, ORDER._replace(message_id="first" if key else "m"), key, 0)
    with pytest.raises(IdempotencyMismatch, match=f"this {named} and another body"):
        claim(messages, ORDER._replace(body=b"another"), key, 0)


def test_the_oldest_are_forgotten_when_there_are_too_many_bytes() -> None:
    messages = recent(max_bytes=10_000)
    for number in range(100):
        claim(messages, ORDER._replace(message_id=f"{number}"), "k" * 8 + str(number), 0)
    assert 4 < len(messages) < 40
    assert claim(messages, ORDER._replace(message_id="99"), None, 0) is not None
    assert claim(messages, ORDER._replace(message_id="0"), None, 0) is None
    alone = recent(max_bytes=10)
    claim(alone, ORDER, None, 0)
    assert claim(alone, ORDER, None, 0) is not None, "one always fits"


@pytest.mark.parametrize("text", ["\0k", "k", "\0\0k", "idempotency key"])
def test_an_id_that_looks_like_its_key_is_forgotten_with_the_window(text: str) -> None:
    """Each such entry once had the same name twice, and made the next claim of anybody a `KeyError`."""
    messages = recent()
    for number in range(3):
        poison = ORDER._replace(destination=f"own-{number}", message_id=text)
        assert claim(messages, poison, "k", 0) is None
        assert claim(messages, poison._replace(message_id="another"), "k", 0) is not None
    assert len(messages) == 6
    assert claim(messages, ORDER, None, WINDOW) is None
    assert len(messages) == 1


def test_a_client_above_its_share_forgets_its_own_oldest() -> None:
    messages = recent(max_bytes=1_000_000)
    for number in range(100):
        assert claim(messages, ORDER._replace(message_id=f"{number}"), None, 0, "10.0.0.1") is None
    for number in range(5000):
        assert (
            claim(messages, ORDER._replace(message_id=f"flood-{number}"), "k" * 200 + f"{number}", 0, "10.0.0.2")
            is None
        )
    for number in range(100):
        assert claim(messages, ORDER._replace(message_id=f"{number}"), None, 0, "10.0.0.3") is not None
    kept = [
        number
        for number in range(5000)
        if messages.find(names_of(ORDER._replace(message_id=f"flood-{number}"), None), ORDER.body, 0) is not None
    ]
    assert kept == list(range(5000 - len(kept), 5000)), "the newest"
    assert 300 < len(kept) < 500, "half a megabyte"


def test_a_client_without_a_share_keeps_room_for_others() -> None:
    messages = recent(max_bytes=1_000_000)
    for number in range(5000):
        assert claim(messages, ORDER._replace(message_id=f"local-{number}"), None, 0) is None
        if number % 50 == 0:
            assert claim(messages, ORDER._replace(message_id=f"{number}"), None, 0, "10.0.0.1") is None
    for number in range(0, 5000, 50):
        assert claim(messages, ORDER._replace(message_id=f"{number}"), None, 0) is not None
    assert claim(messages, ORDER._replace(message_id="local-4999"), None, 0) is not None


@given(
    st.integers(1, 20_000),
    st.lists(
        st.tuples(
            st.sampled_from(["", "127.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3"]),
            st.text("ab", min_size=1, max_size=2) | st.just("x" * 4000),
            st.none() | st.sampled_from("ab"),
            st.sampled_from(["passed", "refused", "failed", "left", "refused twice"]),
            st.integers(0, WINDOW // 2),
        )
    ),
)
def test_whatever_comes_the_books_agree(max_bytes: int, events: list[tuple[str, str, str | None, str, int]]) -> None:
    messages, mono = recent(max_bytes=max_bytes), 0
    for client, text, key, fate, pause in events:
        mono += pause
        message = ORDER._replace(message_id=text)
        names = names_of(message, key)
        if messages.find(names, message.body, mono) is not None:
            continue
        mine = messages.claim(names, message.body, client, mono)
        assert messages.find(names, message.body, mono) is mine
        if fate in {"passed", "failed"}:
            messages.note(mine, DONE if fate == "passed" else BackendFull("full"))
        if fate.startswith("refused"):
            for _ in fate.split():
                messages.note(mine, None)
        assert (messages.find(names, message.body, mono) is mine) == (fate in {"passed", "left"})
        entries = set(messages._first.values())
        assert messages._bytes == sum(each.size for each in entries)
        assert messages._bytes <= max_bytes or len(entries) == 1
        assert {each for own in messages._clients.values() for each in own.messages} == entries
        assert all(own.bytes == sum(each.size for each in own.messages) > 0 for own in messages._clients.values())
    messages.find((), b"", mono + WINDOW)
    assert (len(messages), messages._bytes, messages._clients) == (0, 0, {})


@given(st.lists(st.tuples(st.text("/0k", min_size=1), st.none() | st.integers(0, 11)), unique=True))
def test_each_key_and_place_makes_another_id(keys: list[tuple[str, int | None]]) -> None:
    made = {named(Message("orders"), key, place).message_id for key, place in keys}
    assert len(made) == len(keys)


async def test_what_the_backend_did_not_store_is_forgotten() -> None:
    for error in (BackendFull("full"), OutcomeUnknown("lost")):
        messages = recent()
        messages.note(claimed(messages, ORDER, "k", 0), error)
        assert len(messages) == 0
        future: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
        messages.note(claimed(messages, ORDER, "k", 0), WaitingMessage("m", 5, Applied(()), future))
        assert len(messages) == 2, "it was passed to the backend"
        future.set_exception(error)
        await turns()
        assert len(messages) == 0


async def test_a_late_answer_concerns_the_message_it_belongs_to() -> None:
    messages = recent()
    future: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
    messages.note(claimed(messages, ORDER, None, 0), WaitingMessage("m", 5, Applied(()), future))
    assert claim(messages, ORDER, None, WINDOW) is None
    future.set_exception(BackendUnavailable("gone"))
    await turns()
    assert claim(messages, ORDER, None, WINDOW) is not None


class SlowProducer:
    """Stores on request."""

    def __init__(self) -> None:
        self.calls = 0
        self.answer: asyncio.Future[Produced] = asyncio.get_running_loop().create_future()

    async def publish(self, batch: Batch) -> None:
        for message in batch.take():
            assert isinstance(message, Message)
            self.calls += 1
            try:
                batch.outcomes.append(await asyncio.shield(self.answer))
            except BridgeError as error:
                batch.outcomes.append(error)


class DedupBench:
    def __init__(self, producer: SlowProducer, clock: LoopClock, timeout: int = 30_000) -> None:
        self.messages = recent()
        self.counters = Counters()
        dedup = Deduplicator(self.messages, clock, self.counters, timeout)
        self._publish = dedup.first_only(producer.publish)

    async def produce(self, messages: Sequence[Message | BridgeError], key: str | None = None) -> Produced:
        batch = Batch(messages, (), "peer", key)
        await self._publish(batch)
        [outcome] = batch.outcomes
        if isinstance(outcome, Exception):
            raise outcome
        assert isinstance(outcome, Produced)
        return outcome


async def test_copies_wait_for_the_first_and_replace_it_when_it_is_refused(clock: LoopClock) -> None:
    producer = SlowProducer()
    bench = DedupBench(producer, clock)
    copies = [asyncio.create_task(bench.produce([ORDER])) for _ in range(3)]
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
    assert bench.counters.duplicates == 1


async def test_a_request_that_is_cancelled_leaves_no_claim(clock: LoopClock) -> None:
    producer = SlowProducer()
    bench = DedupBench(producer, clock)
    cancelled = asyncio.ensure_future(bench.produce([ORDER], "k"))
    await turns()
    cancelled.cancel()
    await turns()
    assert len(bench.messages) == 0
    producer.answer.set_result(DONE)
    assert not (await bench.produce([ORDER], "k")).duplicate
    assert (await bench.produce([ORDER], "k")).duplicate


async def test_a_request_that_is_cancelled_keeps_the_claims_of_what_was_passed_on(clock: LoopClock) -> None:
    class PassesOne(SlowProducer):
        async def publish(self, batch: Batch) -> None:
            if batch.take():
                batch.outcomes += [DONE, None]
                await asyncio.get_running_loop().create_future()

    bench = DedupBench(PassesOne(), clock)
    cancelled = asyncio.ensure_future(bench.produce([ORDER, ORDER._replace(message_id="n")]))
    await turns()
    cancelled.cancel()
    await turns()
    assert len(bench.messages) == 1
    assert (await bench.produce([ORDER])).duplicate


async def test_a_defect_of_a_batch_leaves_no_claim(clock: LoopClock) -> None:
    bench = DedupBench(SlowProducer(), clock)
    for batch in ([ORDER, "not a message"], ["not a message", ORDER]):
        with pytest.raises(AttributeError):
            await bench.produce(batch, "k")  # type: ignore[arg-type]
        assert len(bench.messages) == 0


async def test_a_refusal_concerns_the_claim_it_belongs_to() -> None:
    messages = recent()
    names = names_of(ORDER, None)
    old = messages.claim(names, ORDER.body, INTERNAL, 0)
    assert messages.find(names, ORDER.body, WINDOW) is None
    messages.claim(names, ORDER.body, INTERNAL, WINDOW)
    messages.note(old, None)
    assert messages.find(names, ORDER.body, WINDOW) is not None


async def test_a_copy_does_not_wait_for_ever(clock: LoopClock) -> None:
    bench = DedupBench(SlowProducer(), clock, timeout=10)
    first = asyncio.ensure_future(bench.produce([ORDER]))
    await turns()
    with pytest.raises(OutcomeUnknown):
        await bench.produce([ORDER])
    first.cancel()
    await turns()
    assert len(bench.messages) == 0, "a client that left before the backend had its message"


async def test_messages_of_one_batch_with_one_name_are_stored_once(clock: LoopClock) -> None:
    adapter = FakeAdapter()
    engine = Engine(adapter, clock, EngineOptions("bridge"))
    await engine.start()
    other = ORDER._replace(message_id="n")
    results = await engine.produce([ORDER, other, ORDER, ORDER._replace(body=b"another")], (), "peer")
    assert [isinstance(result, Produced) and result.duplicate for result in results] == [False, False, True, False]
    assert isinstance(results[3], IdempotencyMismatch)
    assert len(adapter.published) == 2
    assert engine.counters.duplicates == 1


async def test_without_a_window_nothing_is_remembered(clock: LoopClock) -> None:
    adapter = FakeAdapter()
    engine = Engine(adapter, clock, EngineOptions("bridge", dedup_window=0))
    await engine.start()
    for _ in range(2):
        await engine.produce([ORDER], (), "peer", "k")
        await engine.produce([ORDER], (), "peer", "k")
    assert len(adapter.published) == 4


class Log:
    """One log, and what waits to enter it."""

    def __init__(self, messages: list[Message], waiting: list[Message]) -> None:
        self._messages = messages
        self._waiting = waiting

    def logs(self) -> Iterator[dict[str, tuple[int, int]]]:
        yield {"epoch/orders/0": (0, len(self._messages))}

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
    dedup = Deduplicator(messages, clock, Counters(), 1000)
    await dedup.restore(
        Log([stored, *old], [waiting, forgotten]),
        WINDOW,
        lambda message, offset: DONE._replace(message_id=message.message_id or "", stored=Stored(0, offset)),
    )
    found = {
        each.message_id: claim(messages, each, None, clock.mono()) for each in (stored, waiting, forgotten, old[0])
    }
    outcomes = {name: first.outcome for name, first in found.items() if first is not None}
    assert outcomes == {
        "m": DONE._replace(stored=Stored(0, 0)),
        "w": DONE._replace(message_id="w", stored=Stored(0, None)),
    }
