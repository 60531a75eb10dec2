"""A group with all that is around it, for the tests that drive one."""

import asyncio

from adapters.base import Delivery
from bridge.engine.counters import Counters, Counts
from bridge.engine.entries_and_receipts import Entry
from bridge.engine.group import Group
from bridge.engine.options import EngineOptions
from bridge.engine.pull_and_prefetch import PullRequest
from bridge.errors import BackendUnavailable
from tests.calls import lease
from tests.unit.engine.fakes import FakeSubscription
from tests.unit.engine.virtual import LoopClock

LEASE = 30_000


class GroupBench:
    """A group with its subscription, clock, counters and dead letters."""

    def __init__(
        self,
        clock: LoopClock,
        *backlog: Delivery,
        limit: int | None = None,
        failures: int = 0,
        subscription: type[FakeSubscription] = FakeSubscription,
        **options: object,
    ) -> None:
        self.clock = clock
        self.subscription = subscription(*backlog)
        self.subscription.fetch_failures = [BackendUnavailable("away") for _ in range(failures)]
        self.counters = Counters()
        self.dead_letters: list[int] = []
        self.dead_letter_failures: list[BackendUnavailable] = []
        self.dead_letter_gate: asyncio.Event | None = None
        self.options = EngineOptions("bridge:8080")._replace(**options)  # type: ignore[arg-type]
        self.group = Group(
            self.subscription,
            clock,
            self.options,
            self.counters,
            self._dead_letter,
            counts=Counts(),
            max_deliveries=limit,
            durable=True,
        )

    async def _dead_letter(self, entry: Entry) -> None:
        if self.dead_letter_gate is not None:
            await self.dead_letter_gate.wait()
        if self.dead_letter_failures:
            raise self.dead_letter_failures.pop(0)
        self.dead_letters.append(entry.delivery.position)

    async def pull(self, wait: int = 0, request_id: str | None = None, duration: int = LEASE) -> Entry | None:
        return await lease(self.group, PullRequest(duration, wait, request_id))

    async def got(self, wait: int = 0, request_id: str | None = None, duration: int = LEASE) -> Entry:
        entry = await self.pull(wait, request_id, duration)
        assert entry is not None
        return entry

    def waiting(self, wait: int = 10_000, request_id: str | None = None) -> asyncio.Task[Entry | None]:
        return asyncio.ensure_future(self.pull(wait, request_id))

    def residue(self) -> int:
        group = self.group
        return len(group._waiting_pulls) + len(group._waiting_pulls._by_request) + self.counters.waiting_pulls
