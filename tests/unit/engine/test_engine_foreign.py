"""An exception that an adapter must not raise: it is logged, and the group goes on."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from adapters.base import Delivery, Outcome
from bridge.engine.destination_names import SubscriptionKey
from bridge.engine.engine import Engine
from bridge.engine.group import Group
from bridge.engine.options import EngineOptions
from bridge.engine.pull_and_prefetch import PullRequest
from bridge.errors import BackendUnavailable
from tests.calls import settled
from tests.unit.engine.fakes import FakeAdapter, FakeSubscription, delivery
from tests.unit.engine.group_bench import GroupBench
from tests.unit.engine.virtual import LoopClock


def foreign() -> Any:  # noqa: ANN401 - where the fakes expect a `BridgeError`
    return RuntimeError("of some library")


async def test_a_waiting_fetch_that_fails_is_repeated(clock: LoopClock, caplog: pytest.LogCaptureFixture) -> None:
    bench = GroupBench(clock)
    pull = asyncio.ensure_future(bench.pull(wait=20_000))
    await asyncio.sleep(0)
    bench.subscription.fail_fetch(foreign())
    bench.subscription.give(delivery(1))
    entry = await pull
    assert entry is not None
    assert "of some library" in caplog.text
    assert [record.name for record in caplog.records] == ["bridge.engine"]


async def test_a_fetch_that_fails_at_once_is_repeated(clock: LoopClock, caplog: pytest.LogCaptureFixture) -> None:
    bench = GroupBench(clock)
    bench.subscription.fail_fetch(BackendUnavailable("first"))
    await asyncio.sleep(0)
    bench.subscription.fetch_failures = [foreign()]
    bench.subscription.give(delivery(1))
    assert (await bench.got(wait=20_000)).delivery.position == 1
    assert "of some library" in caplog.text


async def test_a_dead_letter_that_fails_is_written_again(clock: LoopClock, caplog: pytest.LogCaptureFixture) -> None:
    bench = GroupBench(clock, delivery(1, message_key="k"), delivery(2, message_key="k"), limit=1)
    bench.dead_letter_failures = [foreign()]
    bench.group.release(await bench.got(), 0)
    assert (await bench.got(wait=60_000)).delivery.position == 2, "the key does not wait for good"
    assert bench.dead_letters == [1]
    assert bench.counters.dead_letter_failures == 1
    assert "of some library" in caplog.text


async def test_a_delivery_that_cannot_be_deferred_comes_again(
    clock: LoopClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Fails(FakeSubscription):
        def defer(self, *_: object) -> asyncio.Future[None]:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            future.set_exception(foreign())
            return future

    bench = GroupBench(clock, delivery(1), subscription=Fails)
    bench.group.release(await bench.got(), 60_000)
    assert (await bench.got(wait=120_000)).delivery.position == 1
    assert "of some library" in caplog.text


class RefusesToDefer(FakeSubscription):
    def defer(self, *_: object) -> asyncio.Future[None]:
        raise foreign()


class CancelsItsFuture(FakeSubscription):
    def defer(self, *_: object) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        return future


@pytest.mark.parametrize("kind", [RefusesToDefer, CancelsItsFuture])
async def test_a_deferral_that_breaks_in_another_way_keeps_its_message(
    clock: LoopClock, kind: type[FakeSubscription]
) -> None:
    bench = GroupBench(clock, delivery(1), subscription=kind)
    bench.group.release(await bench.got(), 60_000)
    assert (await bench.got(wait=120_000)).delivery.position == 1
    assert not bench.residue()


async def test_a_dead_letter_whose_future_is_cancelled_is_written_again(clock: LoopClock) -> None:
    bench = GroupBench(clock, delivery(1, message_key="k"), delivery(2, message_key="k"), limit=1)
    cancelled: Any = asyncio.CancelledError()
    bench.dead_letter_failures = [cancelled]
    bench.group.release(await bench.got(), 0)
    assert (await bench.got(wait=60_000)).delivery.position == 2, "the key does not wait for good"
    assert bench.counters.dead_letter_failures == 1


async def test_a_settlement_that_raises_at_once_leaves_its_lease(clock: LoopClock) -> None:
    class Raises(FakeSubscription):
        def settle(self, deliveries: Sequence[Delivery], outcome: Outcome) -> asyncio.Future[None]:
            if outcome is Outcome.SETTLED:
                raise foreign()
            return super().settle(deliveries, outcome)

    bench = GroupBench(clock, delivery(1), subscription=Raises)
    entry = await bench.got(duration=1000)
    with pytest.raises(RuntimeError):
        await bench.group.settle([entry])
    assert (await bench.got(wait=2000)).delivery.position == 1, "the lease ends, and the message comes again"


async def test_a_task_of_the_engine_that_fails_begins_again(
    clock: LoopClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(FakeAdapter(), clock, EngineOptions("bridge:8080", group_idle=1000))
    await engine.start()
    assert await settled(engine.pull(SubscriptionKey("orders", "app"), PullRequest(1000), ack=True)) is None
    failures = [foreign(), foreign()]
    is_idle: Callable[[Group], bool] = vars(Group)["idle"].fget

    def idle(group: Group) -> bool:
        if failures:
            raise failures.pop()
        return is_idle(group)

    monkeypatch.setattr(Group, "idle", property(idle))
    await asyncio.sleep(10)
    assert engine.groups == ()
    assert caplog.text.count("of some library") == 2
    await engine.close()


async def test_a_start_with_a_defect_is_reported(clock: LoopClock, caplog: pytest.LogCaptureFixture) -> None:
    adapter = FakeAdapter()
    adapter.start_failures = [BackendUnavailable("not yet"), foreign()]
    engine = Engine(adapter, clock, EngineOptions("bridge:8080"))
    await engine.start()
    assert engine.not_ready_reason == "not yet"
    await asyncio.sleep(30)
    assert engine.not_ready_reason == "a defect of the adapter; the log has the details"
    assert "of some library" in caplog.text
    await engine.close()


async def test_idle_groups_are_closed_after_one_that_fails(clock: LoopClock, caplog: pytest.LogCaptureFixture) -> None:
    adapter = FakeAdapter()
    engine = Engine(adapter, clock, EngineOptions("bridge:8080", group_idle=1_000))
    await engine.start()
    for group in ("a", "b"):
        await settled(engine.pull(SubscriptionKey("orders", group), PullRequest(1_000, 0), ack=True))

    broken = adapter.subscriptions["orders", "a"][0]

    async def fails() -> None:
        broken.closed = True
        raise foreign()

    broken.close = fails  # type: ignore[method-assign] # one of the two
    await asyncio.sleep(10)
    assert engine.groups == ()
    assert adapter.subscriptions["orders", "b"][0].closed
    assert "of some library" in caplog.text
    await engine.close()
