"""A courier between an engine with a fake backend and an endpoint that answers as a test says, on virtual time."""

import asyncio
from collections.abc import Callable
from typing import Final, Self

from adapters.base import Delivery
from bridge.callbacks.answer import Answer, Unreachable
from bridge.callbacks.courier import Courier
from bridge.callbacks.registration import History, Registration
from bridge.engine.engine import Engine, GroupName
from bridge.engine.policy import Policy
from bridge.message import Message
from tests.unit.engine.fakes import FakePartitionedAdapter, FakeSubscription
from tests.unit.engine.virtual import LoopClock

APP: Final = GroupName("orders", "app")
URL: Final = "https://shop.example/hook"
OK: Final = Answer(200, None)
LEASE: Final = 30_000

Script = Callable[[Message], Answer | Exception]


def dead(_: Message) -> Exception:
    return Unreachable("no connection to shop.example")


class Endpoint:
    """Notes each POST; answers by `script`, after `seconds`."""

    def __init__(self, clock: LoopClock) -> None:
        self.script: Script = lambda _: OK
        self.seconds = 0.0
        self.posts: list[tuple[str, int, int]] = []
        """messageId, deliveryCount, and when it came (mono)."""
        self.taken: list[str] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self._clock = clock

    async def __call__(self, url: str, message: Message) -> Answer:
        assert url == URL
        assert message.message_id is not None
        self.posts.append((message.message_id, message.delivery_count or 0, self._clock.mono()))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.in_flight -= 1
        outcome = self.script(message)
        if isinstance(outcome, Exception):
            raise outcome
        if outcome.status < 300:
            self.taken.append(message.message_id)
        return outcome

    def attempts(self, message_id: str) -> list[int]:
        return [attempt for posted, attempt, _ in self.posts if posted == message_id]

    def since(self, mono: int) -> list[str]:
        return [message_id for message_id, _, at in self.posts if at >= mono]


class Bench:
    """All of it. `async with` starts engine and courier, and ends both."""

    def __init__(self, clock: LoopClock, *backlog: Delivery, credit: int = 8, **policy: object) -> None:
        self.clock = clock
        self.adapter = FakePartitionedAdapter()
        self.adapter.backlogs["orders", "app"] = list(backlog)
        self.engine = Engine(self.adapter, clock, Policy("bridge:8080")._replace(**policy))  # type: ignore[arg-type]
        self.endpoint = Endpoint(clock)
        self.history = History()
        self.courier = Courier(Registration(APP, URL, credit), self.engine, self.endpoint, LEASE, self.history)
        self.running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.engine.start()
        self.running = asyncio.create_task(self.courier.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """The order of a process's end."""
        assert self.running is not None
        self.engine.drain()
        self.courier.end()
        await self.running
        await self.engine.close()

    @property
    def subscription(self) -> FakeSubscription:
        return self.adapter.of()

    async def passes(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
