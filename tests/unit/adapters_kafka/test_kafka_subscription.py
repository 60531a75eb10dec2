"""A subscription without a broker: a topic that is created again under it, and messages that fall due unfetched."""

import asyncio
from collections.abc import Collection, Sequence
from typing import cast

import pytest

from adapters.base import Delivery, Outcome
from adapters.kafka.admin import Admin
from adapters.kafka.consume import subscription
from adapters.kafka.consume.buffer import RECORDS_MAX
from adapters.kafka.consume.poller import Poller
from adapters.kafka.consume.subscription import KafkaSubscription
from adapters.kafka.mapping import Commit, Commits, Part, Record, to_record
from adapters.kafka.options import Options
from bridge.errors import BackendUnavailable
from bridge.message import Message

PART = Part("orders", 0)
NOW = 1_700_000_000_000


class FakePoller:
    """Remembers what is paused and committed."""

    def __init__(self) -> None:
        self.is_paused: set[Part] = set()
        self.written: list[Commits] = []

    def set_paused(self, parts: Collection[Part], *, paused: bool) -> None:
        (self.is_paused.update if paused else self.is_paused.difference_update)(parts)

    def commit(self, commits: Commits, future: asyncio.Future[None]) -> None:
        self.written.append(commits)
        future.set_result(None)


class Bench:
    """A subscription that holds one partition."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = NOW
        self.revoked: list[int] = []
        monkeypatch.setattr(subscription, "wall", lambda: self.now)
        admin = cast("Admin", None)
        self.subscription = KafkaSubscription(Options(("nowhere",)), admin, "group", ["orders"], self._revoke)
        self.poller = FakePoller()
        self.subscription._poller = cast("Poller", self.poller)
        self.subscription.assigned(PART, None)

    def _revoke(self, partitions: Collection[int]) -> Sequence[Delivery]:
        self.revoked += partitions
        return []

    def arrive(self, first: int, count: int = 1, *, delay: int | None = None) -> None:
        message = Message("orders", b"body", message_id="1", born_timestamp=NOW, delay_time=delay)
        outgoing = to_record(message._replace(partition=0, store_timestamp=NOW), "orders")
        numbers = range(first, first + count)
        self.subscription.arrived([Record(*PART, n, NOW, None, outgoing.value, outgoing.headers) for n in numbers])

    async def fetch(self) -> list[Delivery]:
        return await asyncio.wait_for(self.subscription.fetch(10, 1 << 20), 60)


async def test_a_partition_that_was_paused_goes_on_with_its_new_log(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.arrive(0, RECORDS_MAX + 1)
    assert bench.poller.is_paused == {PART}
    bench.arrive(0)  # an offset comes again
    assert bench.revoked == [0]
    assert not bench.poller.is_paused
    assert [each.position for each in await bench.fetch()] == [0]


async def test_the_outcome_of_a_message_of_the_old_log_is_not_taken_for_one_of_the_new(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    """The engine may be writing a dead letter of the old message while the topic is created again."""
    for how in "an offset came again", "lost and assigned", "revoked and assigned":
        with subtests.test(how):
            bench = Bench(monkeypatch)
            bench.arrive(0)
            [old] = await bench.fetch()
            if how == "lost and assigned":
                bench.subscription.lost([PART])
                bench.subscription.assigned(PART, None)
            elif how == "revoked and assigned":
                bench.subscription.revoked([PART])
                bench.subscription.assigned(PART, None)
            bench.arrive(0)
            with pytest.raises(BackendUnavailable):
                await bench.subscription.settle([old], Outcome.SETTLED)
            [new] = await bench.fetch()
            assert not bench.poller.written
            await bench.subscription.settle([new], Outcome.SETTLED)
            assert bench.poller.written == [{PART: Commit(1, "")}]


async def test_a_due_message_that_is_not_fetched_sets_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group whose prefetch buffer is full does not fetch; a timer would go off every millisecond."""
    bench = Bench(monkeypatch)
    bench.arrive(0, delay=5_000)
    pending = bench.subscription.fetch(10, 1 << 20)
    assert not pending.done()
    assert bench.subscription._timer is not None
    pending.cancel()
    bench.now += 5_000
    bench.subscription._timer.cancel()
    bench.subscription._ripen()
    assert bench.subscription._timer is None
    assert [each.position for each in await bench.fetch()] == [0]


async def test_a_message_that_falls_due_ends_a_pending_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.arrive(0, delay=5)
    pending = bench.subscription.fetch(10, 1 << 20)
    assert not pending.done()
    bench.now += 5
    assert [each.position for each in await asyncio.wait_for(pending, 60)] == [0]
