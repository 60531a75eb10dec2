"""The journal: what was answered is there after a restart, as it was; what could not be written says so."""

import asyncio
import contextlib
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from adapters.base import Delivery, Outcome, Stored, Subscription
from adapters.memory import connect, journal_writer
from adapters.memory.durable_adapter import DurableAdapter
from adapters.memory.journal_batch import Batch
from adapters.memory.recovery import recover
from bridge.errors import BackendFull, BackendUnavailable, CannotStart, OutcomeUnknown
from bridge.message import Message
from tests.unit.adapters_memory.alone import alone

LOTS = 1 << 30


def now() -> int:
    return time.time_ns() // 1_000_000


class Place:
    """A journal's directory, and the adapter that has it open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.open: list[DurableAdapter] = []

    async def start(self, **options: int) -> DurableAdapter:
        adapter = connect(f"memory://?journal={self.path}" + "".join(f"&{k}={v}" for k, v in options.items()))
        assert isinstance(adapter, DurableAdapter)
        self.open.append(adapter)
        await adapter.start()
        return adapter

    async def restart(self, **options: int) -> DurableAdapter:
        await self.open.pop().close()
        return await self.start(**options)

    async def crash(self, **options: int) -> DurableAdapter:
        """Open a copy of the files as they are at this moment, which is what `kill -9` leaves."""
        copy = self.path.with_name(self.path.name + "+")
        shutil.copytree(self.path, copy)
        self.path = copy
        return await self.start(**options)

    def rows(self, table: str) -> int:
        with contextlib.closing(sqlite3.connect(self.path / "journal.db")) as connection:
            return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608


@pytest_asyncio.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path / "journal")
    yield place
    for adapter in place.open:
        await adapter.close()


def message(body: bytes = b"", partition: int = 0, **fields: Any) -> Message:  # noqa: ANN401 - any field of a message
    return Message("orders", body, partition=partition, born_timestamp=now())._replace(**fields)


async def publish(adapter: DurableAdapter, *bodies: bytes, **fields: Any) -> list[Stored]:  # noqa: ANN401 - the same
    futures = [adapter.publish(message(body, **fields)) for body in bodies]
    return [await future for future in futures]


async def fetch(subscription: Subscription, limit: int = 100) -> list[Delivery]:
    return await asyncio.wait_for(subscription.fetch(limit, LOTS), 10)


def bodies(deliveries: list[Delivery]) -> list[bytes]:
    return [delivery.message.body for delivery in deliveries]


async def until(condition: Any) -> None:  # noqa: ANN401 - a call that returns a truth
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("how", ["restart", "crash"])
async def test_everything_is_as_before(place: Place, how: str) -> None:
    adapter = await place.start(partitions=4)
    full = Message(
        "orders", b"\0\xff", {"a": "1", "ü": "\ud800"}, "id", 5, "born", 1, "gzip", 3, 6, "store", "key", "corr",
        "trace", "tx", 0, 7, 9, 1, 2, "text/plain", "00-x", "y=z",
    )  # fmt: skip
    await adapter.publish(full)
    await publish(adapter, *(b"%d" % n for n in range(8)))
    held = message(b"held", delay_time=10**9)
    assert await adapter.publish(held) == Stored(0, None)
    group = await adapter.subscribe("orders", "g", alone)
    got = [d for d in await fetch(group) if d.partition == 0]
    await group.settle([got[n]._replace(attempts=n + 1) for n in range(8)], Outcome.LEASED)
    await group.settle([got[2]._replace(attempts=20)], Outcome.RELEASED)
    await group.settle([got[0], got[1], got[5]], Outcome.SETTLED)
    await adapter.subscribe("orders", "idle", alone)
    before = adapter.gauges()

    adapter = await (place.restart if how == "restart" else place.crash)(partitions=16)
    assert adapter.gauges() == before
    assert await adapter.partitions("orders") == 4, "a known destination keeps its partitions"
    assert await adapter.partitions("new") == 16
    again = await fetch(await adapter.subscribe("orders", "g", alone))
    assert again[0] == Delivery(full, 3, 0, 0) or again[1] == Delivery(full, 3, 0, 0)
    assert [(d.position, d.message.body, d.attempts) for d in again if d.partition == 0] == [
        (2, b"2", 20),
        (3, b"3", 4),
        (4, b"4", 5),
        (6, b"6", 7),
        (7, b"7", 8),
    ]
    assert len(await fetch(await adapter.subscribe("orders", "late", alone))) == 9
    assert await publish(adapter, b"next") == [Stored(0, 8)]


async def test_settled_far_above_a_stuck_message(place: Place) -> None:
    adapter = await place.start(partitions=1)
    await publish(adapter, *(b"%d" % n for n in range(200)))
    group = await adapter.subscribe("orders", "g", alone)
    got = await fetch(group, 200)
    for start in range(1, 200, 7):
        await group.settle([d for d in got[start : start + 7] if d.position not in {50, 51}], Outcome.SETTLED)
    adapter = await place.crash()
    assert [d.position for d in await fetch(await adapter.subscribe("orders", "g", alone))] == [0, 50, 51]


async def test_rows_below_the_cursor_go(place: Place) -> None:
    adapter = await place.start(partitions=1)
    group = await adapter.subscribe("orders", "g", alone)
    for _ in range(20):
        await publish(adapter, b"x")
        got = await fetch(group)
        await group.settle(got, Outcome.LEASED)
        await group.settle(got, Outcome.SETTLED)
    await adapter.close()
    assert (place.rows("settled"), place.rows("attempt"), place.rows("cursor")) == (0, 0, 1)


async def test_the_cursor_goes_on_where_a_kill_left_it(place: Place) -> None:
    adapter = await place.start(partitions=1)
    group = await adapter.subscribe("orders", "g", alone)
    await publish(adapter, b"a", b"b", b"c")
    await group.settle((await fetch(group))[:2], Outcome.SETTLED)
    adapter = await place.crash()
    assert place.rows("settled") == 2, "where the cursor is was not written yet"
    group = await adapter.subscribe("orders", "g", alone)
    await group.settle(await fetch(group), Outcome.SETTLED)
    await adapter.close()
    assert place.rows("settled") == 0


async def test_readable_only_after_the_commit(place: Place) -> None:
    adapter = await place.start()
    group = await adapter.subscribe("orders", "g", alone)
    stored = adapter.publish(message(b"a"))
    unread = group.fetch(1, LOTS)
    assert not unread.done()
    assert not stored.done()
    (delivery,) = await asyncio.wait_for(unread, 10)
    assert stored.done()
    again = await place.crash()
    assert await fetch(await again.subscribe("orders", "other", alone)) == [delivery]


async def test_a_producer_that_gives_up_withdraws_nothing(place: Place) -> None:
    adapter = await place.start()
    adapter.publish(message(b"a")).cancel()
    assert bodies(await fetch(await adapter.subscribe("orders", "g", alone))) == [b"a"]


async def test_durability_0_is_answered_at_once_and_still_written(place: Place) -> None:
    adapter = await place.start()
    first, second = adapter.publish(message(b"a", durability=1)), adapter.publish(message(b"b", durability=0))
    assert second.done()
    assert second.result() == Stored(0, 1)
    assert not first.done()
    adapter = await place.restart()
    assert bodies(await fetch(await adapter.subscribe("orders", "g", alone))) == [b"a", b"b"]


async def test_every_commit_is_synced(place: Place) -> None:
    adapter = await place.start()
    assert adapter._journal is not None
    connection = adapter._journal._connection
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,), "FULL: fsync with each commit"


async def test_one_commit_for_all_that_came_meanwhile(place: Place) -> None:
    adapter = await place.start()
    assert adapter._journal is not None
    before = adapter._journal._commits
    await asyncio.gather(*(publish(adapter, b"x", partition=n % 8) for n in range(500)))
    assert adapter._journal._commits - before <= 2


async def test_dropped_messages_leave_the_journal_and_their_offsets_are_not_given_again(place: Place) -> None:
    adapter = await place.start(retention=200, partitions=1)
    group = await adapter.subscribe("orders", "g", alone)
    await publish(adapter, *(b"%d" % n for n in range(5)))
    got = await fetch(group)
    await group.settle(got, Outcome.LEASED)
    await group.settle([got[1], got[3]], Outcome.SETTLED)
    await until(lambda: adapter.gauges()["messages"] == 0)
    adapter = await place.restart(retention=10**9)
    assert (place.rows("message"), place.rows("settled"), place.rows("attempt")) == (0, 0, 0)
    assert await publish(adapter, b"new") == [Stored(0, 5)]
    adapter = await place.restart()
    assert bodies(await fetch(await adapter.subscribe("orders", "g", alone))) == [b"new"]


async def test_evicted_messages_leave_the_journal(place: Place) -> None:
    adapter = await place.start(max_messages=10, partitions=1)
    group = await adapter.subscribe("orders", "g", alone)
    await publish(adapter, *(b"%d" % n for n in range(10)))
    got = await fetch(group)
    await group.settle(got[1:], Outcome.SETTLED)
    await publish(adapter, b"new")
    assert adapter.totals()["dropped_when_full"] == 9
    adapter = await place.restart(max_messages=10)
    assert place.rows("message") == 2
    assert place.rows("settled") == 0
    assert bodies(await fetch(await adapter.subscribe("orders", "g", alone))) == [b"0", b"new"]


async def test_forgotten_groups_leave_the_journal(place: Place) -> None:
    adapter = await place.start(retention=50)
    await publish(adapter, b"x")
    group = await adapter.subscribe("orders", "g", alone)
    await group.settle(await fetch(group), Outcome.SETTLED)
    await group.close()
    await until(lambda: adapter.gauges()["groups"] == 0)
    await adapter.close()
    assert (place.rows("consumer"), place.rows("cursor"), place.rows("settled")) == (0, 0, 0)


async def test_delayed_over_a_restart_is_never_early_and_comes_once(place: Place) -> None:
    adapter = await place.start()
    born = now()
    for delay in (900, 300, 600):
        await publish(adapter, b"%d" % delay, delay_time=delay, born_timestamp=born)
    await publish(adapter, b"1", delay_time=1, born_timestamp=born)  # due while no adapter is open
    adapter = await place.crash()
    group = await adapter.subscribe("orders", "g", alone)
    seen: list[bytes] = []
    while len(seen) < 4:
        for delivery in await fetch(group):
            assert now() >= delivery.message.due
            seen.append(delivery.message.body)
    assert seen == [b"1", b"300", b"600", b"900"]
    adapter = await place.restart()
    again = await fetch(await adapter.subscribe("orders", "g", alone))
    assert [(d.message.body, d.position) for d in again] == [(b"1", 0), (b"300", 1), (b"600", 2), (b"900", 3)]
    assert adapter.gauges()["delayed"] == 0


# The directory


async def test_the_directory_is_created_for_its_owner_alone(place: Place) -> None:
    place.path = place.path / "deeper"
    await place.start()
    assert place.path.stat().st_mode & 0o777 == 0o700


async def test_a_directory_that_cannot_be_one(place: Place) -> None:
    place.path.write_text("a file")
    with pytest.raises(CannotStart, match="cannot be used"):
        await place.start()


HOLD = """
import asyncio, sys
from adapters.memory import connect
async def main():
    adapter = connect("memory://?journal=" + sys.argv[1])
    await adapter.start()
    print("ready", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


async def test_a_second_process_is_kept_out_until_the_first_is_dead(place: Place) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(place.path)], stdout=subprocess.PIPE) as holder:  # noqa: ASYNC220
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        with pytest.raises(BackendUnavailable, match=f"{place.path} is in use by another process"):
            await place.start()
        holder.kill()
    await place.start()


async def test_a_second_adapter_of_this_process_too(place: Place) -> None:
    first = await place.start()
    with pytest.raises(BackendUnavailable, match="in use"):
        await place.start()
    await first.close()
    await place.start()


async def test_a_start_that_is_cancelled_unlocks_once_its_thread_is_done(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, finish = threading.Event(), threading.Event()
    connections: list[sqlite3.Connection] = []

    def slowly(*arguments: Any) -> tuple[sqlite3.Connection, int]:  # noqa: ANN401 - those of recover
        reading.set()
        finish.wait(20)
        connection, commits = recover(*arguments)
        connections.append(connection)
        return connection, commits

    monkeypatch.setattr("adapters.memory.durable_adapter.recover", slowly)
    task = asyncio.ensure_future(place.start())
    await until(reading.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    monkeypatch.undo()
    with pytest.raises(BackendUnavailable, match="in use"):
        await place.start()
    finish.set()
    await until(lambda: connections)
    async with asyncio.timeout(10):
        while True:
            with contextlib.suppress(BackendUnavailable):
                await place.start()
                break
            await asyncio.sleep(0.01)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connections[0].execute("SELECT 1")


async def test_close_ends_the_thread(place: Place) -> None:
    adapter = await place.start()
    assert any(thread.name == "oms-journal" for thread in threading.enumerate())
    future = adapter.publish(message(b"a"))
    await adapter.close()
    assert (await future) == Stored(0, 0)
    await until(lambda: not any(thread.name == "oms-journal" for thread in threading.enumerate()))


async def test_close_commits_queued_messages(place: Place) -> None:
    adapter = await place.start(partitions=1)
    group = await adapter.subscribe("orders", "g", alone)
    await publish(adapter, b"a", b"b")
    got = await fetch(group)
    group.settle(got[1:], Outcome.LEASED)
    settled = group.settle(got[:1], Outcome.SETTLED)
    stored = adapter.publish(message(b"c"))
    await asyncio.wait_for(adapter.close(), 10)
    await asyncio.wait_for(asyncio.gather(adapter.close(), adapter.close()), 10)
    assert settled.result() is None
    assert stored.result() == Stored(0, 2)
    await adapter.start()
    again = await fetch(await adapter.subscribe("orders", "g", alone))
    assert [(d.message.body, d.attempts) for d in again] == [(b"b", 0), (b"c", 0)]


# Trouble with the disk


async def test_the_queue_is_bounded(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = await place.start()
    monkeypatch.setattr(journal_writer, "QUEUE_MESSAGES", 3)
    futures = [adapter.publish(message(b"x")) for _ in range(5)]
    outcomes = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Stored] * 3 + [BackendFull] * 2
    monkeypatch.setattr(journal_writer, "QUEUE_BYTES", 5000)
    futures = [adapter.publish(message(b"x" * 5000)), adapter.publish(message(b"x"))]
    outcomes = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Stored, BackendFull]
    monkeypatch.setattr(journal_writer, "QUEUE_BYTES", 9000)
    futures = [adapter.publish(message(b"x" * 4000)) for _ in range(5)]
    outcomes = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Stored] * 2 + [BackendFull] * 3
    await publish(adapter, b"x")


def test_what_could_not_be_written_waits_for_the_next_batch() -> None:
    older, newer = Batch(), Batch()
    older.attempts, newer.attempts = {(1, 0, 5): 1, (1, 0, 6): 1}, {(1, 0, 5): 2}
    older.committed_offsets, newer.committed_offsets = {(1, 0): 5, (1, 1): 5}, {(1, 0): 6}
    older.last_offsets, newer.last_offsets = {(1, 0): 7, (1, 1): 7}, {(1, 0): 8}
    older.dropped, newer.dropped = [1], [2]
    older.forgotten_offsets, newer.forgotten_offsets = [(1, 0, 1)], [(1, 0, 2)]
    older.forgotten_groups, newer.forgotten_groups = [3], [4]
    newer.take_over(older)
    assert newer.attempts == {(1, 0, 5): 2, (1, 0, 6): 1}
    assert newer.committed_offsets == {(1, 0): 6, (1, 1): 5}
    assert newer.last_offsets == {(1, 0): 8, (1, 1): 7}
    assert newer.dropped == [1, 2]
    assert newer.forgotten_offsets == [(1, 0, 1), (1, 0, 2)]
    assert newer.forgotten_groups == [3, 4]
    assert not newer.awaited


def limit_pages(adapter: DurableAdapter, pages: int | None) -> None:
    """Make SQLite's disk full, or not; its thread is idle meanwhile."""
    assert adapter._journal is not None
    connection = adapter._journal._connection
    if pages is None:
        pages = 2**30
    else:
        pages += int(connection.execute("PRAGMA page_count").fetchone()[0])
    connection.execute(f"PRAGMA max_page_count={pages}")


async def test_a_full_disk_refuses_what_it_cannot_keep_and_recovers(place: Place) -> None:
    adapter = await place.start(partitions=1)
    group = await adapter.subscribe("orders", "g", alone)
    limit_pages(adapter, 4)
    stored: list[int | None] = []
    outcome: list[Stored | BaseException] = []
    while not outcome or isinstance(outcome[0], Stored):
        stored += [s.offset for s in outcome if isinstance(s, Stored)]
        outcome = [*await asyncio.gather(adapter.publish(message(b"x" * 3000)), return_exceptions=True)]
    assert isinstance(outcome[0], BackendFull)
    assert "disk is full" in str(outcome[0])
    assert stored
    # what makes capacity is still taken
    got = await fetch(group)
    assert [d.position for d in got] == stored
    await group.settle(got[:1], Outcome.SETTLED)
    # promised to memory only, so kept there
    kept = adapter.publish(message(b"y" * 9000, durability=0))
    assert kept.done()
    (late,) = await fetch(group)
    assert (late.position, late.message.body) == (kept.result().offset, b"y" * 9000)
    await group.settle([late], Outcome.SETTLED)
    used = adapter.gauges()["messages"]
    assert used == len(stored) + 1, "what was refused is not counted"
    limit_pages(adapter, None)
    (after,) = await publish(adapter, b"z" * 9000)
    adapter = await place.crash()
    again = await fetch(await adapter.subscribe("orders", "g", alone))
    assert [d.position for d in again] == [*stored[1:], after.offset]


async def test_an_offset_that_only_memory_knew_is_not_given_again(place: Place) -> None:
    adapter = await place.start(partitions=1)
    group = await adapter.subscribe("orders", "g", alone)
    limit_pages(adapter, 0)
    adapter.publish(message(b"y" * 9000, durability=0))
    (delivery,) = await fetch(group)
    await group.settle([delivery], Outcome.SETTLED)
    adapter = await place.crash()
    await publish(adapter, b"new")
    assert bodies(await fetch(await adapter.subscribe("orders", "g", alone))) == [b"new"]


async def test_a_full_disk_is_relieved_by_eviction(place: Place) -> None:
    adapter = await place.start(partitions=1, max_messages=20)
    group = await adapter.subscribe("orders", "g", alone)
    await publish(adapter, *[b"x" * 3000] * 20)
    await group.settle(await fetch(group), Outcome.SETTLED)
    limit_pages(adapter, 0)
    for _ in range(3):
        with contextlib.suppress(BackendFull):
            await publish(adapter, b"y" * 3000)
            break
    else:
        pytest.fail("the evicted messages' pages are free")


async def test_a_due_message_is_delivered_when_a_full_disk_has_space(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.memory.durable_adapter._RETRY", 50)
    adapter = await place.start(partitions=1)
    group = await adapter.subscribe("orders", "g", alone)
    await publish(adapter, b"x" * 9000, delay_time=200)
    limit_pages(adapter, 0)
    waiting = group.fetch(1, LOTS)
    await asyncio.sleep(0.5)
    assert not waiting.done()
    assert adapter.gauges()["messages"] == 1
    limit_pages(adapter, None)
    assert len(await asyncio.wait_for(waiting, 10)) == 1
    adapter = await place.crash()
    assert len(await fetch(await adapter.subscribe("orders", "g", alone))) == 1


class Faulty:
    """A connection whose COMMITs fail as often as the test asks."""

    def __init__(self, adapter: DurableAdapter) -> None:
        assert adapter._journal is not None
        self._connection = adapter._journal._connection
        self.failures = 0
        self.code = sqlite3.SQLITE_IOERR_FSYNC
        adapter._journal._connection = self  # type: ignore[assignment]

    def execute(self, statement: str, *parameters: Any) -> Any:  # noqa: ANN401 - SQLite's own
        if statement == "COMMIT" and self.failures:
            self.failures -= 1
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = self.code
            raise error
        return self._connection.execute(statement, *parameters)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the same
        return getattr(self._connection, name)


async def test_a_commit_that_failed_is_unknown_unless_a_later_one_overwrote_it(place: Place) -> None:
    adapter = await place.start(partitions=1)
    group = await adapter.subscribe("orders", "g", alone)
    await publish(adapter, b"a")
    (delivery,) = await fetch(group)
    disk = Faulty(adapter)
    disk.failures = 1
    with pytest.raises(BackendUnavailable, match="disk I/O error"):
        await publish(adapter, b"b")
    disk.failures = 2
    lost, unsettled = adapter.publish(message(b"c")), group.settle([delivery], Outcome.SETTLED)
    for future in (lost, unsettled):
        with pytest.raises(OutcomeUnknown):
            await future
    disk.failures, disk.code = 2, sqlite3.SQLITE_FULL
    with pytest.raises(BackendFull):
        await publish(adapter, b"d")
    await group.settle([delivery], Outcome.SETTLED)
    (stored,) = await publish(adapter, b"e")
    assert adapter.gauges()["messages"] == 2
    assert bodies(await fetch(group)) == [b"e"]
    adapter = await place.crash()
    assert [(d.message.body, d.position) for d in await fetch(await adapter.subscribe("orders", "g", alone))] == [
        (b"e", stored.offset)
    ]


async def test_a_gap_left_by_a_failed_commit_does_not_stop_the_cursor(place: Place) -> None:
    adapter = await place.start(partitions=1)
    group = await adapter.subscribe("orders", "g", alone)
    disk = Faulty(adapter)
    disk.failures = 1
    with pytest.raises(BackendUnavailable):
        await publish(adapter, b"lost")
    await publish(adapter, b"a", b"b")
    await group.settle(await fetch(group), Outcome.SETTLED)
    assert group.group.cursors[0].committed_offset == 3
    await adapter.close()
    assert place.rows("settled") == 0


async def test_changes_that_no_call_waits_for_are_written_when_the_disk_is_back(place: Place) -> None:
    adapter = await place.start(partitions=1)
    group = await adapter.subscribe("orders", "g", alone)
    await publish(adapter, b"a")
    (delivery,) = await fetch(group)
    disk = Faulty(adapter)
    disk.failures = 4
    await group.settle([delivery._replace(attempts=7)], Outcome.LEASED)
    await until(lambda: disk.failures == 2)
    with pytest.raises(OutcomeUnknown):
        await publish(adapter, b"b")
    await publish(adapter, b"c")
    adapter = await place.crash()
    assert [d.attempts for d in await fetch(await adapter.subscribe("orders", "g", alone))] == [7, 0]


async def test_a_group_that_could_not_be_recorded_is_not_joined(place: Place) -> None:
    adapter = await place.start()
    disk = Faulty(adapter)
    disk.failures = 2
    with pytest.raises(OutcomeUnknown):
        await adapter.subscribe("orders", "g", alone)
    await adapter.subscribe("orders", "g", alone)
    assert place.rows("consumer") == 1


async def test_a_group_that_was_never_recorded_leaves_nothing_behind(place: Place) -> None:
    adapter = await place.start()
    await publish(adapter, b"a")
    disk = Faulty(adapter)
    disk.failures = 2
    with pytest.raises(OutcomeUnknown):
        await adapter.subscribe("orders", "g", alone, latest=True)
    await publish(adapter, b"b")
    adapter = await place.crash()
    assert bodies(await fetch(await adapter.subscribe("orders", "g", alone))) == [b"a", b"b"]


async def test_a_forgotten_group_leaves_nothing_behind(place: Place) -> None:
    adapter = await place.start(retention=50)
    group = await adapter.subscribe("orders", "g", alone)
    await publish(adapter, b"a")
    got = await fetch(group)
    await group.close()
    await until(lambda: adapter.gauges()["groups"] == 0)
    await group.settle(got, Outcome.SETTLED)
    await group.settle(got, Outcome.LEASED)
    adapter = await place.restart()
    await publish(adapter, b"b", partition=0)
    assert bodies(await fetch(await adapter.subscribe("orders", "g", alone))) == [b"b"]


async def test_closing_on_a_broken_disk_ends(place: Place) -> None:
    adapter = await place.start()
    disk = Faulty(adapter)
    disk.failures = 100
    future = adapter.publish(message(b"a"))
    group = asyncio.ensure_future(adapter.subscribe("orders", "g", alone))
    await asyncio.sleep(0)
    await asyncio.wait_for(adapter.close(), 10)
    with pytest.raises(OutcomeUnknown):
        await future
    with pytest.raises(OutcomeUnknown):
        await group


async def test_a_message_that_cannot_be_written_does_not_stop_the_others(place: Place) -> None:
    adapter = await place.start()
    with pytest.raises(BackendUnavailable, match="cannot be written"):
        await adapter.publish(message(b"a", priority=object()))
    assert await publish(adapter, b"b") == [Stored(0, 1)]


DISK_LIMIT = """
import asyncio, os, resource, sys
from adapters.memory import connect
from bridge.errors import BridgeError
from bridge.message import Message
async def main():
    adapter = connect("memory://?partitions=1&journal=" + sys.argv[1])
    await adapter.start()
    n = 0
    async def publish():
        nonlocal n
        n += 1
        try:
            stored = await adapter.publish(Message("orders", b"%d " % n + b"x" * 3000, partition=0))
        except BridgeError as error:
            return type(error).__name__
        os.write(1, b"%d %d\\n" % (n, stored.offset))
        return "Stored"
    seen = [await publish() for _ in range(20)]
    size = os.stat(sys.argv[1] + "/journal.db-wal").st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10_000, resource.RLIM_INFINITY))
    seen += [await publish() for _ in range(10)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    seen += [await publish() for _ in range(5)]
    assert seen[:20] == ["Stored"] * 20 and seen[-5:] == ["Stored"] * 5, seen
    assert "OutcomeUnknown" in seen or "BackendUnavailable" in seen, seen
    os.write(1, b"done\\n")
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""


async def test_real_write_errors_lose_nothing_and_pass(place: Place) -> None:
    done = subprocess.run([sys.executable, "-c", DISK_LIMIT, str(place.path)], stdout=subprocess.PIPE, check=False)  # noqa: ASYNC221
    lines = done.stdout.decode().splitlines()
    assert lines.pop() == "done"
    stored = {line.split()[1]: line.split()[0] for line in lines}
    adapter = await place.start()
    got = await fetch(await adapter.subscribe("orders", "g", alone))
    assert {str(d.position): d.message.body.split()[0].decode() for d in got} == stored


async def test_a_journal_that_others_can_read_is_warned_of_once_and_a_new_one_is_private(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    cases: list[tuple[int, int, str | None]] = [
        (0o755, 0o644, "journal.db"),
        (0o750, 0o640, "journal.db"),
        (0o711, 0o604, "journal.db"),
        (0o777, 0o600, "d"),
        (0o755, 0o600, None),
        (0o755, 0o640, "journal.db"),
        (0o700, 0o644, None),
        (0o740, 0o644, None),  # without x they reach no file in it
        (0o2775, 0o600, None),
    ]
    for folder, file, exposed in cases:
        with subtests.test(f"{folder:o} {file:o}"):
            path = tmp_path / f"{folder:o}-{file:o}" / "d"
            path.mkdir(parents=True)
            path.chmod(folder)
            place = Place(path)
            try:
                await place.start()
                await place.open.pop().close()
                assert {each.stat().st_mode & 0o777 for each in path.iterdir()} == {0o600}
                caplog.clear()
                (path / "journal.db").chmod(file)
                await place.start()
                warnings = [vars(record)["exposed"] for record in caplog.records]
                assert warnings == ([] if exposed is None else [exposed])
            finally:
                for adapter in place.open:
                    await adapter.close()
