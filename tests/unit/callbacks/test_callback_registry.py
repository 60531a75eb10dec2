"""Registrations: what is kept matches what is done, whatever fails or comes at the same time."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Self

import pytest

from bridge.allowed_targets import AllowedTargets
from bridge.callbacks import registry
from bridge.callbacks.registration import Registration, decode_registration, metadata_key
from bridge.callbacks.registry import STATES, CallbackRegistry, DeliveryOptions, describe
from bridge.callbacks.retry_policy import EndpointResponse
from bridge.engine.destination_names import SubscriptionKey
from bridge.engine.engine import Engine
from bridge.engine.options import EngineOptions
from bridge.errors import BackendUnavailable, CallbackRefused, Draining, HeaderInvalid
from bridge.message import Message
from tests.unit.callbacks.delivery_worker_bench import inflate_at_once
from tests.unit.engine.fakes import FakePartitionedAdapter, delivery
from tests.unit.engine.virtual import LoopClock, turns, until

APP = SubscriptionKey("orders", "app")
URL = "https://shop.example/hook"
OTHER = "https://shop.example/other"


class StoringAdapter(FakePartitionedAdapter):
    """Stores metadata; tests say how that fails, and when it ends."""

    stored_in = "journal"

    def __init__(self, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.metadata = dict(metadata or {})
        self.put_failures: list[Exception] = []
        self.may_put = asyncio.Event()
        self.may_put.set()
        self.not_started = 0

    async def put(self, key: str, value: str | None) -> None:
        await self.may_put.wait()
        if self.put_failures:
            raise self.put_failures.pop(0)
        if value is None:
            self.metadata.pop(key, None)
        else:
            self.metadata[key] = value

    def all(self) -> Mapping[str, str]:
        if self.not_started:
            self.not_started -= 1
            raise BackendUnavailable("not yet")
        return dict(self.metadata)


class RegistryBench:
    """A registry with an engine and an endpoint that answers `status`."""

    def __init__(self, clock: LoopClock, adapter: FakePartitionedAdapter, *targets: str, in_flight: int = 8) -> None:
        self.adapter = adapter
        self.engine = Engine(adapter, clock, EngineOptions("bridge:8080"))
        self.clock = clock
        self.status = 200
        self.posts: list[tuple[str, str | None]] = []
        self.closed = 0
        allowed = AllowedTargets.parse(targets or ("https://shop.example",))
        self.callbacks = CallbackRegistry(
            self.engine,
            DeliveryOptions(allowed.check, self.post, inflate_at_once, in_flight, 30_000, self.close),
        )

    async def post(self, registration: Registration, messages: Sequence[Message]) -> EndpointResponse:
        self.posts.extend((registration.url, message.message_id) for message in messages)
        await asyncio.sleep(1)
        return EndpointResponse(self.status, None)

    async def close(self) -> None:
        self.closed += 1

    async def __aenter__(self) -> Self:
        await self.engine.start()
        self.callbacks.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.engine.drain()
        await self.callbacks.drain(10)
        await self.callbacks.close()
        assert self.closed == 1
        await self.engine.close()

    def listed(self) -> dict[str, dict[str, object]]:
        entries = self.callbacks.entries
        return {e.registration.subscription.source: describe(e, self.callbacks.stored_in, self.clock) for e in entries}


async def test_kept_registrations_are_taken_up_when_the_backend_is_ready(clock: LoopClock) -> None:
    metadata = {
        "callback/broken/app": "{}",
        "callback/broken/too": "no json",
        "another/note": "of somebody else",
        "callback/orders/app": Registration(APP, URL, 30).encode(),
        "callback/gone/app": Registration(SubscriptionKey("gone", "app"), URL, 3, gone=True).encode(),
        "callback/moved/app": Registration(SubscriptionKey("moved", "app"), "https://elsewhere.example/", 3).encode(),
    }
    adapter = StoringAdapter(metadata)
    adapter.not_started = 3
    adapter.backlogs["orders", "app"] = [delivery(0)]
    async with RegistryBench(clock, adapter) as bench:
        assert bench.listed() == {}
        await until(lambda: bench.posts, 0.5)
        listed = bench.listed()
        assert {name: entry["state"] for name, entry in listed.items()} == {
            "gone": "gone",
            "moved": "refused",
            "orders": "delivering",
        }
        assert set(adapter.subscriptions) == {("orders", "app")}, "no other is delivered"
        assert listed["orders"]["credit"] == 8, "today's settings allow no more"
        assert adapter.metadata == metadata, "what is refused stays"
        assert {str(entry["state"]) for entry in listed.values()} <= set(STATES)


async def test_what_is_not_kept_is_not_done(clock: LoopClock) -> None:
    adapter = StoringAdapter()
    async with RegistryBench(clock, adapter) as bench:
        adapter.put_failures = [BackendUnavailable("the disk")]
        with pytest.raises(BackendUnavailable):
            await bench.callbacks.register(APP, URL, 4)
        assert bench.listed() == {}
        await bench.callbacks.register(APP, URL, 4)
        adapter.put_failures = [BackendUnavailable("the disk"), BackendUnavailable("the disk")]
        with pytest.raises(BackendUnavailable):
            await bench.callbacks.register(APP, OTHER, 4)
        with pytest.raises(BackendUnavailable):
            await bench.callbacks.stop(APP)
        assert bench.listed()["orders"]["url"] == URL
        assert decode_registration(metadata_key(APP), adapter.metadata[metadata_key(APP)]) == Registration(APP, URL, 4)


async def test_a_410_that_comes_while_another_url_is_being_kept(clock: LoopClock) -> None:
    adapter = StoringAdapter()
    adapter.backlogs["orders", "app"] = [delivery(0)]
    async with RegistryBench(clock, adapter) as bench:
        bench.status = 410
        await bench.callbacks.register(APP, URL, 4)
        await until(lambda: bench.posts)
        adapter.may_put.clear()
        registering = asyncio.create_task(bench.callbacks.register(APP, OTHER, 4))
        await asyncio.sleep(2)  # the 410 has come
        bench.status = 200
        adapter.may_put.set()
        await registering
        await until(lambda: bench.posts[1:], 0.1)
        assert bench.posts[1] == (OTHER, "m0")
        await turns()
        kept = decode_registration(metadata_key(APP), adapter.metadata[metadata_key(APP)])
        assert kept == Registration(APP, OTHER, 4), "what is kept is what is done"
        assert bench.listed()["orders"]["state"] == "delivering"


@pytest.mark.parametrize("failures", [0, 1])
async def test_gone_is_kept_or_at_least_known(clock: LoopClock, failures: int) -> None:
    adapter = StoringAdapter()
    async with RegistryBench(clock, adapter) as bench:
        await bench.callbacks.register(APP, URL, 4)
        await until(lambda: ("orders", "app") in adapter.subscriptions)
        adapter.put_failures = [BackendUnavailable("the disk")] * failures
        bench.status = 410
        adapter.of().give(delivery(0))
        await until(lambda: bench.listed()["orders"]["state"] == "gone", 0.1)
        await turns()
        kept = decode_registration(metadata_key(APP), adapter.metadata[metadata_key(APP)])
        assert kept == Registration(APP, URL, 4, gone=not failures)


async def test_a_new_url_goes_on_with_the_history(clock: LoopClock) -> None:
    async with RegistryBench(clock, StoringAdapter()) as bench:
        assert (await bench.callbacks.register(APP, URL, 4))[1]
        await until(lambda: ("orders", "app") in bench.adapter.subscriptions)
        bench.adapter.of().give(delivery(0))
        await until(lambda: bench.listed()["orders"]["delivered"] == 1, 0.1)
        assert not (await bench.callbacks.register(APP, OTHER, 4))[1]
        assert bench.listed()["orders"].items() >= {"url": OTHER, "delivered": 1}.items()
        assert bench.callbacks.counters.callbacks == 1
        await bench.callbacks.stop(APP)
        assert bench.callbacks.counters.callbacks == 0


async def test_who_may_register(clock: LoopClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with RegistryBench(clock, StoringAdapter()) as bench:
        for url, error in (("https://elsewhere.example/", CallbackRefused), ("nonsense", HeaderInvalid)):
            with pytest.raises(error):
                await bench.callbacks.register(APP, url, 4)
        monkeypatch.setattr(registry, "REGISTRATIONS_MAX", 1)
        await bench.callbacks.register(APP, URL, 4)
        await bench.callbacks.register(APP, OTHER, 4)
        with pytest.raises(CallbackRefused, match="There are 1 callbacks"):
            await bench.callbacks.register(SubscriptionKey("orders", "more"), URL, 4)
        bench.engine.drain()
        with pytest.raises(Draining):
            await bench.callbacks.register(APP, URL, 4)


async def test_a_backend_that_stores_no_metadata_says_so(clock: LoopClock) -> None:
    async with RegistryBench(clock, FakePartitionedAdapter()) as bench:
        await bench.callbacks.register(APP, URL, 4)
        assert bench.listed()["orders"]["kept"] == "memory"


async def test_off_lists_what_is_kept_and_delivers_nothing(clock: LoopClock) -> None:
    adapter = StoringAdapter({metadata_key(APP): Registration(APP, URL, 4).encode()})
    adapter.backlogs["orders", "app"] = [delivery(0)]
    engine = Engine(adapter, clock, EngineOptions("bridge:8080"))
    await engine.start()
    callbacks = CallbackRegistry(engine)
    callbacks.start()
    await asyncio.sleep(60)
    (entry,) = callbacks.entries
    assert "callbacks.targets" in str(entry.refused)
    with pytest.raises(CallbackRefused, match=r"callbacks\.targets"):
        await callbacks.register(APP, URL, 4)
    await callbacks.stop(APP)
    assert adapter.metadata == {}
    assert not adapter.subscriptions
    await callbacks.close()
    await engine.close()


async def test_close_ends_what_hangs(clock: LoopClock) -> None:
    adapter = StoringAdapter()
    adapter.backlogs["orders", "app"] = [delivery(0)]
    bench = RegistryBench(clock, adapter)
    await bench.engine.start()
    await bench.callbacks.register(APP, URL, 4)
    await until(lambda: bench.posts)
    bench.engine.drain()
    await bench.callbacks.drain(0.1)
    before = clock.mono()
    await bench.callbacks.close()
    assert clock.mono() == before, "the POST is not waited for"
    await bench.engine.close()
    assert adapter.of().outcomes[-1][1][0].attempts == 0, "it went back uncounted"


async def test_a_drain_does_not_wait_for_a_backend_that_is_away(clock: LoopClock) -> None:
    adapter = StoringAdapter()
    adapter.not_started = 1_000_000
    async with RegistryBench(clock, adapter) as bench:
        await asyncio.sleep(5)
        before = clock.mono()
        await bench.callbacks.drain(100)
        assert clock.mono() - before < 100


async def test_a_registration_is_newer_than_what_was_kept(clock: LoopClock) -> None:
    adapter = StoringAdapter({metadata_key(APP): Registration(APP, URL, 4).encode()})
    adapter.not_started = 1
    async with RegistryBench(clock, adapter) as bench:
        await turns()  # asked once, and deferred
        await bench.callbacks.register(APP, OTHER, 4)
        adapter.metadata[metadata_key(APP)] = Registration(APP, URL, 4).encode()  # a reader that is late by one commit
        await asyncio.sleep(5)
        assert bench.listed()["orders"]["url"] == OTHER
