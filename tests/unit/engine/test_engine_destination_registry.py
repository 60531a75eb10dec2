"""Which destinations and groups clients may create, and how many of them, in all and for each client address."""

import asyncio

import pytest

from bridge.engine.client_limits import INTERNAL, client_of
from bridge.engine.destination_names import SubscriptionKey
from bridge.engine.destination_registry import GROUP_COUNTED
from bridge.engine.engine import Engine
from bridge.engine.options import EngineOptions
from bridge.engine.pull_and_prefetch import PullRequest
from bridge.errors import (
    BackendFull,
    BackendUnavailable,
    DestinationUnknown,
    LimitReached,
    TooManyInFlight,
)
from bridge.message import Message
from tests.calls import produce, settled
from tests.unit.engine.fakes import FakePartitionedAdapter
from tests.unit.engine.virtual import LoopClock, turns

ANN, BEN, EVE = "10.0.0.1", "10.0.0.2", "10.0.0.3"


class Bench:
    """An engine in front of a backend in which nothing exists yet."""

    def __init__(self, clock: LoopClock, **options: object) -> None:
        self.adapter = FakePartitionedAdapter()
        self.existing = self.adapter.existing = set[str]()
        self.engine = Engine(self.adapter, clock, EngineOptions("bridge:8080")._replace(**options))  # type: ignore[arg-type]
        self.engine.not_ready_reason = None

    async def produce(self, client: str, *names: str) -> None:
        for name in names:
            await produce(self.engine, Message(name, b""), (), f"{client}:5000")

    async def pull(self, client: str, source: str, group: str = "g", wait: int = 0) -> None:
        key = SubscriptionKey(source, group)
        await settled(self.engine.pull(key, PullRequest(1000, wait), ack=True, client=client))


async def test_one_client_has_its_share_of_the_destinations(clock: LoopClock) -> None:
    bench = Bench(clock, destinations=4, client_share=50)
    await bench.produce(ANN, "a", "b", "a")
    for again in (bench.produce(ANN, "c"), bench.pull(ANN, "c"), bench.produce(ANN, "d")):
        with pytest.raises(LimitReached, match=r"10\.0\.0\.1 may have 2 destinations"):
            await again
    await bench.pull(BEN, "c")
    await bench.produce(BEN, "c", "d", "a")
    await bench.produce(ANN, "c", "d")
    with pytest.raises(BackendFull, match="All clients together may have 4 destinations"):
        await bench.produce(EVE, "e")
    assert bench.existing == {"a", "b", "c", "d"}
    bench.existing -= {"a", "d"}  # deleted, or forgotten by the backend
    await bench.produce(EVE, "e", "f")
    assert bench.existing == {"b", "c", "e", "f"}


async def test_a_destination_that_could_not_be_created_does_not_count(
    clock: LoopClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(clock, destinations=1)
    partitions = bench.adapter.partitions

    async def fails(destination: str, *, create: bool = True) -> int:
        if create:
            raise BackendUnavailable(destination)
        return await partitions(destination, create=False)

    monkeypatch.setattr(bench.adapter, "partitions", fails)
    for name in ("a", "b"):
        with pytest.raises(BackendUnavailable):
            await bench.produce(ANN, name)
    monkeypatch.undo()
    await bench.produce(ANN, "c")


async def test_a_client_that_leaves_while_its_destination_is_created_is_counted(
    clock: LoopClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(clock, destinations=1)
    partitions = bench.adapter.partitions

    async def slow(destination: str, *, create: bool = True) -> int:
        found = await partitions(destination, create=create)
        await asyncio.sleep(1)
        return found

    monkeypatch.setattr(bench.adapter, "partitions", slow)
    leaving = asyncio.ensure_future(bench.produce(ANN, "a"))
    await turns()
    leaving.cancel()
    with pytest.raises(BackendFull):
        await bench.produce(ANN, "b")


async def test_many_first_messages_of_one_destination_count_once(clock: LoopClock) -> None:
    bench = Bench(clock, destinations=2, client_share=100)
    await asyncio.gather(*(bench.produce(ANN, "a") for _ in range(10)), *(bench.pull(BEN, "a") for _ in range(10)))
    await bench.produce(ANN, "b")


async def test_without_auto_create_only_existing_destinations_can_be_used(clock: LoopClock) -> None:
    bench = Bench(clock, auto_create=False)
    bench.existing.add("orders")
    await bench.produce(ANN, "orders")
    await bench.pull(ANN, "orders")
    for refused in (bench.produce(ANN, "typo"), bench.pull(ANN, "typo")):
        with pytest.raises(DestinationUnknown, match=r"limits\.auto_create"):
            await refused
    assert bench.existing == {"orders"}
    assert list(bench.adapter.subscriptions) == [("orders", "g")]


async def test_one_client_has_its_share_of_the_groups(clock: LoopClock) -> None:
    bench = Bench(clock, groups=4, client_share=50, group_idle=60_000)
    await bench.engine.start()
    await bench.pull(ANN, "a", "1")
    await bench.pull(ANN, "a", "2")
    with pytest.raises(LimitReached, match=r"10\.0\.0\.1 may have 2 groups"):
        await bench.pull(ANN, "b", "3")
    assert bench.existing == {"a"}, "nothing is created for a group that is refused"
    await bench.pull(ANN, "a", "1")
    await bench.pull(BEN, "a", "3")
    await bench.pull(BEN, "a", "4")
    with pytest.raises(BackendFull, match="All clients together may have 4 groups"):
        await bench.pull(EVE, "a", "5")
    await bench.pull(EVE, "a", "4")
    await asyncio.sleep(GROUP_COUNTED / 1000)
    with pytest.raises(BackendFull):
        await bench.pull(EVE, "a", "5")  # closed only a while after the last pull
    await asyncio.sleep(120)
    await bench.pull(EVE, "a", "5")
    await bench.engine.close()


async def test_a_group_that_could_not_be_opened_does_not_count(clock: LoopClock) -> None:
    bench = Bench(clock, groups=1)
    bench.adapter.subscribe_failures = [BackendUnavailable("gone")]
    with pytest.raises(BackendUnavailable):
        await bench.pull(ANN, "a", "1")
    await bench.pull(ANN, "a", "2")


@pytest.mark.parametrize("peer", ["127.0.0.1:5", "::1:5", "::ffff:127.0.0.1:5"])
async def test_localhost_may_use_the_whole_limit(clock: LoopClock, peer: str) -> None:
    bench = Bench(clock, destinations=4, client_share=50)
    await bench.produce(client_of(peer), "a", "b", "c", "d")
    with pytest.raises(BackendFull, match="All clients together may have 4 destinations"):
        await bench.produce(client_of(peer), "e")


async def test_one_client_has_its_share_of_the_waiting_pulls(clock: LoopClock) -> None:
    bench = Bench(clock, waiting_pulls=4, client_share=50)

    def waiting(client: str) -> asyncio.Future[None]:
        return asyncio.ensure_future(bench.pull(client, "a", "1", wait=10_000))

    pulls = [waiting(client) for client in (ANN, ANN, BEN)]
    await turns()
    with pytest.raises(LimitReached, match=r"10\.0\.0\.1 may have 2 waiting pulls and streams"):
        await waiting(ANN)
    await bench.pull(ANN, "a", "1")  # does not wait
    pulls.append(waiting(EVE))
    await turns()
    with pytest.raises(TooManyInFlight):
        await waiting(BEN)
    pulls[0].cancel()
    await turns()
    await waiting(ANN)
    await asyncio.gather(*pulls, return_exceptions=True)


def test_the_client_of_an_address() -> None:
    assert [client_of(peer) for peer in ("10.1.2.3:80", "unknown", "10.0.0.7")] == ["10.1.2.3", "unknown", "10.0.0.7"]
    assert client_of("2001:db8:1:2:3::4:5000") == client_of("2001:db8:1:2:ffff::1:5001") == "2001:db8:1:2::/64"
    assert client_of("fe80::1%eth0:80") == "fe80::/64"
    assert client_of("::ffff:10.1.2.3:80") == "10.1.2.3"
    assert INTERNAL not in {client_of(":80"), client_of("a:b:80")}


async def test_a_group_whose_dead_letters_could_not_be_stored_is_refused(clock: LoopClock) -> None:
    """Its first dead letter would block its key: the backend creates no destination."""
    bench = Bench(clock)
    bench.adapter.creates = False
    bench.existing.add("orders")
    with pytest.raises(DestinationUnknown, match=r"orders: its groups need orders\.dlq for dead letters"):
        await bench.pull(ANN, "orders")
    bench.existing.add("orders.dlq")
    await bench.pull(ANN, "orders")
    await bench.pull(ANN, "orders.dlq")
    assert bench.existing == {"orders", "orders.dlq"}
