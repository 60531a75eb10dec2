"""The polling thread without a broker: what the member learns before the first join is complete or fails."""

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine, Sequence

import pytest
from kafka import TopicPartition, errors

from adapters.kafka.consume import poller
from adapters.kafka.consume.membership import Membership
from adapters.kafka.consume.poller import Poller
from adapters.kafka.mapping import Commit, Part, Record
from adapters.kafka.options import Options
from bridge.errors import BackendUnavailable, Refused
from tests.kafka.members import until
from tests.unit.adapters_kafka.fake_library import FakeLibrary, Owner, run

ONE, OTHER = Part("orders", 0), Part("orders", 1)
SECONDS = 60.0

Step = Callable[["FakeSession"], list[Record]]


class FakeSession:
    """Does one step of the test's script in each poll; after the last one it waits to be stopped."""

    fenced = False
    stable = well = True

    def __init__(self, steps: Sequence[Step]) -> None:
        self.consumer = FakeLibrary()
        self.quick: list[bool] = []
        """How each poll was asked for."""
        self.listener: Membership
        self._steps = iter(steps)

    def subscribe(self, _: Sequence[str], listener: Membership) -> None:
        self.listener = listener

    def poll(self, *, quick: bool) -> list[Record]:
        self.quick.append(quick)
        step = next(self._steps, None)
        if step is None:
            threading.Event().wait(0.01)
            return []
        return step(self)

    def paused(self) -> int:
        return len(self.consumer.is_paused)

    def run(self, coroutine: Callable[[], Coroutine[object, object, object]]) -> None:
        run(coroutine())

    def empty(self, parts: Collection[Part]) -> set[Part]:
        return set(parts) - set(parts)

    def close(self) -> None: ...


class Bench:
    """A poller whose session follows a script."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *steps: Step) -> None:
        self.session, self.owner = FakeSession(steps), Owner()
        monkeypatch.setattr(poller, "Session", lambda *_: self.session)
        loop = asyncio.get_running_loop()
        self.poller = Poller(loop, Options(("nowhere",)), "group", ["orders"], self.owner)

    async def stop(self) -> None:
        self.poller.stop({})
        await asyncio.wait_for(self.poller.ended, SECONDS)


def assign(*parts: Part) -> Step:
    def step(session: FakeSession) -> list[Record]:
        run(session.listener.on_partitions_assigned([TopicPartition(*part) for part in parts]))
        return []

    return step


def lose(*parts: Part) -> Step:
    def step(session: FakeSession) -> list[Record]:
        run(session.listener.on_partitions_lost([TopicPartition(*part) for part in parts]))
        return []

    return step


def deliver(part: Part) -> Step:
    return lambda _: [Record(*part, 0, 0, None, b"", ())]


def fail(error: Exception) -> Step:
    def step(_: FakeSession) -> list[Record]:
        raise error

    return step


def wait_for(event: threading.Event) -> Step:
    def step(_: FakeSession) -> list[Record]:
        assert event.wait(SECONDS)
        return []

    return step


async def test_a_join_that_fails_takes_back_what_was_assigned_already(monkeypatch: pytest.MonkeyPatch) -> None:
    came = threading.Event()
    refusal = errors.GroupAuthorizationFailedError("group")
    bench = Bench(monkeypatch, assign(ONE, OTHER), deliver(ONE), wait_for(came), fail(refusal))
    bench.owner.on_records = lambda _: came.set()
    with pytest.raises(Refused):
        await asyncio.wait_for(bench.poller.joined, SECONDS)
    assert bench.owner.events == ["assigned 0", "assigned 1", "record of 0", "lost 0", "lost 1"]
    with pytest.raises(Refused):
        await bench.poller.ended


async def test_so_does_a_defect_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    came = threading.Event()
    defect = ZeroDivisionError("a defect")
    bench = Bench(monkeypatch, assign(ONE, OTHER), deliver(ONE), wait_for(came), fail(defect))
    bench.owner.on_records = lambda _: came.set()
    with pytest.raises(BackendUnavailable, match="a defect"):
        await asyncio.wait_for(bench.poller.joined, SECONDS)
    assert bench.owner.events == ["assigned 0", "assigned 1", "record of 0", "lost 0", "lost 1"]


async def test_partitions_lost_while_the_loop_is_busy_are_taken_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the member would confirm acknowledgements of a partition that another bridge has."""
    go = threading.Event()
    refusal = errors.GroupAuthorizationFailedError("group")
    bench = Bench(monkeypatch, assign(ONE, OTHER), wait_for(go), lose(ONE), fail(refusal))
    await until(lambda: len(bench.owner.held) == 2)
    go.set()
    bench.poller._thread.join(SECONDS)  # the loop stands still until the thread has ended
    with pytest.raises(Refused):
        await asyncio.wait_for(bench.poller.joined, SECONDS)
    assert not bench.owner.held


async def test_after_that_nothing_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, assign(ONE), fail(errors.GroupAuthorizationFailedError("group")))
    with pytest.raises(Refused):
        await asyncio.wait_for(bench.poller.joined, SECONDS)
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    bench.poller.commit({ONE: Commit(1, "")}, future)
    with pytest.raises(BackendUnavailable):
        await future
    assert not bench.session.consumer.written


async def test_a_partition_is_paused_before_the_first_join_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large backlog fills the buffer while the first records of other partitions are still waited for."""
    paused = threading.Event()
    bench = Bench(monkeypatch, assign(ONE, OTHER), deliver(ONE), wait_for(paused), deliver(OTHER))

    def pause(records: Sequence[Record]) -> None:
        bench.poller.set_paused([Part(each.topic, each.partition) for each in records], paused=True)
        if not paused.is_set():
            assert bench.session.consumer.is_paused == {TopicPartition(*ONE)}
            assert not bench.poller.joined.done()
        paused.set()

    bench.owner.on_records = pause
    await asyncio.wait_for(bench.poller.joined, SECONDS)
    await asyncio.sleep(0)  # `arrived` comes before
    assert bench.owner.events == ["assigned 0", "assigned 1", "record of 0", "record of 1"]
    assert bench.session.consumer.is_paused == {TopicPartition(*ONE), TopicPartition(*OTHER)}
    assert all(bench.session.quick), "until the join is complete no poll may be slow"
    await bench.stop()


async def test_if_all_are_paused_the_thread_waits_for_the_first_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller, "POLL", SECONDS * 1000)
    bench = Bench(monkeypatch, assign(ONE), deliver(ONE))
    bench.owner.on_records = lambda _: bench.poller.set_paused([ONE], paused=True)
    await asyncio.wait_for(bench.poller.joined, SECONDS)
    await until(lambda: bench.session.consumer.is_paused)
    bench.session._steps = iter([deliver(ONE)])
    bench.owner.on_records = lambda _: None
    bench.poller.set_paused([ONE], paused=False)
    await until(lambda: bench.owner.events.count("record of 0") == 2)
    await bench.stop()


async def test_partitions_without_known_offsets_are_looked_up_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are paused, and no pause of the member's: the thread must not wait until it is lifted."""
    monkeypatch.setattr(poller, "POLL", SECONDS * 1000)

    def unreadable(session: FakeSession) -> list[Record]:
        session.consumer.unreadable = errors.NotCoordinatorError()
        session.well = False
        return assign(OTHER)(session)

    def readable(session: FakeSession) -> list[Record]:
        session.well = True
        return []

    bench = Bench(monkeypatch, assign(ONE), unreadable, readable, deliver(ONE), deliver(OTHER))
    async with asyncio.timeout(SECONDS / 2):
        await asyncio.shield(bench.poller.joined)
    assert bench.owner.held == {ONE, OTHER}
    await bench.stop()
