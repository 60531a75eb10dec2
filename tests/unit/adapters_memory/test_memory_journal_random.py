"""Whatever happens in whatever order, with a disk that fails now and then: the journal holds what memory holds."""

import asyncio
import contextlib
import shutil
import sqlite3
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.base import Delivery, Outcome
from adapters.memory import connect
from adapters.memory.durable_adapter import DurableAdapter
from adapters.memory.subscription import MemorySubscription
from bridge.errors import BridgeError
from bridge.message import Message
from tests.unit.adapters_memory.alone import alone
from tests.unit.adapters_memory.wall import set_wall

RETENTION = 10_000
STEPS = 120


class Disk:
    """A connection whose transactions fail now and then, at any of their statements."""

    def __init__(self, adapter: DurableAdapter, draw: Random) -> None:
        assert adapter._journal is not None
        self._connection = adapter._journal._connection
        self._draw = draw
        self.broken = 0.0
        adapter._journal._connection = self  # type: ignore[assignment]

    def execute(self, statement: str, *parameters: Any) -> Any:  # noqa: ANN401 - SQLite's own
        if self._draw.random() < self.broken:
            error = sqlite3.OperationalError("broken")
            error.sqlite_errorcode = self._draw.choice((sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR))
            raise error
        return self._connection.execute(statement, *parameters)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the same
        return getattr(self._connection, name)


def state(adapter: DurableAdapter) -> dict[str, object]:
    """Everything that must be the same after a restart."""
    store = adapter._store
    found: dict[str, object] = {"delayed": sorted((record[0], sequence) for _, sequence, record in store._delayed)}
    for destination, partition in store.partitions():
        kept = [(partition.offsets[i], partition.sequences[i], partition.messages[i]) for i, _ in partition.kept()]
        if kept:
            found[f"{destination.name}/{partition.number}"] = kept
        for group in destination.groups.values():
            cursor = group.cursors[partition.number]
            unsettled = [offset for _, offset in partition.kept() if not cursor.has_settled(offset)]
            attempts = [cursor.attempts.get(offset, 0) for offset in unsettled]
            low = partition.next_kept(cursor.committed_offset) if unsettled else None
            found[f"{destination.name}/{partition.number}/{group.name}"] = (low, unsettled, attempts)
            found[f"{destination.name}/{group.name}"] = group.number
        if spare := [offset for _, offset in partition.kept() if offset in partition.settled_by_all]:
            found[f"{destination.name}/{partition.number}/spare"] = spare
    return found


class Run:
    """One adapter under random use."""

    def __init__(self, path: Path, draw: Random) -> None:
        self.path = path
        self.draw = draw
        self.now = 1_700_000_000_000
        self.subscriptions: list[tuple[MemorySubscription, list[Delivery]]] = []
        self.loose: list[asyncio.Future[Any]] = []

    async def start(self) -> DurableAdapter:
        adapter = connect(f"memory://?partitions=2&max_messages=40&retention={RETENTION}&journal={self.path}")
        assert isinstance(adapter, DurableAdapter)
        await adapter.start()
        return adapter

    async def step(self, adapter: DurableAdapter) -> None:
        draw = self.draw
        match draw.randrange(12):
            case 0 | 1 | 2 | 3:
                for _ in range(draw.randrange(1, 6)):
                    self.publish(adapter, draw.choice((0, 0, 0, 3000)))
            case 4:
                await self.subscribe(adapter)
            case 5 if self.subscriptions:
                subscription, _ = draw.choice(self.subscriptions)
                await subscription.close()
            case 6 | 7 | 8 if self.subscriptions:
                await self.consume()
            case 9:
                self.now += draw.choice((1, 100, 3000))
                adapter._append_due()
            case 10:
                self.now += draw.choice((10, RETENTION // 2, RETENTION))
                adapter._expire_old()
            case _:
                await self.settle_loose()
        await asyncio.sleep(0)

    async def settle_loose(self) -> None:
        """Wait until everything begun is answered, however."""
        if self.loose:
            await asyncio.wait(self.loose)
        for future in self.loose:
            future.exception()
        self.loose.clear()

    def publish(self, adapter: DurableAdapter, delay: int) -> None:
        message = Message(
            self.draw.choice(("orders", "payments")), self.draw.randbytes(20), {"n": "1"},
            partition=self.draw.randrange(2), born_timestamp=self.now, delay_time=delay,
        )  # fmt: skip
        self.loose.append(adapter.publish(message))

    async def subscribe(self, adapter: DurableAdapter) -> None:
        source, name = self.draw.choice(("orders", "payments")), self.draw.choice("abc")
        with contextlib.suppress(BridgeError, RuntimeError):
            subscription = await adapter.subscribe(source, name, alone, latest=self.draw.random() < 0.3)
            self.subscriptions.append((subscription, []))

    async def consume(self) -> None:
        """Fetch, lease, release and settle; late and twice too, by subscriptions that are closed or forgotten."""
        draw = self.draw
        subscription, held = draw.choice(self.subscriptions)
        if not subscription.closed:
            fetched = subscription.fetch(draw.randrange(1, 9), 1 << 20)
            held += fetched.result() if fetched.done() else []
            fetched.cancel()
        some = [d._replace(attempts=d.attempts + draw.randrange(3)) for d in held if draw.random() < 0.6]
        outcome = draw.choice((Outcome.LEASED, Outcome.RELEASED, Outcome.SETTLED, Outcome.SETTLED))
        self.loose.append(subscription.settle(some, outcome))


async def scenario(path: Path, seed: int) -> None:
    draw = Random(seed)  # noqa: S311 - no secret
    run = Run(path, draw)
    with pytest.MonkeyPatch.context() as monkeypatch:
        set_wall(monkeypatch, lambda: run.now)
        adapter = await run.start()
        for _ in range(3):
            disk = Disk(adapter, draw)
            for _ in range(STEPS):
                if draw.random() < 0.05:
                    disk.broken = draw.choice((0.0, 0.0, 0.02, 0.2, 1.0))
                await run.step(adapter)
            disk.broken = 0.0
            await settle_down(adapter, run)
            copy = Path(f"{run.path}+")
            shutil.copytree(run.path, copy)
            expected = state(adapter)
            await adapter.close()
            run.path = copy
            run.subscriptions.clear()
            adapter = await run.start()
            assert state(adapter) == expected
            assert adapter._capacity.messages == adapter.gauges()["delayed"] + sum(
                len(partition) for _, partition in adapter._store.partitions()
            )
        await adapter.close()


async def settle_down(adapter: DurableAdapter, run: Run) -> None:
    """Join every group once more, so that none is there whose joining failed; then wait until all is written."""
    for subscription, _ in run.subscriptions:
        await subscription.close()
    for destination in list(adapter._store.destinations.values()):
        for name in list(destination.groups):
            await (await adapter.subscribe(destination.name, name, alone)).close()
    await run.settle_loose()
    await written(adapter)
    for as_the_next_start_will in (adapter._append_due, adapter._expire_old):
        as_the_next_start_will()
        await written(adapter)


async def written(adapter: DurableAdapter) -> None:
    journal = adapter._journal
    assert journal is not None
    while journal._writing is not None or journal.batch or journal._scheduled:
        journal.flush()
        await asyncio.sleep(0.001)


@given(st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_the_journal_holds_what_memory_holds(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(scenario(Path(folder) / "journal", seed))
