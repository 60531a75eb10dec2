"""The engine: entry point for requests. It produces, pulls, consumes and settles; it starts the backend, and stops."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final, NamedTuple

from adapters.base import Adapter, Measured, MetadataStore, Monitored, Replayable
from bridge.engine.backend_watch import watch_backend
from bridge.engine.batch import Batch, Publish, Step
from bridge.engine.client_limits import INTERNAL, Share
from bridge.engine.clock import BackgroundTasks, Clock
from bridge.engine.counters import Counters
from bridge.engine.dead_letters_and_deferrals import DeadLetterWriter
from bridge.engine.dedup import Deduplicator
from bridge.engine.destination_names import SubscriptionKey
from bridge.engine.destination_registry import Administration, DestinationRegistry
from bridge.engine.entries_and_receipts import Entry, Receipt
from bridge.engine.group import Group
from bridge.engine.lease_settler import LeaseSettler
from bridge.engine.observer import Observer
from bridge.engine.open_groups import DRAINING, OpenGroups
from bridge.engine.options import EngineOptions
from bridge.engine.produced import Result
from bridge.engine.producer import Producer
from bridge.engine.pull_and_prefetch import WAIT_MAX, CancelOnDisconnect, PullRequest, unwatched
from bridge.engine.push_consumer import ConsumerOptions, PushConsumer
from bridge.engine.recent_messages import RecentMessages
from bridge.engine.transaction_watch import TransactionWatch
from bridge.engine.transactions import Transactions
from bridge.errors import (
    BackendUnavailable,
    BridgeError,
    CannotStart,
    Draining,
    TooManyInFlight,
)
from bridge.message import Field, Message

_RECONNECT: Final = (0.2, 0.5, 1, 2, 5)
"""Seconds between attempts to start the backend; the last one repeats."""

_log = logging.getLogger("bridge.engine")


class Pulled(NamedTuple):
    """One message that a pull returns."""

    message: Message
    receipt: str | None
    """None: the message is settled already (at most once)."""
    lease_until: int
    """End of the lease, ms since 1970."""
    undo: Callable[[], None]
    """To be called if the response certainly did not reach the client."""
    settling: asyncio.Future[None] | None = None
    """Not None: the message is being settled. It is sent when this is done, also if its client disconnects meanwhile:
    no other client gets it. Raises `BridgeError`."""


class Engine:
    """One backend with its producer and its groups."""

    def __init__(
        self, adapter: Adapter, clock: Clock, options: EngineOptions, observer: Observer | None = None
    ) -> None:
        """`observer`: None: tracing is off."""
        self._adapter = adapter
        self.features = adapter.features
        """What the backend can do."""
        self.logs = adapter if isinstance(adapter, Replayable) else None
        """Of the backend; None: it cannot be read by this bridge."""
        self.metadata_store = adapter if isinstance(adapter, MetadataStore) else None
        """Keeps registrations over a restart; None: the backend keeps nothing for the bridge."""
        self.measured = adapter if isinstance(adapter, Measured) else None
        """The metrics of the backend; None: it has none."""
        self.counters = Counters()
        self.not_ready_reason: str | None = "the backend has not started yet"
        """Why the bridge is not ready; None: it is ready. After the start, requests go on during an outage."""
        self.started = False
        """Whether the backend was reached since the start."""
        self.start_ended = asyncio.Event()
        """Set as soon as the backend is ready, or cannot start at all; `start_error` says which."""
        self.start_error: Exception | None = None
        """Why the backend cannot start, if waiting does not help."""
        self.draining = False
        self.clock = clock
        self.client_share = options.client_share
        """How much of what all clients share one client address may use, percent."""
        self.dedup_window = options.dedup_window
        """How long messages are deduplicated, ms. 0: they are not."""
        self._options = options
        self._destinations = DestinationRegistry(adapter, clock, options)
        self._producer = Producer(adapter, clock, options, self.counters, self._destinations)
        self.transactions = Transactions(
            adapter, clock, options, self.counters, self._producer, None if observer is None else observer.transactions
        )
        self._transaction_watch = TransactionWatch(self.transactions, clock, self.counters)
        self._observer = observer
        self._dedup: Deduplicator | None = None
        if options.dedup_window:
            recent = RecentMessages(options.dedup_window, options.dedup_bytes, options.client_share)
            self._dedup = Deduplicator(recent, clock, self.counters, options.produce_timeout)
        self._publish: Publish = self._producer.send
        for step in reversed(self._produce_steps()):
            self._publish = step(self._publish)
        self._waiting = Share(
            options.waiting_pulls,
            options.client_share,
            "waiting pulls and streams",
            "limits.waiting_pulls",
            TooManyInFlight,
        )
        self._groups = OpenGroups(
            adapter,
            clock,
            options,
            self.counters,
            self._destinations,
            DeadLetterWriter(adapter, self._destinations, options.produce_timeout).write,
            self._stop_consumers,
        )
        self.leases = LeaseSettler(self._groups.by_number, observer)
        self.destination_counts = self._producer.counts
        self.group_counts = self._groups.counts
        self.administration = Administration(adapter, self._destinations, self._producer.delayed, self._groups_closed)
        self._consumers: set[PushConsumer] = set()
        self._streams: set[Callable[[], None]] = set()
        """Each ends a stream of a producer."""
        self._background = BackgroundTasks()

    @property
    def groups(self) -> Sequence[tuple[SubscriptionKey, Group]]:
        """The groups that are open now."""
        return tuple(self._groups.by_number.values())

    async def start(self) -> None:
        """Start the backend; while it is unavailable, retry in the background and set `not_ready_reason`.

        After the start it follows a `Monitored` backend. Raises every other error (a corrupt journal, a wrong setting):
        a retry would fail again.
        """
        self._background.start(self._groups.close_idle)
        try:
            await self._adapter.start()
        except BackendUnavailable as error:
            self._backend_changed(error.detail)
            self._background.start(self._retry_start)
        else:
            await self._ready()

    def _produce_steps(self) -> Sequence[Step]:
        """Return what surrounds the passing of messages to the backend, the outermost first."""
        steps: list[Step] = [self._when_ready, self._producer.until_stored]
        if self._observer is not None:
            steps.insert(0, self._observer.publishing)
        if self._dedup is not None:
            steps.append(self._dedup.first_only)
        return steps

    async def produce(
        self, messages: Sequence[Message | BridgeError], require: Sequence[Field], peer: str, key: str | None = None
    ) -> Sequence[Result]:
        """Publish messages: one result for each, in the same order. All of them go to the backend together.

        The arguments are those of `Batch`. Raises `BackendUnavailable` if the bridge is not ready.
        """
        batch = Batch(messages, require, peer, key)
        messages = ()  # nothing here holds the bodies meanwhile: see `Batch.take`
        await self._publish(batch)
        return batch.results

    async def pull(
        self,
        key: SubscriptionKey,
        pull_request: PullRequest,
        *,
        ack: bool,
        client: str = INTERNAL,
        watch: CancelOnDisconnect = unwatched,
    ) -> Pulled | None:
        """Return one message, or None if none came in time. Raises `BridgeError`.

        With `ack` it is leased; without, "the message is settled before it is sent (at most once)": see
        `Pulled.settling`. `client` is that of `client_of`. `watch` runs what waits.
        """
        began, waits = self.clock.mono(), pull_request.wait != 0
        opened = self._opened_group(key, client, waits=waits)
        if opened is None:
            opened = await watch(self._open_group(key, client, waits=waits))
        group, group_number = opened
        entry = group.lease(pull_request)
        if entry is None and (waits or group.on_demand is not None):
            self._waiting.take(client)
            try:
                left = pull_request.at_most(WAIT_MAX - (self.clock.mono() - began))
                entry = await watch(group.wait_for_lease(left))
            finally:
                self._waiting.release(client)
        if entry is None:
            return None
        pulled = self._pulled(group, group_number, entry, ack=ack)
        if self._observer is not None:
            self._observer.delivered("pull", key, pulled.message, self.clock.wall() - (self.clock.mono() - began))
        return pulled

    async def consume(self, key: SubscriptionKey, options: ConsumerOptions, client: str = INTERNAL) -> PushConsumer:
        """Open a consumer; the caller has to close it. `client` is that of `client_of`. Raises `BridgeError`."""
        group, group_number = await self._open_group(
            key, client, waits=True, create=options.create, from_oldest=options.from_oldest
        )
        self._waiting.take(client)

        def closed() -> None:
            self._consumers.discard(consumer)
            self._waiting.release(client)

        def write_receipt(entry: Entry) -> str:
            return self.leases.signer.write(Receipt(group_number, entry.number))

        consumer = PushConsumer(key, group, self.clock, options, write_receipt, closed, self._observer)
        self._consumers.add(consumer)
        return consumer

    def open_stream(self, client: str, stop: Callable[[], None]) -> Callable[[], None]:
        """Count a stream of a producer, which `stop` ends when the bridge drains; return what closes it.

        Raises `BackendUnavailable`, `Draining`, and `LimitReached` or `TooManyInFlight` if too many are open.
        """
        self._check_ready()
        if self.draining:
            raise Draining(DRAINING)
        self._waiting.take(client)
        self._streams.add(stop)

        def close() -> None:
            self._streams.discard(stop)
            self._waiting.release(client)

        return close

    def drain(self) -> None:
        """Become not ready, deliver nothing more, end waiting pulls and streams."""
        if not self.draining:
            self._groups.stop_opening()
        self.draining = True
        for consumer in tuple(self._consumers):
            consumer.stop("draining")
        for stop in self._streams:
            stop()
        for _, group in self.groups:
            group.stop_waiting()

    async def close(self) -> None:
        """Release every lease without counting a delivery, flush and close the backend."""
        self.drain()
        await asyncio.gather(self._background.close(), self._transaction_watch.close())
        await self._groups.close()
        await self._adapter.close()

    def _when_ready(self, publish: Publish) -> Publish:
        """Return the step that refuses a produce before the backend was reached. Raises `BackendUnavailable`."""

        def checked(batch: Batch) -> Awaitable[None]:
            if not self.started:
                self._check_ready()
            return publish(batch)

        return checked

    def _check_ready(self) -> None:
        if self.not_ready_reason is not None and not self.started:
            raise BackendUnavailable(f"The backend is not ready: {self.not_ready_reason.rstrip('.')}.")

    def _pulled(self, group: Group, group_number: int, entry: Entry, *, ack: bool) -> Pulled:
        """Return what a pull returns of a leased entry, which without `ack` has to be settled before."""
        if not ack:
            settling = group.settle_first([entry])
            if not settling.done():
                return Pulled(entry.message, None, 0, lambda: None, settling)
            settling.result()
            return Pulled(entry.message, None, 0, lambda: None)
        number = entry.number
        receipt = self.leases.signer.write(Receipt(group_number, number))
        until = self.clock.wall() + entry.deadline - self.clock.mono()
        return Pulled(entry.message, receipt, until, lambda: group.undo(entry, number))

    def _opened_group(self, key: SubscriptionKey, client: str, *, waits: bool) -> tuple[Group, int] | None:
        """Return a group that is open, and its number. Raises `BridgeError`.

        `waits`: the caller may wait for messages.
        """
        if not self.started:
            self._check_ready()
        if self.draining:
            raise Draining(DRAINING)
        if waits:
            self._waiting.check(client)
        return self._groups.find(key)

    async def _open_group(
        self, key: SubscriptionKey, client: str, *, waits: bool, create: bool = True, from_oldest: bool = False
    ) -> tuple[Group, int]:
        """Return a group, which is opened if it is not open, and its number; see `_opened_group`, `OpenGroups.open`."""
        while (opened := self._opened_group(key, client, waits=waits)) is None:
            await self._groups.open(key, client, create=create, from_oldest=from_oldest)
            if client != INTERNAL:
                for _ in range(self._options.disconnect_reported):
                    await asyncio.sleep(0.001)
        return opened

    def _groups_closed(self, source: str, group: str | None, reason: str) -> AbstractAsyncContextManager[None]:
        """See `GroupsClosed`. Raises `BackendUnavailable` if the bridge is not ready."""
        self._check_ready()
        return self._groups.kept_closed(source, group, reason)

    def _stop_consumers(self, group: Group, reason: str) -> None:
        for consumer in tuple(self._consumers):
            if consumer.serves(group):
                consumer.stop(reason)

    async def _retry_start(self) -> None:
        for attempt in range(1 << 30):
            await asyncio.sleep(_RECONNECT[min(attempt, len(_RECONNECT) - 1)])
            try:
                await self._adapter.start()
            except BackendUnavailable as error:
                self._backend_changed(error.detail)
            except Exception as error:  # noqa: BLE001 - whatever the error is, it is the reason
                known = isinstance(error, (CannotStart, BridgeError))
                self.not_ready_reason = str(error) if known else "a defect of the adapter; the log has the details"
                if not known:
                    _log.exception("the backend cannot start: a defect of the adapter")
                self.start_error = error
                self.start_ended.set()
                return
            else:
                await self._ready()
                _log.warning("the backend is ready")
                return

    async def _ready(self) -> None:
        if self._dedup is not None and self.logs is not None:
            await self._dedup.restore(self.logs, self._options.dedup_window, self._producer.stored_before)
        self.not_ready_reason, self.started = None, True
        self.start_ended.set()
        self._transaction_watch.start()
        if isinstance(self._adapter, Monitored):
            self._background.start(partial(watch_backend, self._adapter, self.clock, self._backend_changed))

    def _backend_changed(self, reason: str | None) -> None:
        """Set `not_ready_reason`, and log each change."""
        if reason == self.not_ready_reason:
            return
        self.not_ready_reason = reason
        if reason is None:
            _log.warning("the backend is ready")
        else:
            _log.warning("the backend is not ready", extra={"reason": reason})
