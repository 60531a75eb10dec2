"""What deleting and forgetting destinations frees, and what waits for the journal meanwhile."""

import asyncio

import pytest

from adapters.base import Outcome, Stored
from adapters.memory.backend_state import SLICE
from adapters.memory.durable_adapter import DurableAdapter
from adapters.testing.replay import logs_of
from bridge.errors import DestinationUnknown
from bridge.message import Message
from tests.unit.adapters_memory.alone import alone
from tests.unit.adapters_memory.test_memory_adapter import Open, bodies, fetch, now, publish, start
from tests.unit.adapters_memory.test_memory_journal import Place, place
from tests.unit.adapters_memory.wall import set_wall

__all__ = ["place", "start"]  # fixtures

HOUR = 3_600_000


async def test_deleting_frees_everything(start: Open) -> None:
    adapter = await start(max_messages=2000)
    subscription = await adapter.subscribe("orders", "g", alone)
    await publish(adapter, *[b"x"] * 1500)
    await publish(adapter, *[b"y"] * 500, delay_time=HOUR)
    await subscription.close()
    await adapter.delete("orders", None)
    gauges = adapter.gauges()
    assert [gauges[name] for name in ("messages", "bytes", "delayed", "destinations", "groups")] == [0] * 5
    assert logs_of(adapter) == {}
    await publish(adapter, *[b"z"] * 2000)


async def test_what_is_published_while_a_destination_is_deleted_is_deleted_or_in_the_new_one(start: Open) -> None:
    adapter = await start()
    await publish(adapter, *[b"x"] * 3000)
    deleting = asyncio.ensure_future(adapter.delete("orders", None))
    sent: list[asyncio.Future[Stored]] = []
    while not deleting.done():
        if len(sent) < 10_000:  # not as many as may wait for a slow disk
            sent.append(adapter.publish(Message("orders", b"%d" % len(sent), partition=0)))
        await asyncio.sleep(0)
    await deleting
    await asyncio.gather(*sent)
    await publish(adapter, b"last")
    kept = bodies(await fetch(await adapter.subscribe("orders", "g", alone), 10_000))
    assert kept == [*(b"%d" % number for number in range(len(sent) - len(kept) + 1, len(sent))), b"last"]
    assert adapter.gauges()["messages"] == len(kept)


async def test_the_logs_of_a_destination_that_is_created_anew_have_another_epoch(start: Open) -> None:
    adapter = await start(partitions=1)
    await publish(adapter, b"a", b"b")
    (old,) = logs_of(adapter)
    await adapter.delete("orders", None)
    with pytest.raises(DestinationUnknown):
        adapter.replay(old, 0, 10, 1 << 20)
    await publish(adapter, b"c")
    (new,) = logs_of(adapter)
    assert (old.partition("/")[2], new.partition("/")[2]) == ("orders/0", "orders/0")
    assert old != new
    assert logs_of(adapter) == {new: (0, 1)}


async def test_a_purge_keeps_the_offsets(start: Open) -> None:
    adapter = await start(partitions=1)
    await publish(adapter, b"a", b"b")
    await adapter.purge("orders", None)
    (log,) = logs_of(adapter)
    assert logs_of(adapter) == {log: (2, 2)}
    assert (await publish(adapter, b"c"))[0].offset == 2


async def test_a_purged_group_keeps_nothing_of_its_messages(start: Open) -> None:
    adapter = await start(partitions=1)
    subscription = await adapter.subscribe("orders", "g", alone)
    await publish(adapter, b"a", b"b", b"c")
    taken = await fetch(subscription)
    await subscription.settle([each._replace(attempts=3) for each in taken[:2]], Outcome.RELEASED)
    await subscription.settle(taken[2:], Outcome.SETTLED)
    await subscription.close()
    await adapter.purge("orders", "g")
    (cursor,) = adapter._store.existing("orders").groups["g"].cursors
    assert (cursor.committed_offset, cursor.next, cursor.attempts, bool(cursor.settled)) == (3, 3, {}, False)


async def test_a_destination_without_messages_groups_and_traffic_is_forgotten(
    start: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = await start()
    for name in ("unused", "used", "grouped", "purged", "delayed"):
        await adapter.partitions(name)
    await publish(adapter, b"a", destination="used")
    await publish(adapter, b"a", destination="purged")
    await publish(adapter, b"a", destination="delayed", delay_time=10 * HOUR)
    await adapter.purge("purged", None)
    await (await adapter.subscribe("grouped", "g", alone)).close()

    def later(milliseconds: int) -> None:
        time = now() + milliseconds
        set_wall(monkeypatch, lambda: time)
        adapter._expire_old()

    later(0)
    later(HOUR - 10_000)
    assert adapter.gauges()["destinations"] == 5
    later(HOUR + 1000)
    assert adapter.gauges()["destinations"] == 4  # the purged one had traffic when it was looked at first
    later(2 * HOUR + 2000)
    assert set(adapter._store.destinations) == {"used", "grouped", "delayed"}
    with pytest.raises(DestinationUnknown):
        await adapter.partitions("unused", create=False)


async def test_a_deletion_survives_a_restart_and_a_kept_destination_is_unharmed(place: Place) -> None:
    adapter = await place.start(partitions=1)
    for name in ("gone", "kept"):
        subscription = await adapter.subscribe(name, "g", alone)
        await publish(adapter, b"a", b"b", destination=name)
        await publish(adapter, b"later", destination=name, delay_time=HOUR)
        await fetch(subscription, 1)
        await subscription.close()
    await adapter.delete("gone", None)
    await adapter.purge("kept", "g")
    adapter = await place.restart(partitions=1)
    assert (list(adapter._store.destinations), adapter.gauges()["messages"]) == (["kept"], 3)
    await publish(adapter, b"c", destination="kept")
    assert bodies(await fetch(await adapter.subscribe("kept", "g", alone))) == [b"c"]


async def test_a_message_that_waits_for_the_journal_goes_with_its_destination(place: Place) -> None:
    adapter = await place.start(partitions=1)
    assert isinstance(adapter, DurableAdapter)
    sent = adapter.publish(Message("orders", b"waits", partition=0))
    delayed = adapter.publish(Message("orders", b"waits", partition=0, born_timestamp=now(), delay_time=HOUR))
    await adapter.delete("orders", None)
    await asyncio.gather(sent, delayed)
    assert adapter.gauges()["messages"] == 0
    adapter = await place.restart(partitions=1)
    assert (adapter.gauges()["destinations"], adapter.gauges()["messages"]) == (0, 0)


@pytest.mark.parametrize("how", ["purge", "delete"])
async def test_purging_or_deleting_a_group_leaves_the_loop_to_others(start: Open, how: str) -> None:
    """It visits what the group had not settled, a slice in each turn of the loop."""
    adapter = await start(max_messages=10_001)
    await publish(adapter, *[b"x"] * 10_000)
    for name in ("one", "other"):
        subscription = await adapter.subscribe("orders", name, alone)
        if name == "other":
            await subscription.settle(await fetch(subscription, 10_000), Outcome.SETTLED)
        await subscription.close()
    changing = asyncio.ensure_future(getattr(adapter, how)("orders", "one"))
    turns = 0
    while not changing.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 10_000 // SLICE
    await changing
    await publish(adapter, *[b"y"] * 10_000)  # every group that is left has settled all of the old ones
    assert bodies(await fetch(await adapter.subscribe("orders", "other", alone), 20_000)) == [b"y"] * 10_000


async def test_a_full_backend_does_not_refuse_because_a_purge_is_still_counted(start: Open) -> None:
    adapter = await start(max_messages=2000)
    await publish(adapter, *[b"x"] * 2000)
    await (await adapter.subscribe("orders", "g", alone)).close()
    purging = asyncio.ensure_future(adapter.purge("orders", "g"))
    await asyncio.sleep(0)
    await publish(adapter, b"new")
    purging.cancel()
    await publish(adapter, *[b"y"] * 1999)
    assert len(await fetch(await adapter.subscribe("orders", "g", alone), 3000)) == 2000


async def test_purging_delayed_messages_leaves_the_loop_to_others(start: Open) -> None:
    adapter = await start()
    await publish(adapter, *[b"x"] * 5000, delay_time=HOUR)
    purging = asyncio.ensure_future(adapter.purge("orders", None))
    turns = 0
    while not purging.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 5000 // SLICE
    assert [adapter.gauges()[name] for name in ("messages", "bytes", "delayed")] == [0] * 3
