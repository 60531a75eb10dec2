"""Purging and deleting: the groups concerned are closed at this bridge, and opened again only afterwards."""

import asyncio
from itertools import product

import pytest

from adapters.base import Outcome, Revoked
from adapters.memory import connect
from bridge.engine.destination_names import SubscriptionKey
from bridge.engine.engine import Engine
from bridge.engine.options import EngineOptions
from bridge.engine.pull_and_prefetch import PullRequest
from bridge.engine.push_consumer import ConsumerOptions
from bridge.errors import BackendUnavailable, DestinationUnknown, LeaseEnded, LimitReached, NotFound
from bridge.message import Message
from tests.calls import produce, settled
from tests.unit.engine.fakes import FakeAdapter, FakePartitionedAdapter, FakeSubscription, delivery
from tests.unit.engine.virtual import LoopClock, turns, until

APP, OTHER, ELSEWHERE = (
    SubscriptionKey("orders", "app"),
    SubscriptionKey("orders", "other"),
    SubscriptionKey("bills", "app"),
)


class DeletableAdapter(FakePartitionedAdapter):
    """Notes what is deleted, and checks that the groups are closed then."""

    def __init__(self) -> None:
        super().__init__()
        self.existing = set()
        self.changes: list[tuple[str, str, str | None]] = []
        self.latest: dict[SubscriptionKey, bool] = {}
        """By group: whether it was to begin after the newest message when it was joined last."""
        self.may_change, self.may_answer = asyncio.Event(), asyncio.Event()
        self.may_change.set()
        self.may_answer.set()

    async def partitions(self, destination: str, *, create: bool = True) -> int:
        found = await super().partitions(destination, create=create)
        await self.may_answer.wait()
        return found

    async def subscribe(self, source: str, group: str, revoked: Revoked, *, latest: bool = False) -> FakeSubscription:
        self.latest[SubscriptionKey(source, group)] = latest
        return await super().subscribe(source, group, revoked, latest=latest)

    async def purge(self, destination: str, group: str | None) -> None:
        await self._change("purge", destination, group)

    async def delete(self, destination: str, group: str | None) -> None:
        await self._change("delete", destination, group)
        if group is None and self.existing is not None:
            self.existing.discard(destination)

    async def _change(self, how: str, destination: str, group: str | None) -> None:
        if self.existing is not None and destination not in self.existing:
            raise DestinationUnknown(destination)
        await self.may_change.wait()
        for (source, name), subscriptions in self.subscriptions.items():
            if source == destination and group in {None, name}:
                assert all(subscription.closed for subscription in subscriptions)
        self.changes.append((how, destination, group))


class Bench:
    def __init__(self, clock: LoopClock, **options: object) -> None:
        self.adapter = DeletableAdapter()
        for key in (APP, OTHER, ELSEWHERE):
            self.adapter.backlogs[key] = [delivery(1)]
        self.engine = Engine(self.adapter, clock, EngineOptions("bridge:8080")._replace(**options))  # type: ignore[arg-type]
        self.administration = self.engine.administration

    async def receipt(self, key: SubscriptionKey) -> str:
        pulled = await settled(self.engine.pull(key, PullRequest(30_000), ack=True))
        assert pulled is not None
        assert pulled.receipt is not None
        return pulled.receipt

    @property
    def open(self) -> set[SubscriptionKey]:
        return {key for key, _ in self.engine.groups}


@pytest.mark.parametrize("how", ["purge", "delete"])
async def test_leases_pulls_and_streams_of_its_groups_end(clock: LoopClock, how: str) -> None:
    bench = Bench(clock)
    await bench.engine.start()
    ended, kept = await bench.receipt(APP), await bench.receipt(ELSEWHERE)
    pull = asyncio.ensure_future(settled(bench.engine.pull(APP, PullRequest(30_000, 20_000), ack=True)))
    consumer = await bench.engine.consume(OTHER, ConsumerOptions(30_000))
    taken = await consumer.take()
    stream = asyncio.ensure_future(consumer.take())
    await turns()
    await getattr(bench.administration, how)("orders", None)
    assert (await pull, await stream, consumer.end_reason) == (None, [], f"{how}d")
    consumer.close()
    assert bench.open == {ELSEWHERE}
    for receipt in (ended, taken[0].receipt or ""):
        with pytest.raises(LeaseEnded, match="closed or deleted"):
            await bench.engine.leases.ack([receipt], None)
    await bench.engine.leases.ack([kept], None)
    assert bench.adapter.changes == [(how, "orders", None)]
    assert bench.engine.counters.waiting_pulls == 0
    await bench.engine.close()


@pytest.mark.parametrize("how", ["purge", "delete"])
@pytest.mark.parametrize("group", [None, "app"])
async def test_who_waits_when_a_message_meets_the_change_does_not_wait_for_a_closed_group(
    clock: LoopClock, how: str, group: str | None
) -> None:
    """The message may wake a pull or a stream whose group is closed before it runs."""
    for turn, waits in product(range(14), (pulls, streams)):
        engine = Engine(connect("memory://"), clock, EngineOptions("bridge:8080", waiting_pulls=1))
        await engine.start()
        await produce(engine, Message("orders", b"first"), (), "")
        await settled(engine.pull(APP, PullRequest(30_000), ack=False))
        waiting = asyncio.ensure_future(waits(engine))
        await turns()
        changing = asyncio.ensure_future(getattr(engine.administration, how)("orders", group))
        await turns(turn)
        await produce(engine, Message("orders", b"second"), (), "")
        ended = await asyncio.wait_for(waiting, 10)
        assert ended in {f"{how}d", b"second", None}
        await changing
        (await engine.consume(ELSEWHERE, ConsumerOptions(30_000))).close()
        assert engine.counters.waiting_pulls == 0
        await engine.close()


async def pulls(engine: Engine) -> object:
    pulled = await settled(engine.pull(APP, PullRequest(30_000, 20_000), ack=True))
    return pulled and pulled.message.body


async def streams(engine: Engine) -> object:
    consumer = await engine.consume(APP, ConsumerOptions(30_000))
    try:
        while await consumer.take():
            pass
        return consumer.end_reason
    finally:
        consumer.close()


async def test_only_the_named_group_is_closed(clock: LoopClock) -> None:
    bench = Bench(clock)
    await bench.engine.start()
    for key in (APP, OTHER):
        await bench.receipt(key)
    await bench.administration.delete("orders", "app")
    assert bench.open == {OTHER}
    await bench.engine.close()


async def test_a_group_is_opened_again_only_after_the_change(clock: LoopClock) -> None:
    bench = Bench(clock)
    await bench.engine.start()
    await bench.receipt(APP)
    bench.adapter.may_change.clear()
    purging = asyncio.ensure_future(bench.administration.purge("orders", None))
    await turns()
    pulls = [asyncio.ensure_future(bench.receipt(APP)) for _ in range(2)]
    pulls[1].cancel()
    await bench.receipt(ELSEWHERE)
    await turns()
    assert (bench.open, purging.done()) == ({ELSEWHERE}, False)
    bench.adapter.may_change.set()
    await asyncio.gather(purging, pulls[0])
    assert bench.open == {APP, ELSEWHERE}
    await bench.engine.close()


async def test_a_pull_that_is_cancelled_before_its_group_is_opened_leaves_nothing_behind(clock: LoopClock) -> None:
    bench = Bench(clock, groups=1)
    await bench.engine.start()
    bench.adapter.existing = {"orders"}
    bench.adapter.may_change.clear()
    purging = asyncio.ensure_future(bench.administration.purge("orders", None))
    await turns()
    pulls = [asyncio.ensure_future(bench.receipt(key)) for key in (APP, OTHER)]
    await turns()
    for pull in pulls:
        pull.cancel()
    bench.adapter.may_change.set()
    await purging
    await bench.receipt(ELSEWHERE)
    assert bench.open == {ELSEWHERE}
    await bench.engine.close()


async def test_a_pull_that_waits_for_the_change_finds_what_it_has_left(clock: LoopClock) -> None:
    bench = Bench(clock, auto_create=False)
    await bench.engine.start()
    bench.adapter.existing = {"orders"}
    bench.adapter.may_change.clear()
    deleting = asyncio.ensure_future(bench.administration.delete("orders", None))
    await turns()
    pull = asyncio.ensure_future(bench.receipt(APP))
    await turns()
    bench.adapter.may_change.set()
    await deleting
    with pytest.raises(DestinationUnknown):
        await pull
    assert bench.adapter.subscriptions == {}
    await bench.engine.close()


async def test_a_group_that_is_being_opened_is_closed_too(clock: LoopClock) -> None:
    bench = Bench(clock)
    await bench.engine.start()
    bench.adapter.may_subscribe.clear()
    pull = asyncio.ensure_future(settled(bench.engine.pull(APP, PullRequest(30_000, 1000), ack=True)))
    await turns()
    deleting = asyncio.ensure_future(bench.administration.delete("orders", "app"))
    await turns()
    bench.adapter.may_subscribe.set()
    await asyncio.gather(deleting, pull)
    assert bench.adapter.changes == [("delete", "orders", "app")]
    await bench.engine.close()


async def test_what_was_deleted_does_not_count_any_more(clock: LoopClock) -> None:
    bench = Bench(clock, destinations=2, groups=2)
    await bench.engine.start()
    for _ in range(3):
        await settled(bench.engine.pull(APP, PullRequest(1000), ack=True, client="ann"))
        with pytest.raises(LimitReached):
            await produce(bench.engine, Message("a", b""), (), "ann:1")
        await bench.administration.delete("orders", None)
    await settled(bench.engine.pull(APP, PullRequest(1000), ack=True, client="ann"))
    with pytest.raises(LimitReached):
        await settled(bench.engine.pull(OTHER, PullRequest(1000), ack=True, client="ann"))
    await bench.administration.delete("orders", "app")
    await settled(bench.engine.pull(OTHER, PullRequest(1000), ack=True, client="ann"))
    await bench.engine.close()


@pytest.mark.parametrize("dead_letters", [False, True])
async def test_nothing_is_remembered_of_destinations_that_were_deleted(clock: LoopClock, dead_letters: bool) -> None:
    engine = Engine(connect("memory://"), clock, EngineOptions("bridge:8080", max_deliveries=1))
    await engine.start()
    for number in range(50):
        key = SubscriptionKey(f"reply-{number}", "g")
        await produce(engine, Message(key.source, b"x"), (), "")
        if dead_letters:
            pulled = await settled(engine.pull(key, PullRequest(30_000), ack=True))
            assert pulled is not None
            engine.leases.nack([pulled.receipt or ""], 0, None)
            await turns()
            await engine.administration.delete(f"{key.source}.dlq", None)
        await engine.administration.delete(key.source, None)
    assert len(engine._destinations.partitioner._last) == 0
    await engine.close()


async def test_a_group_that_took_the_name_of_an_idle_one_stays_open(clock: LoopClock) -> None:
    """A slow close delays that of the next idle group; meanwhile this is deleted, and opened again by a pull."""
    bench = Bench(clock, group_idle=1000)
    await bench.engine.start()
    for key in (ELSEWHERE, APP):
        await bench.receipt(key)
        await bench.engine.administration.purge(*key)  # without a lease the group is idle
        bench.adapter.of(*key).backlog = []
        await settled(bench.engine.pull(key, PullRequest(30_000), ack=True))
    bench.adapter.of(*ELSEWHERE).may_close.clear()
    await until(lambda: bench.open == {APP}, step=0.01)
    await bench.administration.delete(*APP)
    bench.adapter.of(*APP).backlog = [delivery(2)]
    receipt = await bench.receipt(APP)
    bench.adapter.of(*ELSEWHERE).may_close.set()
    await turns()
    assert bench.open == {APP}
    await bench.engine.leases.ack([receipt], None)
    assert bench.adapter.of(*APP).reported(Outcome.SETTLED) == [2]
    await bench.engine.close()


async def test_a_change_that_fails_opens_the_groups_again(clock: LoopClock) -> None:
    bench = Bench(clock)
    with pytest.raises(BackendUnavailable):
        await bench.administration.purge("orders", None)
    await bench.engine.start()
    for _ in range(2):
        with pytest.raises(DestinationUnknown):
            await bench.administration.delete("nowhere", None)
    await bench.receipt(APP)
    await bench.engine.close()


async def test_a_backend_that_cannot_says_so(clock: LoopClock) -> None:
    engine = Engine(FakeAdapter(), clock, EngineOptions("bridge:8080"))
    await engine.start()
    for change in (engine.administration.purge, engine.administration.delete):
        with pytest.raises(NotFound, match="the broker's own tools"):
            await change("orders", None)
    await engine.close()


async def test_a_consumer_whose_destination_is_deleted_while_it_looks_for_it_looks_again(clock: LoopClock) -> None:
    bench = Bench(clock)
    await bench.engine.start()
    await bench.receipt(APP)
    bench.adapter.may_answer.clear()
    consuming = asyncio.ensure_future(bench.engine.consume(OTHER, ConsumerOptions(30_000, create=False)))
    await turns()
    bench.adapter.may_change.clear()
    deleting = asyncio.ensure_future(bench.administration.delete("orders", None))
    await turns()
    bench.adapter.may_answer.set()
    await turns()
    assert not consuming.done()
    bench.adapter.may_change.set()
    await deleting
    with pytest.raises(DestinationUnknown):
        await consuming
    assert OTHER not in bench.adapter.latest
    await bench.engine.close()


async def test_a_consumer_that_must_not_create_waits_for_the_deletion_and_finds_nothing(clock: LoopClock) -> None:
    bench = Bench(clock)
    await bench.engine.start()
    await bench.receipt(APP)
    bench.adapter.may_change.clear()
    deleting = asyncio.ensure_future(bench.administration.delete("orders", None))
    await turns()
    consuming = asyncio.ensure_future(bench.engine.consume(OTHER, ConsumerOptions(30_000, create=False)))
    creating = asyncio.ensure_future(bench.engine.consume(ELSEWHERE, ConsumerOptions(30_000)))
    await turns()
    assert not consuming.done()
    bench.adapter.may_change.set()
    await deleting
    with pytest.raises(DestinationUnknown):
        await consuming
    assert bench.adapter.existing == {"bills"}
    (await creating).close()
    (await bench.engine.consume(OTHER, ConsumerOptions(30_000))).close()
    assert bench.adapter.existing == {"bills", "orders"}
    await bench.engine.close()


@pytest.mark.parametrize("latest", [False, True])
async def test_a_consumer_may_have_a_new_group_start_at_the_oldest_message(clock: LoopClock, latest: bool) -> None:
    bench = Bench(clock, latest=latest)
    await bench.engine.start()
    (await bench.engine.consume(APP, ConsumerOptions(30_000))).close()
    (await bench.engine.consume(OTHER, ConsumerOptions(30_000, from_oldest=True))).close()
    assert bench.adapter.latest == {APP: latest, OTHER: False}
    await bench.engine.close()
