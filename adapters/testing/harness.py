"""The harness that an adapter's tests provide, and the session and readers that each test of the kit uses."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib import import_module
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

import pytest
import pytest_asyncio

from adapters.base import Adapter, Delivery, Outcome, Partitioned, Stored, Subscription
from adapters.wall_clock import wall
from bridge.errors import BackendUnavailable
from bridge.message import Message

GUARD: Final = 60.0
"""Seconds after which the kit stops waiting. It only ends a hang: no test measures time."""
_AGAIN: Final = 0.05
"""Seconds before fetching again after `BackendUnavailable`."""
LOTS: Final = 1 << 30


@dataclass(frozen=True)
class Harness:
    """How the kit opens the adapter under test. Override `name` if the backend allows other names only."""

    factory: str
    """`module:function`, as in the entry point: it takes the URL and returns the adapter."""
    url: str
    """Adapters that are opened with the same URL must work on the same data."""
    full_url: str = ""
    """For `FullContract`: URL of a backend that is full after at most 1,000 messages of 1 KiB."""
    unreachable_url: str = ""
    """For `UnreachableContract`: URL of a backend that does not answer."""

    def connect(self, url: str = "") -> Adapter:
        """Return a new adapter, not started."""
        module, _, name = self.factory.partition(":")
        adapter: Adapter = getattr(import_module(module), name)(url or self.url)
        return adapter

    def name(self) -> str:
        """Return a name that no destination has."""
        return f"kit-{uuid4().hex[:12]}"


@dataclass
class KitReader:
    """One subscription, used as the engine uses it: it remembers the unsettled deliveries."""

    was_revoked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when partitions have moved to another bridge."""
    unsettled: dict[tuple[int, int], Delivery] = field(default_factory=dict)
    """By partition and position, with the attempts to return if a lease is revoked."""
    _subscription: Subscription | None = None

    @property
    def subscription(self) -> Subscription:
        """The subscription under test."""
        assert self._subscription is not None, "the reader is not subscribed yet"  # noqa: S101 - a misuse of the kit
        return self._subscription

    async def subscribe(self, adapter: Adapter, source: str, group: str, *, latest: bool = False) -> Self:
        """Join the group, waiting while the backend is unavailable, as the engine's callers do."""
        async with asyncio.timeout(GUARD):
            while self._subscription is None:
                try:
                    self._subscription = await adapter.subscribe(source, group, self.revoked, latest=latest)
                except BackendUnavailable:
                    await asyncio.sleep(_AGAIN)
        return self

    async def fetch(self, limit: int = 100, max_bytes: int = LOTS) -> list[Delivery]:
        """Fetch once and wait for the result; after `BackendUnavailable` fetch again, as the engine does."""
        async with asyncio.timeout(GUARD):
            while True:
                try:
                    found = await self.subscription.fetch(limit, max_bytes)
                except BackendUnavailable:
                    await asyncio.sleep(_AGAIN)
                    continue
                self.add(found)
                return found

    async def fetch_again(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Fetch the messages of deliveries once more; after `BackendUnavailable` again, as the engine does."""
        async with asyncio.timeout(GUARD):
            while True:
                try:
                    return await self.subscription.fetch_again(deliveries)
                except BackendUnavailable:
                    await asyncio.sleep(_AGAIN)

    def add(self, found: Sequence[Delivery]) -> None:
        """Remember the deliveries of a fetch."""
        for each in found:
            assert (each.partition, each.position) not in self.unsettled, f"fetched twice: {each}"  # noqa: S101 - a test of the kit
            self.unsettled[each.partition, each.position] = each

    async def take(self, count: int, limit: int = 100) -> list[Delivery]:
        """Fetch until there are `count` deliveries, and return them."""
        found: list[Delivery] = []
        while len(found) < count:
            found += await self.fetch(min(limit, count - len(found)))
        return found

    async def lease(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Lease deliveries, which counts one more attempt for each; return them with that count."""
        leased = [each._replace(attempts=each.attempts + 1) for each in deliveries]
        await self._record(leased, Outcome.LEASED)
        for each in leased:
            self.unsettled[each.partition, each.position] = each
        return leased

    async def settle(self, deliveries: Iterable[Delivery]) -> None:
        """Settle deliveries."""
        deliveries = list(deliveries)
        await self._record(deliveries, Outcome.SETTLED)
        for each in deliveries:
            self.unsettled.pop((each.partition, each.position), None)

    async def close(self, *, release: bool = True) -> None:
        """Close the subscription as the engine does, after releasing unsettled deliveries."""
        if release and self.unsettled:
            await self._record(list(self.unsettled.values()), Outcome.RELEASED)
        self.unsettled.clear()
        async with asyncio.timeout(GUARD):
            await self.subscription.close()

    def revoked(self, partitions: Collection[int]) -> Sequence[Delivery]:
        """See `adapters.base.Revoked`."""
        self.was_revoked.set()
        removed = [each for each in self.unsettled.values() if each.partition in partitions]
        for each in removed:
            del self.unsettled[each.partition, each.position]
        return removed

    async def _record(self, deliveries: Sequence[Delivery], outcome: Outcome) -> None:
        async with asyncio.timeout(GUARD):
            await self.subscription.settle(deliveries, outcome)


class Session:
    """The adapters and readers of one test; they are closed when the test ends."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.destination = harness.name()
        """A destination that only this test uses."""
        self._stack = AsyncExitStack()
        self._ends: set[bytes] = set()
        """Bodies of the messages with which `rest` marks an end: other groups get them, too."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with asyncio.timeout(GUARD):
            await self._stack.__aexit__(kind, error, trace)

    async def open(self, url: str = "") -> Adapter:
        """Return one more started adapter, by default on the same data."""
        adapter = self.harness.connect(url)
        self._stack.push_async_callback(adapter.close)
        async with asyncio.timeout(GUARD):
            while True:
                try:
                    await adapter.start()
                except BackendUnavailable:
                    await asyncio.sleep(_AGAIN)
                else:
                    return adapter

    async def reader(
        self, adapter: Adapter, group: str = "group", *, source: str = "", latest: bool = False
    ) -> KitReader:
        """Return a reader of a group, by default of this test's destination."""
        reader = await KitReader().subscribe(adapter, source or self.destination, group, latest=latest)
        self._stack.push_async_callback(reader.subscription.close)
        return reader

    async def partitions(self, adapter: Adapter, destination: str = "") -> int:
        """Return the number of partitions; 1 if the adapter is not `Partitioned`."""
        if not isinstance(adapter, Partitioned):
            return 1
        async with asyncio.timeout(GUARD):
            return await adapter.partitions(destination or self.destination)

    async def message(self, adapter: Adapter, body: bytes, partition: int = 0, **fields: Any) -> Message:  # noqa: ANN401 - of any field
        """Return a message as the engine completes it."""
        now = wall()
        destination = fields.pop("destination", self.destination)
        count = await self.partitions(adapter, destination)  # as the engine does before it publishes
        whole = Message(
            destination,
            body,
            message_id=uuid4().hex,
            born_timestamp=now,
            born_host="kit",
            store_timestamp=now,
            store_host="kit:1",
            partition=partition % count if isinstance(adapter, Partitioned) else None,
        )
        return whole._replace(**fields)

    async def publish(self, adapter: Adapter, *bodies: bytes, partition: int = 0, **fields: Any) -> list[Stored]:  # noqa: ANN401 - of any field
        """Publish messages to one partition concurrently, and wait until all are stored."""
        messages = [await self.message(adapter, body, partition, **fields) for body in bodies]
        async with asyncio.timeout(GUARD):
            return list(await asyncio.gather(*(adapter.publish(message) for message in messages)))

    async def rest(self, adapter: Adapter, reader: KitReader) -> list[Delivery]:
        """Return all remaining deliveries of a reader: those before one more message in each partition."""
        count = await self.partitions(adapter)
        ends = {f"end-{uuid4().hex}".encode() for _ in range(count)}
        self._ends |= ends
        for number, end in enumerate(ends):
            await self.publish(adapter, end, partition=number)
        found: list[Delivery] = []
        while ends:
            for each in await reader.fetch():
                if each.message.body in self._ends:
                    ends.discard(each.message.body)
                    await reader.settle([each])
                else:
                    found.append(each)
        return found


@pytest.mark.asyncio
class Contract:
    """Base of the kit's test classes: gives each test a `Session` with the adapter of the fixture `harness`."""

    @pytest.fixture
    def harness(self) -> Harness:
        """Return the harness of the adapter under test. Override it."""
        raise NotImplementedError("a test class of the adapter test kit needs a fixture `harness`")

    @pytest_asyncio.fixture
    async def session(self, harness: Harness) -> AsyncIterator[Session]:
        """Yield the session of one test."""
        async with Session(harness) as session:
            yield session


def bodies(deliveries: Iterable[Delivery]) -> list[bytes]:
    """Return the bodies of deliveries."""
    return [each.message.body for each in deliveries]


def numbered(count: int, prefix: str = "") -> list[bytes]:
    """Return `count` different bodies."""
    return [f"{prefix}{number:03}".encode() for number in range(count)]
