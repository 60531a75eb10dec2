"""One group of one destination: fetches into its prefetch buffer, serves pulls from it, settles with the backend.

There is no task for a group or for a waiting pull: only futures, and one timer for the next moment at which the buffer
changes without a call.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from adapters.base import Delivery, Lagging, OnDemand, Outcome, Rejoining, Subscription, Windowed
from bridge.engine.clock import Clock, confirmed, ignore_result, on_failure
from bridge.engine.counters import Counters, Counts
from bridge.engine.dead_letters_and_deferrals import BufferRemovals, WriteDeadLetter
from bridge.engine.entries_and_receipts import Entry
from bridge.engine.options import EngineOptions
from bridge.engine.parked_fetcher import ParkedFetcher
from bridge.engine.prefetch_buffer import PrefetchBuffer
from bridge.engine.pull_and_prefetch import IdempotentPulls, Prefetcher, PullRequest, WaitingPulls
from bridge.errors import BridgeError, LeaseEnded

_WALL_CHECK: Final = 10_000
"""Milliseconds after which the wall clock is read again: it may have been set."""
_NO_EVENTS: Final = (None, None)
_REFILLS: Final = 8
"""Buffers full of expired messages that one pull searches before other pulls have their turn."""
_log = logging.getLogger("bridge.engine")


class Prefetched(NamedTuple):
    """How many messages a group has in its prefetch buffer."""

    messages: int
    """Those that are leased included, those that are parked not."""
    bytes: int
    """Of them."""
    ready: int
    """Those that can be leased now."""
    leases: int
    parked: int
    """Their bodies are not here."""


class Group:
    """All consumers of one group on one destination that this bridge serves."""

    def __init__(  # noqa: PLR0913 - the collaborators of one group, built in one place (engine.py)
        self,
        subscription: Subscription,
        clock: Clock,
        options: EngineOptions,
        counters: Counters,
        write_dead_letter: WriteDeadLetter,
        *,
        counts: Counts,
        max_deliveries: int | None,
        durable: bool,
    ) -> None:
        """`counters` are of all groups, `counts` of this one."""
        self.on_demand = subscription if isinstance(subscription, OnDemand) and subscription.on_demand else None
        """The subscription, if nothing may be fetched from it before a consumer waits for it."""
        self.buffer = PrefetchBuffer(max_deliveries, by_key=self.on_demand is None)
        self.last_used = clock.mono()
        """Time of the last pull or settlement, mono."""
        self.consumers = 0
        """Open consumers: push streams and callbacks."""
        self._subscription = subscription
        self._clock = clock
        self._options = options
        self._counters = counters
        self._counts = counts
        self._durable = durable
        self._loop = asyncio.get_running_loop()
        self._waiting_pulls = WaitingPulls(counters, self.undo, self._adjust if self.on_demand else None)
        self._idempotent_pulls = IdempotentPulls(self.buffer.leases)
        wanted = (lambda: self._waiting_pulls.wanted) if self.on_demand else None
        self._parked = ParkedFetcher(subscription, self.buffer, clock, options, self._serve)
        self._prefetcher = Prefetcher(subscription, self.buffer, clock, options, self._serve, self._parked, wanted)
        self._removals = BufferRemovals(
            subscription,
            self.buffer,
            clock,
            counters,
            write_dead_letter=write_dead_letter,
            timeout=options.produce_timeout,
            changed=self._used_and_changed,
        )
        if isinstance(subscription, Windowed):
            subscription.count_waiting_by(self.buffer.waiting_by_partition)
        self._rejoining = subscription if isinstance(subscription, Rejoining) else None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._timer_for: tuple[int | None, int | None] = _NO_EVENTS
        """The events that the timer was set for."""
        self._leased: list[Delivery] = []
        """Leases not yet reported to the backend; empty unless the backend is durable."""
        self._closed = False
        self._prefetcher.fill()

    @property
    def idle(self) -> bool:
        """Whether the group has no consumer, waiting pull, lease, paused message or removal."""
        buffer = self.buffer
        return not (self.consumers or self._waiting_pulls or buffer.leases or self._removals or buffer.paused)

    @property
    def not_ready_reason(self) -> str | None:
        """Why the backend delivers nothing to the group now; None: it does."""
        return None if self._rejoining is None else self._rejoining.not_ready_reason

    @property
    def prefetched(self) -> Prefetched:
        """What is in the prefetch buffer now."""
        buffer = self.buffer
        return Prefetched(buffer.size, buffer.bytes, buffer.ready, len(buffer.leases), buffer.parked)

    @property
    def lag(self) -> int | None:
        """About how many messages of the backend are not settled; None: the backend does not say."""
        return self._subscription.lag if isinstance(self._subscription, Lagging) else None

    def lease(self, pull_request: PullRequest) -> Entry | None:
        """Lease the ready message with the highest priority, the oldest first; None if none is ready."""
        if pull_request.request_id is not None:
            entry = self._idempotent_pulls.find(pull_request.request_id, self._clock.mono())
            if entry is not None:
                return entry
        if self._prefetcher.collect():  # so that a pull finds the message of a produce that was answered before
            self._prefetcher.fill()
            self._serve()
        entries = self.lease_many(pull_request, 1, 1)
        return entries[0] if entries else None

    async def wait_for_lease(self, pull_request: PullRequest) -> Entry | None:
        """Lease the next message that becomes ready; None if none becomes ready in time, or the group is closed.

        Without a wait, only a backend from which nothing is fetched ahead is asked. A cancelled call loses no message
        and counts no delivery.
        """
        if pull_request.wait == 0 and self.on_demand is not None and not self._closed:
            return await self._search(self.on_demand, pull_request)
        ends = None if pull_request.wait is None else self._clock.mono() + pull_request.wait
        wait = pull_request.wait
        while wait != 0 and not self._closed:
            entry = await self._waiting_pulls.wait(pull_request._replace(wait=wait))
            if entry is None or self._is_leased(entry):
                return entry
            # the lease ended before this call returned: its partition was revoked, or the group was closed
            wait = None if ends is None else max(ends - self._clock.mono(), 0)
        return None

    def lease_many(self, pull_request: PullRequest, limit: int, max_bytes: int) -> list[Entry]:
        """Lease ready messages, the highest priority first: at most `limit`, until they reach `max_bytes`."""
        self.last_used = mono = self._clock.mono()
        wall = self._clock.wall()
        self._advance(mono, wall)
        entries = self._lease(mono, wall, pull_request, limit, max_bytes)
        self._clean_up()
        self._arm()
        self._count_deliveries(entries, pull_request)
        return entries

    def settle(self, entries: list[Entry]) -> asyncio.Future[None]:
        """Acknowledge leased entries. The future is done when the backend has recorded it; both raise `BridgeError`."""
        leases = [(entry, entry.number) for entry in entries]
        live = self.buffer.leases
        for entry, number in leases:
            if live.get(number) is not entry:
                raise LeaseEnded("x-oms-receipt: the lease has just ended; the message may be delivered again.")
        future = self._subscription.settle([entry.delivery for entry in entries], Outcome.SETTLED)
        confirmation = confirmed(future, self._options.produce_timeout)
        if future.done():
            self._recorded(leases, future)
        else:
            for entry in entries:
                entry.settling = True
            # in a callback: the acknowledgement counts even if the client has disconnected or it comes late
            future.add_done_callback(lambda done: self._recorded(leases, done))
            on_failure(confirmation, lambda: _end_settling(leases))
        return confirmation

    def settle_first(self, entries: list[Entry]) -> asyncio.Future[None]:
        """Settle before sending ("at most once"). If that fails the entries are ready again: they were not sent."""
        leases = [(entry, entry.number) for entry in entries]

        def undo() -> None:
            for entry, number in leases:
                self.undo(entry, number)

        try:
            confirmation = self.settle(entries)
        except BaseException:
            undo()
            raise
        on_failure(confirmation, undo)
        return confirmation

    def release(self, entry: Entry, delay: int) -> None:
        """End a lease without acknowledgement; the message is delivered again after `delay` ms."""
        if not self._removals.defer(entry, delay):
            self.buffer.release(entry, self._clock.mono(), delay)
        self._counters.nacked += 1
        self._used_and_changed()

    def undo(self, entry: Entry, number: int) -> None:
        """End a lease by its number without counting a delivery, if no response that carries it reached a client."""
        if self.buffer.leases.get(number) is not entry or entry.settling:
            return
        entry.holders -= 1
        if not entry.holders:
            self.buffer.undo(entry, self._clock.mono(), 0)
            self._used_and_changed()

    def defer(self, entry: Entry, delay: int) -> None:
        """End a lease for `delay` ms without counting a delivery: the consumer asked for a pause."""
        self.buffer.undo(entry, self._clock.mono(), delay)
        self._used_and_changed()

    def release_all(self, entries: list[Entry]) -> None:
        """Make leased entries ready again: their consumer is closed."""
        mono = self._clock.mono()
        for entry in entries:
            self.buffer.release(entry, mono, 0)
        self._used_and_changed()

    def extend(self, entry: Entry, duration: int) -> None:
        """Make a lease end `duration` ms from now."""
        self.buffer.extend(entry, self._clock.mono() + duration)
        self._arm()

    def find(self, number: int) -> Entry | None:
        """Return the entry of a live lease, None if the lease was acknowledged. Raises `LeaseEnded`."""
        self.last_used = mono = self._clock.mono()
        return self.buffer.find(number, mono)

    def revoke(self, partitions: Collection[int]) -> Sequence[Delivery]:
        """Remove partitions that another bridge serves from now on: see `Revoked`."""
        self._prefetcher.collect()
        self._leased = [d for d in self._leased if d.partition not in partitions]
        unsettled = self.buffer.revoke(partitions)
        # in the next turn of the loop: the adapter has not finished its change
        self._loop.call_soon(self._changed)
        return unsettled

    def stop_waiting(self) -> None:
        """End the waiting pulls without a message: the bridge is stopping."""
        self._waiting_pulls.end_all()

    async def close(self) -> None:
        """Release all messages without counting deliveries, and close the subscription."""
        self._closed = True
        self.stop_waiting()
        if self._timer is not None:
            self._timer.cancel()
        self._prefetcher.close()
        self._parked.close()
        await self._removals.wait()
        self._report_leased()
        released = self.buffer.drain()
        try:
            if released:
                future = self._subscription.settle(released, Outcome.RELEASED)
                await confirmed(future, self._options.produce_timeout)
        except BridgeError:
            _log.warning("messages could not be released; the backend delivers them again", exc_info=True)
        finally:
            await self._subscription.close()

    async def _search(self, backend: OnDemand, pull_request: PullRequest) -> Entry | None:
        """Lease a message that the backend has now."""
        searched = backend.searched()
        searched.add_done_callback(lambda _: self._collect())
        try:
            entry = await self._waiting_pulls.wait(pull_request._replace(wait=None), searched)
        finally:
            searched.cancel()
        return entry if entry is not None and self._is_leased(entry) else None

    def _collect(self) -> None:
        if self._prefetcher.collect():
            self._serve()

    def _adjust(self) -> None:
        """Fetch on demand as many messages as are waited for now."""
        if self._prefetcher.adjust():
            self._loop.call_soon(self._serve)

    def _is_leased(self, entry: Entry) -> bool:
        return self.buffer.leases.get(entry.number) is entry

    def _recorded(self, leases: list[tuple[Entry, int]], future: asyncio.Future[None]) -> None:
        if future.cancelled() or future.exception() is not None:
            return
        settled = self.buffer.acknowledge(leases)
        self._counters.settled += settled
        self._counts.settled += settled
        self._used_and_changed()

    def _lease(self, mono: int, wall: int, pull_request: PullRequest, limit: int, max_bytes: int) -> list[Entry]:
        """Lease ready messages; if they are too few, refill the buffer and try again, past expired messages."""
        entries: list[Entry] = []
        duration, owner = pull_request.duration, pull_request.owner
        for _ in range(_REFILLS):
            found = self.buffer.lease(mono, wall, duration, limit - len(entries), max_bytes, owner)
            entries += found
            if len(entries) >= limit:
                return entries
            max_bytes -= sum(entry.size for entry in found)
            if max_bytes <= 0 or self._prefetcher.waiting or not self._prefetcher.fill():
                return entries
        self._loop.call_soon(self._serve)  # many expired messages: other pulls have their turn
        return entries

    def _advance(self, mono: int, wall: int) -> None:
        ended = self.buffer.leases_ended
        self.buffer.advance(mono, wall)
        self._counters.leases_ended += self.buffer.leases_ended - ended

    def _count_deliveries(self, entries: list[Entry], pull_request: PullRequest) -> None:
        self._counters.delivered += len(entries)
        self._counts.delivered += len(entries)
        for entry in entries:
            if entry.attempts > 1:
                self._counters.redelivered += 1
            if pull_request.request_id is not None:
                self._idempotent_pulls.remember(pull_request.request_id, entry)
        if self._durable and entries:
            if not self._leased:
                self._loop.call_soon(self._report_leased)
            self._leased += [entry.delivery._replace(attempts=entry.attempts) for entry in entries]

    def _report_leased(self) -> None:
        """Report leases once per turn of the loop, so that a durable backend keeps deliveryCount over a restart."""
        if self._leased:
            self._subscription.settle(self._leased, Outcome.LEASED).add_done_callback(ignore_result)
            self._leased = []

    def _used_and_changed(self) -> None:
        """Handle a change of the buffer that a client has made."""
        self.last_used = self._clock.mono()
        self._changed()

    def _changed(self) -> None:
        """Handle a change of the buffer: refill it, serve the waiting pulls, set the timer."""
        self._prefetcher.fill_when_low()
        self._serve()

    def _serve(self) -> None:
        if self._waiting_pulls.wanted:
            mono, wall = self._clock.mono(), self._clock.wall()

            def lease(pull_request: PullRequest) -> Entry | None:
                entries = self._lease(mono, wall, pull_request, 1, 1)
                self._count_deliveries(entries, pull_request)
                return entries[0] if entries else None

            self._waiting_pulls.serve(lease)
        if self.on_demand is not None:
            self._adjust()
        self._clean_up()
        self._arm()

    def _clean_up(self) -> None:
        """Settle expired messages, and write dead letters for messages that were delivered too often."""
        buffer = self.buffer
        if buffer.parked and buffer.missing:
            self._parked.fetch()
        if buffer.expired:
            self._counters.expired += len(buffer.expired)
            self._subscription.settle(buffer.expired, Outcome.SETTLED).add_done_callback(ignore_result)
            buffer.expired = []
        while buffer.dead:
            self._removals.dead_letter(buffer.take_dead())

    def _arm(self) -> None:
        """Set the one timer to the next moment at which the buffer changes without a call."""
        mono_at, wall_at = events = self.buffer.next_events()
        if events in (_NO_EVENTS, self._timer_for):
            return
        delays = []
        if mono_at is not None:
            delays.append(mono_at - self._clock.mono())
        if wall_at is not None:
            delays.append(min(wall_at - self._clock.wall(), _WALL_CHECK))
        at = self._loop.time() + max(min(delays), 1) / 1000
        if self._timer is None or at < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = at
            self._timer_for = events
            self._timer = self._loop.call_at(at, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._timer_for = _NO_EVENTS
        self._advance(self._clock.mono(), self._clock.wall())
        self._serve()


def _end_settling(leases: list[tuple[Entry, int]]) -> None:
    """Note of leases that are not acknowledged that the backend is not recording them any more."""
    for entry, number in leases:
        if entry.number == number:
            entry.settling = False
