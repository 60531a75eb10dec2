"""A backend of a few lines, written against `adapters/base.py` alone; tests set how it fails."""

import asyncio
from collections.abc import Sequence
from typing import Final

from adapters.base import Delivery, Features, Outcome, Revoked, Stored, Support
from bridge.errors import BridgeError, DestinationUnknown
from bridge.message import FIELDS, Message
from tests.unit.engine.virtual import START

NATIVE: Final = {f.name: Support.NATIVE for f in FIELDS if f.is_feature}


def delivery(position: int, attempts: int = 0, partition: int = 0, **fields: object) -> Delivery:
    message = Message("orders", b"%d" % position, born_timestamp=START, message_id=f"m{position}")
    return Delivery(message._replace(**fields), partition, position, attempts)  # type: ignore[arg-type]


class FakeSubscription:
    """Hands out its backlog, remembers every outcome."""

    fetches_again = True

    def __init__(self, *backlog: Delivery) -> None:
        self.backlog = list(backlog)
        self.outcomes: list[tuple[Outcome, list[Delivery]]] = []
        self.fetches = 0
        self.fetch_failures: list[BridgeError] = []
        self.settle_failures: list[BridgeError] = []
        self.slow = False
        """Confirmations wait for `confirm`."""
        self.unconfirmed: list[asyncio.Future[None]] = []
        self.closed = False
        self.may_close = asyncio.Event()
        self.may_close.set()
        self.waiting: asyncio.Future[list[Delivery]] | None = None
        self._wanted = (0, 0)
        self.given: dict[tuple[int, int], Delivery] = {}
        """Fetched deliveries; a test may take one out, as a backend that has not kept it."""
        self.fetched_again: list[int] = []
        """Positions."""
        self.fetch_again_failures: list[BridgeError] = []

    def fetch(self, limit: int, max_bytes: int) -> asyncio.Future[list[Delivery]]:
        assert limit >= 1
        assert max_bytes > 0
        assert self.waiting is None or self.waiting.done(), "one fetch at a time"
        assert not self.closed
        self.fetches += 1
        future: asyncio.Future[list[Delivery]] = asyncio.get_running_loop().create_future()
        if self.fetch_failures:
            future.set_exception(self.fetch_failures.pop(0))
        elif self.backlog:
            future.set_result(self._take(limit, max_bytes))
        else:
            self.waiting, self._wanted = future, (limit, max_bytes)
        return future

    def fetch_again(self, deliveries: Sequence[Delivery]) -> asyncio.Future[list[Delivery]]:
        assert not self.closed
        assert all(each.message.destination == "" for each in deliveries), "the engine has dropped the messages"
        future: asyncio.Future[list[Delivery]] = asyncio.get_running_loop().create_future()
        if self.fetch_again_failures:
            future.set_exception(self.fetch_again_failures.pop(0))
            return future
        self.fetched_again += [each.position for each in deliveries]
        places = [(each.partition, each.position) for each in deliveries]
        future.set_result([self.given[place] for place in places if place in self.given])
        return future

    def settle(self, deliveries: Sequence[Delivery], outcome: Outcome) -> asyncio.Future[None]:
        assert not self.closed
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if outcome is not Outcome.LEASED and self.settle_failures:
            future.set_exception(self.settle_failures.pop(0))
            return future
        self.outcomes.append((outcome, list(deliveries)))
        if outcome is Outcome.RELEASED:
            messages = [self.given.get((each.partition, each.position), each).message for each in deliveries]
            released = [each._replace(message=message) for each, message in zip(deliveries, messages, strict=True)]
            self.backlog = [*released, *self.backlog]
        if self.slow and outcome is not Outcome.LEASED:
            self.unconfirmed.append(future)
        else:
            future.set_result(None)
        return future

    async def close(self) -> None:
        await self.may_close.wait()
        self.closed = True

    def give(self, *deliveries: Delivery) -> None:
        self.backlog += deliveries
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(self._take(*self._wanted))

    def fail_fetch(self, error: BridgeError) -> None:
        assert self.waiting is not None
        self.waiting.set_exception(error)

    def confirm(self) -> None:
        for future in self.unconfirmed:
            future.set_result(None)
        self.unconfirmed.clear()

    def reported(self, outcome: Outcome) -> list[int]:
        """Positions that were reported with this outcome, in order."""
        return [d.position for given, deliveries in self.outcomes if given is outcome for d in deliveries]

    def _take(self, limit: int, max_bytes: int) -> list[Delivery]:
        taken: list[Delivery] = []
        while self.backlog and len(taken) < limit:
            max_bytes -= len(self.backlog[0].message.body)
            if taken and max_bytes < 0:
                break
            taken.append(self.backlog.pop(0))
        self.given.update({(each.partition, each.position): each for each in taken})
        return taken


class FakeAdapter:
    """Stores everything at once, unless a test sets a failure."""

    def __init__(self, **support: Support) -> None:
        self.features = Features({**NATIVE, **support}, durable=True, late_groups=True)
        self.start_failures: list[Exception] = []
        self.starts = 0
        self.published: list[Message] = []
        self.publish_failures: list[BridgeError | None] = []
        """One for each publish to come; None: that one succeeds."""
        self.slow = False
        """Publishing waits for the test to resolve `pending`."""
        self.pending: list[asyncio.Future[Stored]] = []
        self.subscriptions: dict[tuple[str, str], list[FakeSubscription]] = {}
        self.backlogs: dict[tuple[str, str], list[Delivery]] = {}
        self.revoked: dict[tuple[str, str], Revoked] = {}
        """What the engine gave for each group."""
        self.may_subscribe = asyncio.Event()
        self.may_subscribe.set()
        self.subscribe_failures: list[BridgeError] = []
        self.closed = False

    async def start(self) -> None:
        self.starts += 1
        if self.start_failures:
            raise self.start_failures.pop(0)

    def publish(self, message: Message) -> asyncio.Future[Stored]:
        assert not self.closed
        future: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
        error = self.publish_failures.pop(0) if self.publish_failures else None
        self.published.append(message)
        if error is not None:
            future.set_exception(error)
        elif self.slow:
            self.pending.append(future)
        else:
            future.set_result(Stored(message.partition, len(self.published) - 1))
        return future

    async def subscribe(
        self,
        source: str,
        group: str,
        revoked: Revoked,
        *,
        latest: bool = False,  # noqa: ARG002 - the contract
    ) -> FakeSubscription:
        await self.may_subscribe.wait()
        if self.subscribe_failures:
            raise self.subscribe_failures.pop(0)
        before = self.subscriptions.setdefault((source, group), [])
        assert all(s.closed for s in before), "a group is joined again only after it was left"
        backlog = before[-1].backlog if before else self.backlogs.get((source, group), [])
        before.append(FakeSubscription(*backlog))
        self.revoked[source, group] = revoked
        return before[-1]

    async def close(self) -> None:
        assert all(s.closed for each in self.subscriptions.values() for s in each)
        self.closed = True

    def of(self, source: str = "orders", group: str = "app") -> FakeSubscription:
        """Return the newest subscription."""
        return self.subscriptions[source, group][-1]


class FakePartitionedAdapter(FakeAdapter):
    """The same with partitions."""

    def __init__(self, count: int = 8, **support: Support) -> None:
        super().__init__(**support)
        self.count = self.new_partitions = count
        self.creates = True
        self.known: set[str] = set()
        self.existing: set[str] | None = None
        """The destinations that exist; None: all do."""

    async def partitions(self, destination: str, *, create: bool = True) -> int:
        if self.existing is not None and destination not in self.existing:
            if not create:
                raise DestinationUnknown(destination)
            self.existing.add(destination)
        self.known.add(destination)
        return self.count

    def known_partitions(self, destination: str) -> int | None:
        return self.count if destination in self.known else None
