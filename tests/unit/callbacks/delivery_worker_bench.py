"""A worker between an engine with a fake backend and an endpoint that answers as a test says, on virtual time."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Self

from adapters.base import Delivery
from bridge.callbacks.counters import CallbackCounters
from bridge.callbacks.delivery_worker import DeliveryWorker, Inflate
from bridge.callbacks.registration import BatchOptions, DeliveryHistory, Registration
from bridge.callbacks.retry_policy import EndpointResponse, NoResponse
from bridge.engine.destination_names import SubscriptionKey
from bridge.engine.engine import Engine
from bridge.engine.options import EngineOptions
from bridge.long_work import run_at_once
from bridge.message import Message
from bridge.wire.gzip_body import inflate_message
from tests.unit.engine.fakes import FakePartitionedAdapter, FakeSubscription
from tests.unit.engine.virtual import LoopClock

APP: Final = SubscriptionKey("orders", "app")
URL: Final = "https://shop.example/hook"
OK: Final = EndpointResponse(200, None)
LEASE: Final = 30_000

Script = Callable[[Message], EndpointResponse | Exception]
BatchScript = Callable[[Sequence[Message]], EndpointResponse | Exception]


def dead(_: Message) -> Exception:
    return NoResponse("no connection to shop.example")


async def inflate_at_once(message: Message) -> Message:
    return run_at_once(inflate_message(message, 1 << 20))


class Endpoint:
    """Notes each POST; answers by `script`, a batch by `batch_script`, after `seconds`."""

    def __init__(self, clock: LoopClock) -> None:
        self.script: Script = lambda _: OK
        self.batch_script: BatchScript = lambda _: OK
        self.batches: list[list[str]] = []
        """messageIds of each POST of a registration with batches."""
        self.body_sizes: list[int] = []
        """Bytes of the body of each message."""
        self.seconds = 0.0
        self.posts: list[tuple[str, int, int]] = []
        """messageId, deliveryCount, and when it came (mono)."""
        self.taken: list[str] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self._clock = clock

    async def __call__(self, registration: Registration, messages: Sequence[Message]) -> EndpointResponse:
        assert registration.url == URL
        ids = [message.message_id or "" for message in messages]
        self.posts.extend((m.message_id or "", m.delivery_count or 0, self._clock.mono()) for m in messages)
        self.body_sizes += [len(message.body) for message in messages]
        if registration.batch is None:
            assert len(messages) == 1
        else:
            self.batches.append(ids)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.in_flight -= 1
        outcome = self.script(messages[0]) if registration.batch is None else self.batch_script(messages)
        if isinstance(outcome, Exception):
            raise outcome
        if outcome.status < 300:
            self.taken.extend(ids)
        return outcome

    def attempts(self, message_id: str) -> list[int]:
        return [attempt for posted, attempt, _ in self.posts if posted == message_id]

    def since(self, mono: int) -> list[str]:
        return [message_id for message_id, _, at in self.posts if at >= mono]


class Bench:
    """All of it. `async with` starts engine and worker, and ends both."""

    def __init__(
        self,
        clock: LoopClock,
        *backlog: Delivery,
        credit: int = 8,
        batch: BatchOptions | None = None,
        inflate: Inflate = inflate_at_once,
        **options: object,
    ) -> None:
        self.clock = clock
        self.adapter = FakePartitionedAdapter()
        self.adapter.backlogs["orders", "app"] = list(backlog)
        self.engine = Engine(self.adapter, clock, EngineOptions("bridge:8080")._replace(**options))  # type: ignore[arg-type]
        self.endpoint = Endpoint(clock)
        self.history = DeliveryHistory()
        self.counters = CallbackCounters()
        self.worker = DeliveryWorker(
            Registration(APP, URL, credit, batch=batch),
            self.engine,
            self.history,
            self.counters,
            post=self.endpoint,
            inflate=inflate,
            lease=LEASE,
        )
        self.running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.engine.start()
        self.running = asyncio.create_task(self.worker.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """The order of a process's end."""
        assert self.running is not None
        self.engine.drain()
        self.worker.end()
        await self.running
        await self.engine.close()

    @property
    def subscription(self) -> FakeSubscription:
        return self.adapter.of()

    async def passes(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
