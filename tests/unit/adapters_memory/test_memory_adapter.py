"""The memory adapter keeps the contract's promises; those that do not need a disk, with a journal as well."""

import asyncio
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
import pytest_asyncio

from adapters.base import Adapter, Delivery, Measured, Outcome, Partitioned, Stored, Subscription, Support
from adapters.memory import connect
from adapters.memory.adapter import MemoryAdapter
from bridge.errors import BackendFull, BackendUnavailable, PartitionUnknown
from bridge.message import FIELDS, Message
from tests.unit.adapters_memory.alone import alone
from tests.unit.adapters_memory.wall import set_wall

T = TypeVar("T")
Open = Callable[..., Awaitable[MemoryAdapter]]
LOTS = 1 << 30


def now() -> int:
    return time.time_ns() // 1_000_000


@pytest_asyncio.fixture(params=["volatile", "durable"])
async def start(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    """Start an adapter with options; every test runs without a journal and with one."""
    started: list[MemoryAdapter] = []

    async def start(**options: object) -> MemoryAdapter:
        if request.param == "durable":
            options["journal"] = tmp_path / "journal"
        adapter = connect("memory://?" + "&".join(f"{name}={value}" for name, value in options.items()))
        assert isinstance(adapter, MemoryAdapter)
        await adapter.start()
        started.append(adapter)
        return adapter

    yield start
    for adapter in started:
        await adapter.close()


async def publish(adapter: Adapter, *bodies: bytes, partition: int = 0, **fields: object) -> list[Stored]:
    futures = [
        adapter.publish(Message("orders", body, partition=partition, born_timestamp=now())._replace(**fields))  # type: ignore[arg-type]
        for body in bodies
    ]
    return [await future for future in futures]


async def fetch(subscription: Subscription, limit: int = 100) -> list[Delivery]:
    return await asyncio.wait_for(subscription.fetch(limit, LOTS), 10)


def bodies(deliveries: list[Delivery]) -> list[bytes]:
    return [delivery.message.body for delivery in deliveries]


async def test_shape_and_features(start: Open) -> None:
    adapter = await start()
    assert isinstance(adapter, Partitioned)
    assert isinstance(adapter, Measured)
    assert adapter.features.late_groups
    assert set(adapter.features.fields) == {field.name for field in FIELDS if field.is_feature}
    durable = adapter.features.durable
    assert adapter.features.fields["durability"] is (Support.NATIVE if durable else Support.UNSUPPORTED)
    assert adapter.features.fields["priority"] is Support.EMULATED
    assert adapter.features.fields["delayTime"] is Support.NATIVE


async def test_everything_comes_back_as_it_was(start: Open) -> None:
    adapter = await start()
    message = Message(
        "orders", b"\0\xff", {"a": "1", "ü": ""}, "id", 5, "born", 1, "gzip", 3, 6, "store", "key", "corr", "trace",
        "tx", 0, 7, 9, 1, 2, "text/plain", "00-x", "y=z",
    )  # fmt: skip
    assert None not in message
    assert await adapter.publish(message) == Stored(3, 0)
    subscription = await adapter.subscribe("orders", "g", alone)
    assert await fetch(subscription) == [Delivery(message, 3, 0, 0)]


async def test_offsets_start_at_zero_and_grow_by_one_in_each_partition(start: Open) -> None:
    adapter = await start(partitions=2)
    assert await adapter.partitions("orders") == 2
    stored = await publish(adapter, b"a", b"b") + await publish(adapter, b"c", partition=1)
    assert stored == [Stored(0, 0), Stored(0, 1), Stored(1, 0)]


async def test_without_a_disk_publish_and_fetch_are_done_when_they_return() -> None:
    adapter = connect("memory://")
    await adapter.start()
    stored = adapter.publish(Message("orders", b"a", partition=0))
    assert stored.done()
    subscription = await adapter.subscribe("orders", "g", alone)
    got = subscription.fetch(1, 1)
    assert got.done()
    settled = subscription.settle(got.result(), Outcome.SETTLED)
    assert settled.done()
    await adapter.close()


async def test_fetch_waits_for_a_publish_and_takes_all_of_that_turn(start: Open) -> None:
    adapter = await start()
    subscription = await adapter.subscribe("orders", "g", alone)
    waiting = subscription.fetch(100, LOTS)
    await asyncio.sleep(0)
    assert not waiting.done()
    await publish(adapter, b"a", b"b")
    assert bodies(await asyncio.wait_for(waiting, 10)) == [b"a", b"b"]


async def test_cancelled_fetches_lose_nothing(start: Open) -> None:
    adapter = await start()
    subscription = await adapter.subscribe("orders", "g", alone)
    for turn in range(3):
        for sleeps in range(3):
            waiting = subscription.fetch(100, LOTS)
            stored = adapter.publish(Message("orders", b"%d" % turn, partition=0)) if sleeps == 1 else None
            for _ in range(sleeps):
                await asyncio.sleep(0)
            if not waiting.cancel():
                break
            if stored is not None:
                await stored
                waiting = subscription.fetch(100, LOTS)
                break
        assert bodies(await asyncio.wait_for(waiting, 10)) == [b"%d" % turn]


async def test_every_group_sees_every_message_and_a_late_one_the_oldest(start: Open) -> None:
    adapter = await start()
    await publish(adapter, b"a")
    early = await adapter.subscribe("orders", "early", alone)
    await early.settle(await fetch(early), Outcome.SETTLED)
    await publish(adapter, b"b")
    late = await adapter.subscribe("orders", "late", alone)
    assert bodies(await fetch(late)) == [b"a", b"b"]
    assert bodies(await fetch(early)) == [b"b"]


async def test_one_subscription_of_a_group_at_a_time(start: Open) -> None:
    adapter = await start()
    first = await adapter.subscribe("orders", "g", alone)
    with pytest.raises(RuntimeError, match="has a subscription"):
        await adapter.subscribe("orders", "g", alone)
    await first.close()
    await first.close()
    second = await adapter.subscribe("orders", "g", alone)
    await first.close()
    with pytest.raises(RuntimeError):
        await adapter.subscribe("orders", "g", alone)
    await second.close()


async def test_the_next_subscription_starts_at_the_lowest_unsettled(start: Open) -> None:
    adapter = await start()
    await publish(adapter, *(b"%d" % n for n in range(6)))
    first = await adapter.subscribe("orders", "g", alone)
    got = await fetch(first, 5)
    await first.settle([got[0], got[1], got[3]], Outcome.SETTLED)
    await first.settle([got[2]._replace(attempts=3)], Outcome.RELEASED)
    await first.settle([got[4]._replace(attempts=2)], Outcome.LEASED)
    await first.close()
    second = await adapter.subscribe("orders", "g", alone)
    assert [(d.message.body, d.attempts) for d in await fetch(second)] == [(b"2", 3), (b"4", 2), (b"5", 0)]


async def test_released_wakes_the_waiting_fetch(start: Open) -> None:
    adapter = await start()
    await publish(adapter, b"a")
    subscription = await adapter.subscribe("orders", "g", alone)
    (delivery,) = await fetch(subscription)
    waiting = subscription.fetch(1, LOTS)
    await subscription.settle([delivery._replace(attempts=1)], Outcome.RELEASED)
    assert await asyncio.wait_for(waiting, 10) == [delivery._replace(attempts=1)]


async def test_settling_late_twice_or_after_closing_is_harmless(start: Open) -> None:
    adapter = await start()
    await publish(adapter, b"a", b"b")
    first = await adapter.subscribe("orders", "g", alone)
    got = await fetch(first)
    await first.close()
    second = await adapter.subscribe("orders", "g", alone)
    assert len(await fetch(second)) == 2
    await first.settle(got[:1], Outcome.SETTLED)
    await first.settle(got[:1], Outcome.SETTLED)
    await first.settle(got, Outcome.RELEASED)
    waiting = second.fetch(1, LOTS)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done(), "what the second subscription holds is not the first one's to give back"


async def test_a_closed_subscription_says_so(start: Open) -> None:
    adapter = await start()
    subscription = await adapter.subscribe("orders", "g", alone)
    waiting = subscription.fetch(1, LOTS)
    await subscription.close()
    for future in (waiting, subscription.fetch(1, LOTS)):
        with pytest.raises(BackendUnavailable):
            await future


async def test_before_start_and_after_close_nothing_is_stored(tmp_path: Path) -> None:
    for url in ("memory://", f"memory://?journal={tmp_path}"):
        adapter = connect(url)
        assert isinstance(adapter, MemoryAdapter)
        for _ in range(2):
            with pytest.raises(BackendUnavailable):
                await adapter.publish(Message("orders", partition=0))
            with pytest.raises(BackendUnavailable):
                await adapter.subscribe("orders", "g", alone)
            with pytest.raises(BackendUnavailable):
                await adapter.partitions("orders")
            await adapter.start()
            await adapter.start()
            subscription = await adapter.subscribe("orders", "g", alone)
            await adapter.close()
            await adapter.close()
            with pytest.raises(BackendUnavailable):
                await subscription.settle([], Outcome.SETTLED)


async def test_what_was_fetched_before_a_close_means_nothing_after_it(start: Open) -> None:
    adapter = await start()
    await publish(adapter, b"old")
    group = await adapter.subscribe("orders", "g", alone)
    old = await fetch(group)
    await adapter.close()
    await adapter.start()
    await publish(adapter, b"new")
    again = await adapter.subscribe("orders", "g", alone)
    await group.settle(old, Outcome.SETTLED)
    await group.settle(old, Outcome.RELEASED)
    assert not adapter._store.settled_by_all
    assert b"new" in bodies(await fetch(again))


async def test_a_partition_that_is_none(start: Open) -> None:
    adapter = await start(partitions=4)
    for partition in (4, -1, None):
        future = adapter.publish(Message("orders", partition=partition))
        with pytest.raises(PartitionUnknown):
            await future


async def test_bounded_in_messages_bytes_destinations_and_groups(start: Open) -> None:
    adapter = await start(max_messages=3, max_destinations=2, max_groups=1)
    await publish(adapter, b"a", b"b", b"c")
    with pytest.raises(BackendFull, match="max_messages"):
        await publish(adapter, b"d")
    subscription = await adapter.subscribe("orders", "g", alone)
    await subscription.settle((await fetch(subscription))[:1], Outcome.SETTLED)
    assert await publish(adapter, b"d") == [Stored(0, 3)]
    with pytest.raises(BackendFull, match="max_groups"):
        await adapter.subscribe("orders", "h", alone)
    assert await adapter.partitions("payments") == 8
    with pytest.raises(BackendFull, match="max_destinations"):
        await adapter.partitions("third")
    with pytest.raises(BackendFull, match="max_destinations"):
        await publish(adapter, b"x", destination="third")


async def test_queued_and_delayed_messages_count(start: Open) -> None:
    adapter = await start(max_messages=3)
    futures = [adapter.publish(Message("orders", partition=0, delay_time=10**9, born_timestamp=now())) for _ in "abcd"]
    outcomes = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Stored, Stored, Stored, BackendFull]
    assert outcomes[0] == Stored(0, None)
    holder = "3 messages wait for the journal" if adapter.features.durable else "'orders' has 3 delayed messages"
    assert holder in str(outcomes[3])
    assert adapter.gauges()["delayed"] == 3


async def test_delayed_is_never_early_and_then_comes(start: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = await start()
    subscription = await adapter.subscribe("orders", "g", alone)
    clock = born = now()
    set_wall(monkeypatch, lambda: clock)
    for delay in (120, 40, 80):
        await publish(adapter, b"%d" % delay, delay_time=delay, born_timestamp=born)
    await publish(adapter, b"due", delay_time=40, born_timestamp=born - 1000)
    await publish(adapter, b"fast clock", born_timestamp=born + 10**9)
    assert bodies(await fetch(subscription)) == [b"due", b"fast clock"]
    for delay in (40, 80, 120):
        clock = born + delay - 1
        await publish(adapter, b"before %d" % delay)
        assert bodies(await fetch(subscription)) == [b"before %d" % delay], "one millisecond early"
        clock = born + delay
        assert bodies(await fetch(subscription)) == [b"%d" % delay]
    assert adapter.gauges()["delayed"] == 0
    assert adapter._store.destination("orders").delayed == 0


async def test_a_wall_clock_set_back_makes_nothing_early(start: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = await start()
    subscription = await adapter.subscribe("orders", "g", alone)
    clock = born = now()
    set_wall(monkeypatch, lambda: clock)
    await publish(adapter, b"later", delay_time=60, born_timestamp=born)
    clock = born - 1_000_000
    waiting = subscription.fetch(1, LOTS)
    await asyncio.sleep(0.2)
    assert not waiting.done(), "the loop's timer has fired, the wall clock says no"
    clock = born + 60
    assert bodies(await asyncio.wait_for(waiting, 10)) == [b"later"], "set forward, it is seen within the second"


async def test_more_delayed_messages_than_one_turn_takes(start: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = await start()
    subscription = await adapter.subscribe("orders", "g", alone)
    clock = born = now()
    set_wall(monkeypatch, lambda: clock)  # none is due before all are stored, however slow the disk is
    await publish(adapter, *(b"%d" % n for n in range(1500)), delay_time=150, born_timestamp=born)
    clock = born + 150
    seen: list[bytes] = []
    while len(seen) < 1500:
        seen += bodies(await fetch(subscription, 10_000))
    assert seen == [b"%d" % n for n in range(1500)]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(0.01)


async def test_old_messages_go_unread_and_idle_groups_are_forgotten(start: Open) -> None:
    adapter = await start(retention=100)
    await publish(adapter, b"old", b"older")
    idle = await adapter.subscribe("orders", "idle", alone)
    stays = await adapter.subscribe("orders", "stays", alone)
    held = await fetch(stays)
    await idle.close()
    await until(lambda: adapter.gauges()["messages"] == 0)
    assert adapter.totals()["dropped_by_retention"] == 2
    await until(lambda: adapter.gauges()["groups"] == 1)
    await stays.settle(held[:1], Outcome.SETTLED)
    await stays.settle(held[1:], Outcome.RELEASED)
    coming = asyncio.create_task(fetch(stays))  # before it is too old, however busy the machine is
    assert await publish(adapter, b"new") == [Stored(0, 2)]
    assert bodies(await coming) == [b"new"]


async def test_footprint_is_not_below_what_python_takes() -> None:
    adapter = connect("memory://?max_bytes=1000000000")
    assert isinstance(adapter, MemoryAdapter)
    await adapter.start()
    count = 20_000
    tracemalloc.start()
    try:
        for n in range(count):
            text = str(n)
            adapter.publish(
                Message(
                    "orders-" + text, b"x" * 100 + text.encode(), {"name" + text: "value" + text, "n" + text: text},
                    message_id="0190aaaa-0000-7000-8000-" + text.zfill(12), born_timestamp=10**12 + n,
                    born_host="10.0.0." + text, partition=n % 8, store_timestamp=10**12 + 2 * n,
                    store_host="h" + text, message_key="key" + text, correlation_id="ü" * 20 + text,
                    expire_time=10**13 + n, delay_time=None, content_type="text/" + text,
                )._replace(destination="orders")
            )  # fmt: skip
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    counted = adapter.gauges()["bytes"]
    await adapter.close()
    assert taken <= counted <= 1.5 * taken
