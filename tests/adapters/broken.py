"""Adapters with one defect each, on the memory backend: the kit has to notice every one."""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from adapters.base import (
    Complete,
    Delivery,
    Outcome,
    Published,
    Revoked,
    Stored,
    Subscription,
    Transaction,
    TransactionState,
)
from adapters.memory.adapter import MemoryAdapter
from adapters.memory.durable_adapter import DurableAdapter
from adapters.memory.options import parse
from adapters.memory.record import pack
from adapters.memory.subscription import MemorySubscription
from bridge.errors import BackendUnavailable, TransactionEnded
from bridge.message import Message


class Wrapped:
    """A subscription that passes everything on."""

    def __init__(self, inner: MemorySubscription) -> None:
        self.inner = inner

    def fetch(self, limit: int, max_bytes: int) -> asyncio.Future[list[Delivery]]:
        future: asyncio.Future[list[Delivery]] = asyncio.get_running_loop().create_future()
        found = self.inner.fetch(limit, max_bytes)

        def hand_on(done: asyncio.Future[list[Delivery]]) -> None:
            if future.done() or done.cancelled():
                return
            if (error := done.exception()) is not None:
                future.set_exception(error)
            else:
                future.set_result(self.changed(done.result()))

        if found.done():
            hand_on(found)
        else:
            found.add_done_callback(hand_on)
            future.add_done_callback(lambda ended: found.cancel() if ended.cancelled() else None)
        return future

    def changed(self, found: list[Delivery]) -> list[Delivery]:
        return found

    @property
    def fetches_again(self) -> bool:
        return self.inner.fetches_again

    def fetch_again(self, deliveries: Sequence[Delivery]) -> asyncio.Future[list[Delivery]]:
        return self.inner.fetch_again(deliveries)

    def settle(self, deliveries: Sequence[Delivery], outcome: Outcome) -> asyncio.Future[None]:
        return self.inner.settle(deliveries, outcome)

    async def close(self) -> None:
        await self.inner.close()


class Backward(Wrapped):
    def changed(self, found: list[Delivery]) -> list[Delivery]:
        return found[::-1]


class WithoutAttempts(Wrapped):
    def changed(self, found: list[Delivery]) -> list[Delivery]:
        return [each._replace(attempts=0) for each in found]


class OnePartition(Wrapped):
    """Gives every delivery the same handle, though each partition has its own positions."""

    def changed(self, found: list[Delivery]) -> list[Delivery]:
        return [each._replace(partition=0) for each in found]


class NewIds(Wrapped):
    numbers = itertools.count()

    def changed(self, found: list[Delivery]) -> list[Delivery]:
        return [each._replace(message=each.message._replace(message_id=f"new {next(self.numbers)}")) for each in found]


class SettlesNothing(Wrapped):
    def settle(self, deliveries: Sequence[Delivery], outcome: Outcome) -> asyncio.Future[None]:
        return self.inner.settle([] if outcome is Outcome.SETTLED else deliveries, outcome)


class ReleaseSettles(Wrapped):
    def settle(self, deliveries: Sequence[Delivery], outcome: Outcome) -> asyncio.Future[None]:
        return self.inner.settle(deliveries, Outcome.SETTLED if outcome is Outcome.RELEASED else outcome)


class ForgetsLeases(Wrapped):
    def settle(self, deliveries: Sequence[Delivery], outcome: Outcome) -> asyncio.Future[None]:
        return self.inner.settle([] if outcome is Outcome.LEASED else deliveries, outcome)


class SettlesOnce(Wrapped):
    """Takes the second settlement of a message for a mistake."""

    def __init__(self, inner: MemorySubscription) -> None:
        super().__init__(inner)
        self._settled: set[tuple[int, int]] = set()

    def settle(self, deliveries: Sequence[Delivery], outcome: Outcome) -> asyncio.Future[None]:
        if outcome is Outcome.SETTLED:
            places = {(each.partition, each.position) for each in deliveries}
            assert not places & self._settled
            self._settled |= places
        return self.inner.settle(deliveries, outcome)


class FetchesOthersAgain(Wrapped):
    """Fetches the next messages of the log again, whatever was dropped."""

    def fetch_again(self, deliveries: Sequence[Delivery]) -> asyncio.Future[list[Delivery]]:
        return super().fetch_again([each._replace(position=number) for number, each in enumerate(deliveries)])


class FetchesAgainOnce(Wrapped):
    """Settles what it fetches again."""

    def fetch_again(self, deliveries: Sequence[Delivery]) -> asyncio.Future[list[Delivery]]:
        found = super().fetch_again(deliveries)
        self.inner.settle(deliveries, Outcome.SETTLED)
        return found


class IgnoresLimit(Wrapped):
    def fetch(self, limit: int, max_bytes: int) -> asyncio.Future[list[Delivery]]:  # noqa: ARG002 - the defect
        return super().fetch(1000, max_bytes)


class IgnoresBytes(Wrapped):
    def fetch(self, limit: int, max_bytes: int) -> asyncio.Future[list[Delivery]]:  # noqa: ARG002 - the defect
        return super().fetch(limit, 1 << 30)


class FetchRaises(Wrapped):
    def fetch(self, limit: int, max_bytes: int) -> asyncio.Future[list[Delivery]]:
        if self.inner.closed:
            raise BackendUnavailable("closed")
        return super().fetch(limit, max_bytes)


class CancelLoses(Wrapped):
    """A cancelled fetch still takes what comes."""

    def fetch(self, limit: int, max_bytes: int) -> asyncio.Future[list[Delivery]]:
        return asyncio.ensure_future(_shielded(self.inner.fetch(limit, max_bytes)))


class NeverAtHand(Wrapped):
    """What is there comes with the next turn of the loop."""

    def fetch(self, limit: int, max_bytes: int) -> asyncio.Future[list[Delivery]]:
        return asyncio.ensure_future(_later(super().fetch(limit, max_bytes)))


class Empty(Wrapped):
    def changed(self, found: list[Delivery]) -> list[Delivery]:
        return found[:0]


class ClosesOnce(Wrapped):
    async def close(self) -> None:
        if self.inner.closed:
            raise RuntimeError("closed already")
        await super().close()


class Subscribed(MemoryAdapter):
    """Wraps its subscriptions."""

    wrapper = Wrapped

    async def subscribe(  # type: ignore[override] # the wrapper is a subscription, too
        self, source: str, group: str, revoked: Revoked, *, latest: bool = False
    ) -> Subscription:
        return self.wrapper(await super().subscribe(source, group, revoked, latest=latest))


class NotDelayed(MemoryAdapter):
    def publish(self, message: Message) -> asyncio.Future[Stored]:
        return super().publish(message._replace(delay_time=None))


class HoldsUp(MemoryAdapter):
    """Delays everything of the key after a delayed message."""

    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401 - whatever the adapter takes
        super().__init__(*arguments)
        self._latest: dict[str | None, int] = {}

    def publish(self, message: Message) -> asyncio.Future[Stored]:
        due = self._latest[message.message_key] = max(message.due, self._latest.get(message.message_key, 0))
        delay = max(due - (message.born_timestamp or 0), 0) if due else None
        return super().publish(message._replace(delay_time=delay))


class LosesProperties(MemoryAdapter):
    def publish(self, message: Message) -> asyncio.Future[Stored]:
        ascii_only = {name: value for name, value in message.properties.items() if value.isascii()}
        return super().publish(message._replace(properties=ascii_only))


class LosesKeys(MemoryAdapter):
    def publish(self, message: Message) -> asyncio.Future[Stored]:
        return super().publish(message._replace(message_key=None))


class EndsBodies(MemoryAdapter):
    """Takes a body for a text that ends with its first zero."""

    def publish(self, message: Message) -> asyncio.Future[Stored]:
        return super().publish(message._replace(body=message.body.partition(b"\0")[0]))


class ReversesMany(MemoryAdapter):
    def publish_many(self, messages: Sequence[Message]) -> Sequence[Published]:
        return super().publish_many(messages[::-1])[::-1]


class GivesUpMany(MemoryAdapter):
    """Refuses everything after the first message that it refuses."""

    def publish_many(self, messages: Sequence[Message]) -> Sequence[Published]:
        results = list(super().publish_many(messages))
        refused = next((each for each in results if isinstance(each, Exception)), None)
        return results if refused is None else [refused] * len(results)


class PublishRaises(MemoryAdapter):
    def publish(self, message: Message) -> asyncio.Future[Stored]:
        self._running()
        return super().publish(message)


class PublishOvertakes(MemoryAdapter):
    """Lets every other message go first."""

    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401 - whatever the adapter takes
        super().__init__(*arguments)
        self._kept: set[asyncio.Task[Stored]] = set()

    def publish(self, message: Message) -> asyncio.Future[Stored]:
        if len(self._kept) % 2:
            return super().publish(message)
        task = asyncio.ensure_future(self._publish_late(message))
        self._kept.add(task)
        return task

    async def _publish_late(self, message: Message) -> Stored:
        await asyncio.sleep(0)
        return await super().publish(message)


class OneGroup(MemoryAdapter):
    """Gives every group the same place."""

    async def subscribe(self, source: str, group: str, revoked: Revoked, *, latest: bool = False) -> MemorySubscription:
        destination = self._store.destination(source)
        found = self._store.group(destination, "the only one", 0, latest=latest)
        found.subscribed = False
        del group, revoked
        return self._join(destination, found)


class NeverLatest(MemoryAdapter):
    async def subscribe(self, source: str, group: str, revoked: Revoked, *, latest: bool = False) -> MemorySubscription:
        del latest
        return await super().subscribe(source, group, revoked)


class AlwaysLatest(MemoryAdapter):
    async def subscribe(self, source: str, group: str, revoked: Revoked, *, latest: bool = False) -> MemorySubscription:
        del latest
        return await super().subscribe(source, group, revoked, latest=True)


class ForgetsGroups(MemoryAdapter):
    def leave(self, subscription: MemorySubscription) -> None:
        super().leave(subscription)
        del self._store.destinations[subscription.group.destination].groups[subscription.group.name]


class OneDestination(MemoryAdapter):
    def publish(self, message: Message) -> asyncio.Future[Stored]:
        return super().publish(message._replace(destination=next(iter(self._store.destinations))))


class AlwaysCreates(MemoryAdapter):
    async def partitions(self, destination: str, *, create: bool = True) -> int:  # noqa: ARG002 - that is the defect
        return await super().partitions(destination)


class FewerPartitions(MemoryAdapter):
    async def partitions(self, destination: str, *, create: bool = True) -> int:
        return await super().partitions(destination, create=create) + 1


class PurgesNothing(MemoryAdapter):
    async def purge(self, destination: str, group: str | None) -> None:
        """Do nothing."""


class PurgesAllGroups(MemoryAdapter):
    async def purge(self, destination: str, group: str | None) -> None:  # noqa: ARG002 - that is the defect
        await super().purge(destination, None)


class DeletesNoGroup(MemoryAdapter):
    async def delete(self, destination: str, group: str | None) -> None:
        if group is None:
            await super().delete(destination, group)


class DeletesNoMessage(MemoryAdapter):
    async def delete(self, destination: str, group: str | None) -> None:
        if group is not None:
            await super().delete(destination, group)


class NamedGauges(MemoryAdapter):
    def gauges(self) -> Mapping[str, int]:
        gauges = {f"messages_of_{name.replace('-', '_')}": 1 for name in self._store.destinations}
        self.help_texts = dict.fromkeys((*gauges, *self.totals()), "Messages.")
        return gauges


class UnknownField(MemoryAdapter):
    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401 - whatever the adapter takes
        super().__init__(*arguments)
        fields = {name: support for name, support in self.features.fields.items() if name != "traceId"}
        self.features = self.features._replace(fields=fields)


class SaysDurable(MemoryAdapter):
    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401 - whatever the adapter takes
        super().__init__(*arguments)
        self.features = self.features._replace(durable=True)


class RefusesAndKeeps(MemoryAdapter):
    """Stores what it refuses."""

    def publish(self, message: Message) -> asyncio.Future[Stored]:
        future = super().publish(message)
        if future.exception() is not None:
            self._capacity.messages -= 1
            super().publish(message)
        return future


class ShowsPrepared(MemoryAdapter):
    def prepare(self, transaction: Transaction, message: Message) -> asyncio.Future[None]:
        self.publish(message._replace(partition=0))
        return super().prepare(transaction, message)


class CommitsBackward(MemoryAdapter):
    async def commit(self, transaction: str, complete: Complete) -> Sequence[Stored | None]:
        async def backward(messages: Sequence[Message]) -> Sequence[Message | None]:
            return (await complete(messages))[::-1]

        return await super().commit(transaction, backward)


class CommitsWhatExpired(MemoryAdapter):
    async def commit(self, transaction: str, complete: Complete) -> Sequence[Stored | None]:
        async def all_of_them(messages: Sequence[Message]) -> Sequence[Message | None]:
            completed = zip(messages, await complete(messages), strict=True)
            return [message._replace(partition=0) if whole is None else whole for message, whole in completed]

        return await super().commit(transaction, all_of_them)


class RollbackCommits(MemoryAdapter):
    async def rollback(self, transaction: str) -> None:
        async def complete(messages: Sequence[Message]) -> Sequence[Message | None]:
            return [message._replace(partition=0) for message in messages]

        await self.commit(transaction, complete)


class CommitsAgain(MemoryAdapter):
    """Forgets a transaction that was committed."""

    async def commit(self, transaction: str, complete: Complete) -> Sequence[Stored | None]:
        stored = await super().commit(transaction, complete)
        del self._store.transactions.known[transaction]
        return stored


class EndsUnknown(MemoryAdapter):
    async def rollback(self, transaction: str) -> None:
        if transaction in self._store.transactions.known:
            await super().rollback(transaction)


class BeginsAgain(MemoryAdapter):
    def prepare(self, transaction: Transaction, message: Message) -> asyncio.Future[None]:
        prepared = super().prepare(transaction, message)
        self._store.transactions.open[transaction.id].details = transaction
        return prepared


class EndsBeforeCompleting(MemoryAdapter):
    async def commit(self, transaction: str, complete: Complete) -> Sequence[Stored | None]:
        if found := self._store.transactions.open.get(transaction):
            self._store.transactions.end(found.details, TransactionState.COMMITTED, 0)
        return await super().commit(transaction, complete)


class EndsBoth(MemoryAdapter):
    """Rolls back although the transaction is committed."""

    async def rollback(self, transaction: str) -> None:
        with suppress(TransactionEnded):
            await super().rollback(transaction)


class OneTransaction(MemoryAdapter):
    def prepare(self, transaction: Transaction, message: Message) -> asyncio.Future[None]:
        opened = next(iter(self._store.transactions.open), transaction.id)
        return super().prepare(transaction._replace(id=opened), message)


class ClosesLate(DurableAdapter):
    """Ends without what it has accepted."""

    async def close(self) -> None:
        if self._journal is not None:
            self._journal.batch.messages.clear()
        await super().close()


class DropsNotes(DurableAdapter):
    async def put(self, key: str, value: str | None) -> None:
        self._store.metadata[key] = str(value)


class NotesTooEarly(DurableAdapter):
    def all(self) -> Mapping[str, str]:
        return dict(self._store.metadata)


class ForgetsAttempts(DurableAdapter):
    def settle(
        self, subscription: MemorySubscription, deliveries: Sequence[Delivery], outcome: Outcome
    ) -> asyncio.Future[None]:
        if outcome is Outcome.SETTLED:
            return super().settle(subscription, deliveries, outcome)
        return MemoryAdapter.settle(self, subscription, deliveries, outcome)


class KeepsNoPrepared(DurableAdapter):
    """Says that a message is prepared, and does not write it down."""

    def prepare(self, transaction: Transaction, message: Message) -> asyncio.Future[None]:
        found = self._store.transactions.begin(transaction)
        self._store.transactions.add(found, self._store.next_sequence(), pack(message), message.size)
        prepared: asyncio.Future[None] = self._running().create_future()
        prepared.set_result(None)
        return prepared


class AnswersEarly(DurableAdapter):
    """Says that a message is settled before that is on disk, and forgets to write it down."""

    def settle(
        self, subscription: MemorySubscription, deliveries: Sequence[Delivery], outcome: Outcome
    ) -> asyncio.Future[None]:
        return MemoryAdapter.settle(self, subscription, deliveries, outcome)


def connect(url: str) -> MemoryAdapter:
    """Return the adapter that the URL names in front of its options: `Backward@memory://`."""
    name, _, rest = url.partition("@")
    kind = globals()[name]
    if issubclass(kind, MemoryAdapter):
        adapter: MemoryAdapter = kind(parse(rest))
        return adapter
    options = parse(rest)
    wrapping = type(name, (Subscribed,), {"wrapper": kind}) if options.journal is None else None
    if wrapping is None:
        wrapping = type(name, (Subscribed, DurableAdapter), {"wrapper": kind})
    wrapped: MemoryAdapter = wrapping(options)
    return wrapped


async def _shielded(future: asyncio.Future[list[Delivery]]) -> list[Delivery]:
    return await asyncio.shield(future)


async def _later(future: asyncio.Future[list[Delivery]]) -> list[Delivery]:
    await asyncio.sleep(0)
    return await future
