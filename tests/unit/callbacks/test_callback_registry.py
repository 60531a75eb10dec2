"""Registrations: what is kept and what is done agree, whatever fails or comes at the same time."""

import asyncio
from collections.abc import Mapping
from typing import Self

import pytest

from bridge.callbacks import registry
from bridge.callbacks.answer import Answer
from bridge.callbacks.listing import STATES, describe
from bridge.callbacks.registration import Registration, decode, key_of
from bridge.callbacks.registry import Callbacks, Sending
from bridge.callbacks.targets import Targets
from bridge.engine.engine import Engine, GroupName
from bridge.engine.policy import Policy
from bridge.errors import BackendUnavailable, CallbackRefused, Draining, HeaderInvalid
from bridge.message import Message
from tests.unit.engine.fakes import FakePartitionedAdapter, delivery
from tests.unit.engine.virtual import LoopClock, turns, until

APP = GroupName("orders", "app")
URL = "https://shop.example/hook"
OTHER = "https://shop.example/other"


class NotingAdapter(FakePartitionedAdapter):
    """Keeps notes; tests say how that fails, and when it is done."""

    kept_in = "journal"

    def __init__(self, notes: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.notes = dict(notes or {})
        self.keep_failures: list[Exception] = []
        self.may_keep = asyncio.Event()
        self.may_keep.set()
        self.not_started = 0

    async def keep(self, key: str, value: str | None) -> None:
        await self.may_keep.wait()
        if self.keep_failures:
            raise self.keep_failures.pop(0)
        if value is None:
            self.notes.pop(key, None)
        else:
            self.notes[key] = value

    def kept(self) -> Mapping[str, str]:
        if self.not_started:
            self.not_started -= 1
            raise BackendUnavailable("not yet")
        return dict(self.notes)


class House:
    """A registry with an engine and an endpoint that answers `status`."""

    def __init__(self, clock: LoopClock, adapter: FakePartitionedAdapter, *targets: str, in_flight: int = 8) -> None:
        self.adapter = adapter
        self.engine = Engine(adapter, clock, Policy("bridge:8080"))
        self.clock = clock
        self.status = 200
        self.posts: list[tuple[str, str | None]] = []
        self.closed = 0
        allowed = Targets.parse(targets or ("https://shop.example",))
        self.callbacks = Callbacks(self.engine, Sending(allowed, self.post, in_flight, 30_000, self.close))

    async def post(self, url: str, message: Message) -> Answer:
        self.posts.append((url, message.message_id))
        await asyncio.sleep(1)
        return Answer(self.status, None)

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
        return {e.registration.name.source: describe(e, self.callbacks.kept_in, self.clock) for e in entries}


async def test_kept_registrations_are_taken_up_when_the_backend_is_ready(clock: LoopClock) -> None:
    notes = {
        "callback/broken/app": "{}",
        "callback/broken/too": "no json",
        "another/note": "of somebody else",
        "callback/orders/app": Registration(APP, URL, 30).encode(),
        "callback/gone/app": Registration(GroupName("gone", "app"), URL, 3, gone=True).encode(),
        "callback/moved/app": Registration(GroupName("moved", "app"), "https://elsewhere.example/", 3).encode(),
    }
    adapter = NotingAdapter(notes)
    adapter.not_started = 3
    adapter.backlogs["orders", "app"] = [delivery(0)]
    async with House(clock, adapter) as house:
        assert house.listed() == {}
        await until(lambda: house.posts, 0.5)
        listed = house.listed()
        assert {name: entry["state"] for name, entry in listed.items()} == {
            "gone": "gone",
            "moved": "refused",
            "orders": "delivering",
        }
        assert set(adapter.subscriptions) == {("orders", "app")}, "no other is delivered"
        assert listed["orders"]["credit"] == 8, "today's settings allow no more"
        assert adapter.notes == notes, "what is refused stays"
        assert {str(entry["state"]) for entry in listed.values()} <= set(STATES)


async def test_what_is_not_kept_is_not_done(clock: LoopClock) -> None:
    adapter = NotingAdapter()
    async with House(clock, adapter) as house:
        adapter.keep_failures = [BackendUnavailable("the disk")]
        with pytest.raises(BackendUnavailable):
            await house.callbacks.register(APP, URL, 4)
        assert house.listed() == {}
        await house.callbacks.register(APP, URL, 4)
        adapter.keep_failures = [BackendUnavailable("the disk"), BackendUnavailable("the disk")]
        with pytest.raises(BackendUnavailable):
            await house.callbacks.register(APP, OTHER, 4)
        with pytest.raises(BackendUnavailable):
            await house.callbacks.stop(APP)
        assert house.listed()["orders"]["url"] == URL
        assert decode(key_of(APP), adapter.notes[key_of(APP)]) == Registration(APP, URL, 4)


async def test_a_410_that_comes_while_another_url_is_being_kept(clock: LoopClock) -> None:
    adapter = NotingAdapter()
    adapter.backlogs["orders", "app"] = [delivery(0)]
    async with House(clock, adapter) as house:
        house.status = 410
        await house.callbacks.register(APP, URL, 4)
        await until(lambda: house.posts)
        adapter.may_keep.clear()
        registering = asyncio.create_task(house.callbacks.register(APP, OTHER, 4))
        await asyncio.sleep(2)  # the 410 has come
        house.status = 200
        adapter.may_keep.set()
        await registering
        await until(lambda: house.posts[1:], 0.1)
        assert house.posts[1] == (OTHER, "m0")
        await turns()
        kept = decode(key_of(APP), adapter.notes[key_of(APP)])
        assert kept == Registration(APP, OTHER, 4), "what is kept is what is done"
        assert house.listed()["orders"]["state"] == "delivering"


@pytest.mark.parametrize("failures", [0, 1])
async def test_gone_is_kept_or_at_least_known(clock: LoopClock, failures: int) -> None:
    adapter = NotingAdapter()
    async with House(clock, adapter) as house:
        await house.callbacks.register(APP, URL, 4)
        await until(lambda: ("orders", "app") in adapter.subscriptions)
        adapter.keep_failures = [BackendUnavailable("the disk")] * failures
        house.status = 410
        adapter.of().give(delivery(0))
        await until(lambda: house.listed()["orders"]["state"] == "gone", 0.1)
        await turns()
        kept = decode(key_of(APP), adapter.notes[key_of(APP)])
        assert kept == Registration(APP, URL, 4, gone=not failures)


async def test_a_new_url_goes_on_with_the_history(clock: LoopClock) -> None:
    async with House(clock, NotingAdapter()) as house:
        assert (await house.callbacks.register(APP, URL, 4))[1]
        await until(lambda: ("orders", "app") in house.adapter.subscriptions)
        house.adapter.of().give(delivery(0))
        await until(lambda: house.listed()["orders"]["delivered"] == 1, 0.1)
        assert not (await house.callbacks.register(APP, OTHER, 4))[1]
        assert house.listed()["orders"].items() >= {"url": OTHER, "delivered": 1}.items()
        assert house.engine.counters.callbacks == 1
        await house.callbacks.stop(APP)
        assert house.engine.counters.callbacks == 0


async def test_who_may_register(clock: LoopClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with House(clock, NotingAdapter()) as house:
        for url, error in (("https://elsewhere.example/", CallbackRefused), ("nonsense", HeaderInvalid)):
            with pytest.raises(error):
                await house.callbacks.register(APP, url, 4)
        monkeypatch.setattr(registry, "REGISTRATIONS_MAX", 1)
        await house.callbacks.register(APP, URL, 4)
        await house.callbacks.register(APP, OTHER, 4)
        with pytest.raises(CallbackRefused, match="There are 1 callbacks"):
            await house.callbacks.register(GroupName("orders", "more"), URL, 4)
        house.engine.drain()
        with pytest.raises(Draining):
            await house.callbacks.register(APP, URL, 4)


async def test_a_backend_without_notes_says_so(clock: LoopClock) -> None:
    async with House(clock, FakePartitionedAdapter()) as house:
        await house.callbacks.register(APP, URL, 4)
        assert house.listed()["orders"]["kept"] == "memory"


async def test_off_lists_what_is_kept_and_delivers_nothing(clock: LoopClock) -> None:
    adapter = NotingAdapter({key_of(APP): Registration(APP, URL, 4).encode()})
    adapter.backlogs["orders", "app"] = [delivery(0)]
    engine = Engine(adapter, clock, Policy("bridge:8080"))
    await engine.start()
    callbacks = Callbacks(engine)
    callbacks.start()
    await asyncio.sleep(60)
    (entry,) = callbacks.entries
    assert "callbacks.targets" in str(entry.refused)
    with pytest.raises(CallbackRefused, match=r"callbacks\.targets"):
        await callbacks.register(APP, URL, 4)
    await callbacks.stop(APP)
    assert adapter.notes == {}
    assert not adapter.subscriptions
    await callbacks.close()
    await engine.close()


async def test_close_ends_what_hangs(clock: LoopClock) -> None:
    adapter = NotingAdapter()
    adapter.backlogs["orders", "app"] = [delivery(0)]
    house = House(clock, adapter)
    await house.engine.start()
    await house.callbacks.register(APP, URL, 4)
    await until(lambda: house.posts)
    house.engine.drain()
    await house.callbacks.drain(0.1)
    before = clock.mono()
    await house.callbacks.close()
    assert clock.mono() == before, "the POST is not waited for"
    await house.engine.close()
    assert adapter.of().outcomes[-1][1][0].attempts == 0, "it went back uncounted"


async def test_a_drain_does_not_wait_for_a_backend_that_is_away(clock: LoopClock) -> None:
    adapter = NotingAdapter()
    adapter.not_started = 1_000_000
    async with House(clock, adapter) as house:
        await asyncio.sleep(5)
        before = clock.mono()
        await house.callbacks.drain(100)
        assert clock.mono() - before < 100


async def test_a_registration_is_newer_than_what_was_kept(clock: LoopClock) -> None:
    adapter = NotingAdapter({key_of(APP): Registration(APP, URL, 4).encode()})
    adapter.not_started = 1
    async with House(clock, adapter) as house:
        await turns()  # asked once, and told to come later
        await house.callbacks.register(APP, OTHER, 4)
        adapter.notes[key_of(APP)] = Registration(APP, URL, 4).encode()  # a reader that is late by one commit
        await asyncio.sleep(5)
        assert house.listed()["orders"]["url"] == OTHER
