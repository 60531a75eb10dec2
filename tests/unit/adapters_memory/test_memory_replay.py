"""The log read again by offsets: what a mirror must be able to rely on, without a journal and with one."""

import sqlite3

import pytest

from adapters.base import Outcome, Replayable
from adapters.memory import connect
from adapters.memory.adapter import MemoryAdapter
from adapters.testing.replay import logs_of
from bridge.errors import BackendUnavailable, DestinationUnknown
from bridge.message import Message
from tests.unit.adapters_memory.alone import alone
from tests.unit.adapters_memory.test_memory_adapter import LOTS, Open, fetch, publish, start
from tests.unit.adapters_memory.test_memory_journal import Faulty, Place, limit_pages, place

__all__ = ["place", "start"]  # fixtures


def only(adapter: MemoryAdapter) -> str:
    (log,) = logs_of(adapter)
    return log


def contents(adapter: MemoryAdapter, start: int = 0) -> list[tuple[int, bytes]]:
    found = adapter.replay(only(adapter), start, 1000, LOTS)
    return [(offset, message.body) for offset, message in zip(found.offsets, found.messages, strict=True)]


async def test_a_log_exists_from_its_first_message_on(start: Open) -> None:
    adapter = await start()
    assert isinstance(adapter, Replayable)
    await adapter.partitions("orders")
    assert logs_of(adapter) == {}
    await publish(adapter, b"a", b"b", partition=3)
    (log,) = logs_of(adapter)
    epoch, destination, partition = log.split("/")
    assert (len(epoch), destination, partition) == (16, "orders", "3")
    assert logs_of(adapter) == {log: (0, 2)}


async def test_messages_come_back_whole_and_in_order(start: Open) -> None:
    adapter = await start(partitions=1)
    message = Message("orders", b"\0", {"a": "1", "ü": ""}, "id", 5, "born", partition=0, priority=0, message_key="k")
    await adapter.publish(message)
    await publish(adapter, b"b", b"c")
    found = adapter.replay(only(adapter), 0, 2, LOTS)
    assert found.messages[0] == message
    assert (list(found.offsets), found.next, found.dropped) == ([0, 1], 2, [])
    rest = adapter.replay(only(adapter), found.next, 2, LOTS)
    assert (list(rest.offsets), rest.next) == ([2], 3)
    assert adapter.replay(only(adapter), 3, 2, LOTS)[:3] == ([], [], 3)
    assert adapter.replay(only(adapter), 99, 2, LOTS)[:3] == ([], [], 99)


async def test_sizes_do_not_exceed_max_bytes_unless_there_is_one(start: Open) -> None:
    """Bodies, properties and other headers count, whichever is large."""
    adapter = await start(partitions=1)
    await publish(adapter, b"x" * 60)
    await publish(adapter, b"", properties={"n" * 30: "v" * 30})
    await publish(adapter, b"x" * 30, message_id="m" * 30)
    each = 60 + len("orders")
    counts = [
        len(adapter.replay(only(adapter), 0, 9, size).offsets)
        for size in (1, each, 2 * each - 1, 2 * each, 3 * each - 1, 3 * each)
    ]
    assert counts == [1, 1, 1, 2, 2, 3]


async def test_settled_messages_are_still_read(start: Open) -> None:
    adapter = await start(partitions=1)
    await publish(adapter, b"a", b"b")
    group = await adapter.subscribe("orders", "g", alone)
    await group.settle(await fetch(group), Outcome.SETTLED)
    assert contents(adapter) == [(0, b"a"), (1, b"b")]


async def test_a_delayed_message_enters_the_log_when_it_is_due(start: Open) -> None:
    adapter = await start(partitions=1)
    await publish(adapter, b"later", delay_time=300)
    assert logs_of(adapter) == {}
    await publish(adapter, b"now")
    group = await adapter.subscribe("orders", "g", alone)
    while (delivery := (await fetch(group, 1))[0]).message.body != b"later":
        pass
    assert contents(adapter) == [(0, b"now"), (1, b"later")]
    assert delivery.position == 1


async def test_dropped_offsets_are_reported_and_those_at_the_front_move_the_first(start: Open) -> None:
    adapter = await start(partitions=1, max_messages=6)
    await publish(adapter, *(b"%d" % n for n in range(6)))
    group = await adapter.subscribe("orders", "g", alone)
    deliveries = await fetch(group)
    await group.settle([deliveries[n] for n in (0, 2, 3)], Outcome.SETTLED)
    await publish(adapter, b"6", b"7", b"8")
    log = only(adapter)
    assert logs_of(adapter) == {log: (1, 9)}
    found = adapter.replay(log, 0, 1000, LOTS)
    assert [message.body for message in found.messages] == [b"1", b"4", b"5", b"6", b"7", b"8"]
    assert found.dropped == [(0, 1), (2, 4)]
    assert adapter.replay(log, 3, 1, LOTS) == ([4], found.messages[1:2], 5, [(3, 4)])


async def test_offsets_dropped_at_the_end_are_reported_at_once(start: Open) -> None:
    adapter = await start(partitions=2, max_messages=2)
    await publish(adapter, b"a", b"b")
    group = await adapter.subscribe("orders", "g", alone)
    await group.settle((await fetch(group))[1:], Outcome.SETTLED)
    await publish(adapter, b"c", partition=1)
    log = next(iter(logs_of(adapter)))
    assert logs_of(adapter)[log] == (0, 2)
    assert adapter.replay(log, 0, 100, LOTS)[2:] == (2, [(1, 2)])


async def test_the_end_of_a_partial_answer_does_not_reach_over_messages(start: Open) -> None:
    adapter = await start(partitions=1, max_messages=4)
    await publish(adapter, *(b"%d" % n for n in range(4)))
    group = await adapter.subscribe("orders", "g", alone)
    deliveries = await fetch(group)
    await group.settle([deliveries[1]], Outcome.SETTLED)
    await publish(adapter, b"4")
    assert adapter.replay(only(adapter), 0, 1, LOTS)[2:] == (1, [])
    assert adapter.replay(only(adapter), 1, 1, LOTS)[2:] == (3, [(1, 2)])


async def test_another_log_is_unknown(subtests: pytest.Subtests, start: Open) -> None:
    adapter = await start(partitions=1)
    await publish(adapter, b"a")
    cases: list[str] = [
        "",
        "orders",
        "orders/0",
        "x/orders/0",
        "{}/orders/1",
        "{}/orders/-1",
        "{}/other/0",
        "{}/orders/",
        "{}/orders/00",
        "{}/orders/0/0",
        "{}/orders/²",
        "{}/orders/99999999999999999999",
    ]
    for log in cases:
        with subtests.test(log=log), pytest.raises(DestinationUnknown, match="There is no log"):
            adapter.replay(log.format(only(adapter).partition("/")[0]), 0, 1, LOTS)


async def test_before_the_start_nothing_is_known() -> None:
    adapter = connect("memory://")
    assert isinstance(adapter, Replayable)
    with pytest.raises(BackendUnavailable):
        logs_of(adapter)
    with pytest.raises(BackendUnavailable):
        adapter.replay("x", 0, 1, 1)


async def test_each_start_without_a_journal_is_a_new_epoch() -> None:
    names = []
    adapter = connect("memory://")
    assert isinstance(adapter, MemoryAdapter)
    for _ in range(2):
        await adapter.start()
        await publish(adapter, b"a")
        names.append(only(adapter))
        await adapter.close()
    assert names[0] != names[1]


@pytest.mark.parametrize("how", ["restart", "crash"])
async def test_with_a_journal_the_epoch_and_every_offset_stay(place: Place, how: str) -> None:
    adapter = await place.start(partitions=1, max_messages=3)
    await publish(adapter, b"a", b"b", b"c")
    group = await adapter.subscribe("orders", "g", alone)
    await group.settle((await fetch(group))[1:2], Outcome.SETTLED)
    await publish(adapter, b"d")
    before = logs_of(adapter), adapter.replay(only(adapter), 0, 100, LOTS)
    assert before[1].dropped == [(1, 2)]
    adapter = await (place.restart if how == "restart" else place.crash)()
    assert (logs_of(adapter), adapter.replay(only(adapter), 0, 100, LOTS)) == before


async def test_a_journal_older_than_epochs_gets_one_for_good(place: Place) -> None:
    adapter = await place.start(partitions=1)
    await publish(adapter, b"a")
    await place.open.pop().close()
    with sqlite3.connect(place.path / "journal.db") as connection:
        connection.execute("DELETE FROM meta WHERE name='epoch'")
        connection.execute("DROP TABLE void")
    connection.close()
    log = only(await place.start())
    assert only(await place.restart()) == log


async def test_an_unused_offset_is_not_reported_as_dropped(place: Place) -> None:
    adapter = await place.start(partitions=1)
    disk = Faulty(adapter)
    disk.failures = 1
    with pytest.raises(BackendUnavailable):
        await publish(adapter, b"refused")
    await publish(adapter, b"a")
    disk.failures = 1
    with pytest.raises(BackendUnavailable):
        await publish(adapter, b"refused")
    await publish(adapter, b"b")
    log = only(adapter)
    for each in (adapter, await place.crash()):
        assert logs_of(each) == {log: (0, 4)}
        assert contents(each) == [(1, b"a"), (3, b"b")]
        assert each.replay(log, 0, 100, LOTS).dropped == []


async def test_messages_that_a_crash_could_remove_are_not_replayed(place: Place) -> None:
    adapter = await place.start(partitions=1)
    await publish(adapter, b"a")
    limit_pages(adapter, 1)
    await publish(adapter, b"b" * 100_000, durability=0)
    group = await adapter.subscribe("orders", "g", alone)
    found = await fetch(group)
    if len(found) == 1:
        found += await fetch(group)
    assert [delivery.position for delivery in found] == [0, 1]
    assert contents(adapter) == [(0, b"a")]
    assert logs_of(adapter) == {only(adapter): (0, 1)}
    limit_pages(adapter, None)
    await publish(adapter, b"c")
    assert [offset for offset, _ in contents(adapter)] == [0, 1, 2]
    log = only(adapter)
    adapter = await place.crash()
    assert adapter.replay(log, 0, 100, LOTS).dropped == [(1, 2)]


async def test_a_damaged_epoch_stops_the_start(place: Place) -> None:
    await place.start()
    await place.open.pop().close()
    with sqlite3.connect(place.path / "journal.db") as connection:
        connection.execute("UPDATE meta SET value=value+1 WHERE name='epoch'")
    connection.close()
    with pytest.raises(Exception, match="epoch does not match its checksum"):
        await place.start()
    place.open.clear()
