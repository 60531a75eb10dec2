"""A subscription from which nothing is fetched ahead: no message lies in the bridge that no consumer waits for."""

import asyncio

from adapters.base import Delivery, OnDemand, Outcome
from bridge.engine.pull_and_prefetch import PullRequest
from tests.unit.engine.fakes import FakeSubscription, delivery
from tests.unit.engine.group_bench import LEASE, GroupBench
from tests.unit.engine.virtual import LoopClock


class RequestedSubscription(FakeSubscription):
    """Hands out its backlog, in a later turn of the loop, for a fetch that still waits."""

    on_demand = True

    def __init__(self, *backlog: Delivery) -> None:
        super().__init__()
        self.later = list(backlog)
        self.asked: list[int] = []
        """The limit of each fetch."""

    def fetch(self, limit: int, max_bytes: int) -> asyncio.Future[list[Delivery]]:
        self.asked.append(limit)
        future = super().fetch(limit, max_bytes)
        asyncio.get_running_loop().call_soon(self.arrive)
        return future

    def searched(self) -> asyncio.Future[None]:
        return asyncio.ensure_future(asyncio.sleep(0.5 if self.later else 0.01))

    def arrive(self) -> None:
        if self.later and self.waiting is not None and not self.waiting.done():
            coming, self.later = self.later[: self._wanted[0]], self.later[self._wanted[0] :]
            self.give(*coming)


def benched(clock: LoopClock, *backlog: Delivery) -> tuple[GroupBench, RequestedSubscription]:
    bench = GroupBench(clock, *backlog, subscription=RequestedSubscription)
    assert isinstance(bench.subscription, RequestedSubscription)
    return bench, bench.subscription


async def test_nothing_is_fetched_before_a_pull(clock: LoopClock) -> None:
    bench, subscription = benched(clock, *(delivery(number) for number in range(9)))
    assert isinstance(subscription, OnDemand)
    await asyncio.sleep(1)
    assert subscription.fetches == 0
    assert (await bench.got(wait=1000)).delivery.position == 0
    await asyncio.sleep(1)
    assert (subscription.asked, bench.group.buffer.ready) == ([1], 0)
    await bench.group.close()
    assert subscription.reported(Outcome.RELEASED) == [0]


async def test_a_pull_that_does_not_wait_finds_what_is_there(clock: LoopClock) -> None:
    bench, subscription = benched(clock, delivery(0))
    assert (await bench.group.wait_for_lease(PullRequest(LEASE))) is not None
    begun = clock.mono()
    assert await bench.group.wait_for_lease(PullRequest(LEASE)) is None
    assert clock.mono() - begun < 500
    assert subscription.waiting is None or subscription.waiting.done()
    assert bench.residue() == 0


async def test_pulls_that_begin_together_are_one_fetch_at_last(clock: LoopClock) -> None:
    bench, subscription = benched(clock)
    pulls = [bench.waiting() for _ in range(5)]
    await asyncio.sleep(0.01)
    assert subscription.asked[-1] == 5
    subscription.give(*(delivery(number) for number in range(5)))
    assert sorted([entry.delivery.position for entry in await asyncio.gather(*pulls) if entry]) == [0, 1, 2, 3, 4]
    assert bench.group.buffer.ready == 0


async def test_a_pull_that_ends_withdraws_its_request(clock: LoopClock) -> None:
    bench, subscription = benched(clock)
    short, long = bench.waiting(wait=100), bench.waiting(wait=60_000)
    await asyncio.sleep(0.01)
    assert subscription.asked[-1] == 2
    assert await short is None
    await asyncio.sleep(0.01)
    assert subscription.asked[-1] == 1
    long.cancel()
    await asyncio.gather(long, return_exceptions=True)
    assert subscription.waiting is not None
    assert subscription.waiting.cancelled()


async def test_a_message_does_not_wait_for_another_one_of_its_key(clock: LoopClock) -> None:
    """It would be fetched, and no consumer could have it."""
    bench, _ = benched(clock, *(delivery(number, message_key="k") for number in range(3)))
    assert [(await bench.got(wait=1000)).delivery.position for _ in range(3)] == [0, 1, 2]


async def test_a_returned_message_goes_to_a_waiting_pull_without_another_fetch(clock: LoopClock) -> None:
    bench, subscription = benched(clock, delivery(0))
    first = await bench.got(wait=1000)
    pull = bench.waiting()
    await asyncio.sleep(0.01)
    bench.group.release(first, 0)
    assert await pull is first
    await asyncio.sleep(0.01)
    assert subscription.waiting is not None
    assert subscription.waiting.cancelled()
