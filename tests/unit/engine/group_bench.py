"""A group with all that is around it, for the tests that drive one."""

import asyncio

from adapters.base import Delivery
from bridge.engine.counters import Counters
from bridge.engine.group import Group
from bridge.engine.policy import Policy
from bridge.engine.waiters import Want
from bridge.engine.window import Entry
from bridge.errors import BackendUnavailable
from tests.unit.engine.fakes import FakeSubscription
from tests.unit.engine.virtual import LoopClock

LEASE = 30_000


class Bench:
    """A group with its subscription, clock, counters and graveyard at hand."""

    def __init__(
        self,
        clock: LoopClock,
        *backlog: Delivery,
        limit: int | None = None,
        failures: int = 0,
        subscription: type[FakeSubscription] = FakeSubscription,
        **policy: object,
    ) -> None:
        self.clock = clock
        self.subscription = subscription(*backlog)
        self.subscription.fetch_failures = [BackendUnavailable("gone") for _ in range(failures)]
        self.counters = Counters()
        self.buried: list[int] = []
        self.burial_failures: list[BackendUnavailable] = []
        self.burying: asyncio.Event | None = None
        self.policy = Policy("bridge:8080")._replace(**policy)  # type: ignore[arg-type]
        self.group = Group(
            self.subscription,
            clock,
            self.policy,
            self.counters,
            self._bury,
            max_deliveries=limit,
            durable=True,
        )

    async def _bury(self, entry: Entry) -> None:
        if self.burying is not None:
            await self.burying.wait()
        if self.burial_failures:
            raise self.burial_failures.pop(0)
        self.buried.append(entry.delivery.position)

    async def pull(self, wait: int = 0, request_id: str | None = None, duration: int = LEASE) -> Entry | None:
        return await self.group.lease(Want(duration, wait, request_id))

    async def got(self, wait: int = 0, request_id: str | None = None, duration: int = LEASE) -> Entry:
        entry = await self.pull(wait, request_id, duration)
        assert entry is not None
        return entry

    def waiting(self, wait: int = 10_000, request_id: str | None = None) -> asyncio.Task[Entry | None]:
        return asyncio.ensure_future(self.pull(wait, request_id))

    def residue(self) -> int:
        group = self.group
        return len(group._waiters) + len(group._waiters._by_request) + self.counters.waiting_pulls
