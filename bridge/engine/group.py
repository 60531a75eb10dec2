"""The group side: one group of one destination, its window, and the pulls that wait for it.

The driver around `Window`: it fetches into it, hands out of it, and tells the subscription how things ended.
There is no task per group and none per waiting pull: futures, and one timer for the next moment at which something
can happen by itself.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Final

from adapters.base import Deferring, Delivery, Outcome, Subscription
from bridge.engine.clock import Clock
from bridge.engine.counters import Counters
from bridge.engine.feed import Feed
from bridge.engine.policy import Policy
from bridge.engine.replays import Replays
from bridge.engine.waiters import Waiters, Want
from bridge.engine.window import Entry, Window
from bridge.errors import BridgeError, LeaseEnded, OutcomeUnknown

_RETRY_BURY: Final = 5_000
"""Milliseconds before a dead letter that could not be written is tried again."""
_LONG: Final = 30_000
"""Milliseconds beyond which a message that was given back does not wait in the window, if the backend lets it wait."""
_WALL_CHECK: Final = 10_000
"""Milliseconds after which the wall clock is looked at again: it may have been set."""
_REFILLS: Final = 8
"""Windows full of expired messages that one pull looks through before others have their turn."""
_log = logging.getLogger("bridge.engine")

Bury = Callable[[Entry], Coroutine[object, object, None]]


class Group:
    """All consumers of one group on one destination, as far as this bridge serves them."""

    def __init__(  # noqa: PLR0913 - the collaborators of one group, built in one place (engine.py)
        self,
        subscription: Subscription,
        clock: Clock,
        policy: Policy,
        counters: Counters,
        bury: Bury,
        *,
        max_deliveries: int | None,
        durable: bool,
    ) -> None:
        self.window = Window(max_deliveries)
        self.touched = clock.mono()
        """When somebody last pulled or settled, mono."""
        self.consumers = 0
        """Standing consumers: streams and callbacks."""
        self._subscription = subscription
        self._defer = subscription.defer if isinstance(subscription, Deferring) else None
        self._clock = clock
        self._policy = policy
        self._counters = counters
        self._bury = bury
        self._durable = durable
        self._loop = asyncio.get_running_loop()
        self._waiters = Waiters(counters, self.undo)
        self._replays = Replays(self.window)
        self._feed = Feed(subscription, self.window, clock, policy, self._serve)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._handed_out: list[Delivery] = []
        self._departures: set[asyncio.Task[None]] = set()
        self._closed = False
        self._feed.fill()

    @property
    def idle(self) -> bool:
        """Whether nobody consumes, waits, holds a lease, is leaving, or sits out the pause after a nack."""
        busy = self.consumers or self._waiters or self.window.leases or self._departures or self.window.paused
        return not busy

    async def lease(self, want: Want) -> Entry | None:
        """Hand out the best ready message, waiting for one as long as `want` says.

        Cancelling a waiting call loses nothing and counts nothing.
        """
        entry = None if want.request_id is None else self._replays.find(want.request_id, self._clock.mono())
        if entry is None:
            entry = next(iter(self.lease_now(want, 1, 1)), None)
        if entry is not None or want.wait == 0 or self._closed:
            return entry
        return await self._wait(want)

    def lease_now(self, want: Want, limit: int, max_bytes: int) -> list[Entry]:
        """Hand out what is ready now, best first: at most `limit`, stopping once the bodies reach `max_bytes`."""
        self.touched = mono = self._clock.mono()
        wall = self._clock.wall()
        self._advance(mono, wall)
        entries: list[Entry] = []
        while len(entries) < limit and max_bytes > 0 and (entry := self._best(mono, wall, want)) is not None:
            entries.append(entry)
            max_bytes -= len(entry.delivery.message.body)
        self._clean_up()
        self._arm()
        for entry in entries:
            self._handed(entry, want)
        return entries

    async def settle(self, entries: list[Entry]) -> None:
        """Acknowledge leased entries; returns when the backend has recorded it. Raises the error tree."""
        if not all(self._leased(entry) for entry in entries):
            raise LeaseEnded("x-oms-receipt: the lease has just ended; the message may be delivered again.")
        for entry in entries:
            entry.settling = True
        leases = [(e, e.number) for e in entries]
        future = self._subscription.settle([e.delivery for e in entries], Outcome.SETTLED)
        if future.done():
            self._recorded(leases, future)
        else:
            # in a callback: the acknowledgement counts also when its client has left or its confirmation is late
            future.add_done_callback(lambda done: self._recorded(leases, done))
        try:
            await self._confirmed(future)
        except BaseException:
            for entry, number in leases:
                if entry.number == number:
                    entry.settling = False
            raise

    async def settle_first(self, entries: list[Entry]) -> None:
        """Settle before sending ("at most once"); what could not be settled is ready again, for it was not sent."""
        leases = [(entry, entry.number) for entry in entries]
        try:
            await self.settle(entries)
        except BaseException:
            for entry, number in leases:
                self.undo(entry, number)
            raise

    def release(self, entry: Entry, delay: int) -> None:
        """Give a leased entry back, to be delivered again after `delay` ms.

        For a long time it goes to the backend, if that can keep it; one with a key stays: the next ones wait for it.
        """
        if self._defer is not None and delay > _LONG and entry.lane is None:
            self.window.send_off(entry)
            future = self._defer(entry.delivery._replace(attempts=entry.attempts), self._clock.wall() + delay)
            self._depart(self._put_off_for_long(entry, self._clock.mono() + delay, future))
        else:
            self.window.release(entry, self._clock.mono(), delay)
        self._counters.nacked += 1
        self._moved()

    def undo(self, entry: Entry, number: int) -> None:
        """Take back the lease of that number: none of the answers that carry it reached its consumer."""
        if self.window.leases.get(number) is not entry or entry.settling:
            return
        entry.holders -= 1
        if not entry.holders:
            self.window.undo(entry, self._clock.mono(), 0)
            self._moved()

    def put_off(self, entry: Entry, delay: int) -> None:
        """Give a leased entry back for `delay` ms without counting it as a delivery: its consumer asked for a pause."""
        self.window.undo(entry, self._clock.mono(), delay)
        self._moved()

    def hand_back(self, entries: list[Entry]) -> None:
        """Make leased entries ready again: their consumer is gone."""
        mono = self._clock.mono()
        for entry in entries:
            self.window.release(entry, mono, 0)
        self._moved()

    def extend(self, entry: Entry, duration: int) -> None:
        """Let a lease last `duration` ms from now."""
        self.window.extend(entry, self._clock.mono() + duration)
        self._arm()

    def find(self, number: int) -> Entry | None:
        """Return the live lease of that number, None when acknowledged. Raises `LeaseEnded`."""
        self.touched = mono = self._clock.mono()
        return self.window.find(number, mono)

    def revoke(self, partitions: Collection[int]) -> Sequence[Delivery]:
        """Let go of partitions that are another bridge's from now on: see `Revoked`."""
        self._feed.collect()
        self._handed_out = [d for d in self._handed_out if d.partition not in partitions]
        gone = self.window.revoke(partitions)
        # at the next turn of the loop: the backend is in the middle of its own change
        self._loop.call_soon(self._go_on)
        return gone

    def stop_waiting(self) -> None:
        """Answer all who wait with nothing: the bridge is stopping."""
        self._waiters.dismiss()

    async def close(self) -> None:
        """Hand everything back unharmed and leave the group."""
        self._closed = True
        self.stop_waiting()
        if self._timer is not None:
            self._timer.cancel()
        self._feed.close()
        while self._departures:
            await asyncio.wait(self._departures)
        self._tell_handed_out()
        back = self.window.surrender()
        try:
            if back:
                await self._confirmed(self._subscription.settle(back, Outcome.RELEASED))
        except BridgeError:
            _log.warning("the backend was not told what is given back; it will notice", exc_info=True)
        finally:
            await self._subscription.close()

    def _leased(self, entry: Entry) -> bool:
        return self.window.leases.get(entry.number) is entry

    async def _wait(self, want: Want) -> Entry | None:
        """Wait for an entry; one whose partition goes in the moment it is handed out was never handed out."""
        ends = None if want.wait is None else self._clock.mono() + want.wait
        entry = await self._waiters.wait(want)
        while entry is not None and not self._leased(entry):
            left = None if ends is None else max(ends - self._clock.mono(), 0)
            entry = await self._waiters.wait(want._replace(wait=left))
        return entry

    def _recorded(self, leases: list[tuple[Entry, int]], future: asyncio.Future[None]) -> None:
        if future.cancelled() or future.exception() is not None:
            return
        for entry, number in leases:
            if self.window.leases.get(number) is entry:
                self.window.finish(entry)
            elif not self.window.acknowledged(number):
                continue
            self._counters.settled += 1
        self._moved()

    async def _confirmed(self, future: asyncio.Future[None]) -> None:
        if not future.done():
            # wait, not wait_for: a client that leaves must not withdraw an acknowledgement under way
            await asyncio.wait((future,), timeout=self._policy.produce_timeout / 1000)
            if not future.done():
                future.add_done_callback(_retrieve)
                raise OutcomeUnknown("The backend has not confirmed the acknowledgement; repeat it.")
        future.result()

    def _best(self, mono: int, wall: int, want: Want) -> Entry | None:
        """Lease the best ready message; where none is ready, refill and look again, past what has expired."""
        for _ in range(_REFILLS):
            entry = self.window.lease(mono, wall, want.duration, want.keeper)
            if entry is not None or self._feed.waiting or not self._feed.fill():
                return entry
        self._loop.call_soon(self._serve)  # a long run of expired messages: let others have their turn
        return None

    def _advance(self, mono: int, wall: int) -> None:
        ended = self.window.leases_ended
        self.window.advance(mono, wall)
        self._counters.leases_ended += self.window.leases_ended - ended

    def _handed(self, entry: Entry, want: Want) -> None:
        self._counters.delivered += 1
        if want.request_id is not None:
            self._replays.remember(want.request_id, entry)
        if entry.attempts > 1:
            self._counters.redelivered += 1
        if self._durable:
            if not self._handed_out:
                self._loop.call_soon(self._tell_handed_out)
            self._handed_out.append(entry.delivery._replace(attempts=entry.attempts))

    def _tell_handed_out(self) -> None:
        """Once per turn of the loop, so that a durable backend can keep deliveryCount over a restart."""
        if self._handed_out:
            self._subscription.settle(self._handed_out, Outcome.LEASED).add_done_callback(_retrieve)
            self._handed_out = []

    def _moved(self) -> None:
        """Somebody gave something back, or settled it."""
        self.touched = self._clock.mono()
        self._go_on()

    def _go_on(self) -> None:
        """Something left the window or came back to it: refill, serve who waits, set the timer."""
        self._feed.fill_when_low()
        self._serve()

    def _serve(self) -> None:
        mono, wall = self._clock.mono(), self._clock.wall()

        def lease(want: Want) -> Entry | None:
            entry = self._best(mono, wall, want)
            if entry is not None:
                self._handed(entry, want)
            return entry

        self._waiters.serve(lease)
        self._clean_up()
        self._arm()

    def _clean_up(self) -> None:
        """Settle what expired, bury what was delivered too often."""
        window = self.window
        if window.expired:
            self._counters.expired += len(window.expired)
            self._subscription.settle(window.expired, Outcome.SETTLED).add_done_callback(_retrieve)
            window.expired = []
        while window.dead:
            self._depart(self._bury_one(window.bury()))

    def _depart(self, leaving: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(leaving)
        self._departures.add(task)
        task.add_done_callback(self._departures.discard)

    async def _bury_one(self, entry: Entry) -> None:
        """The original is settled only after the dead-letter write is confirmed; until then its key waits."""
        try:
            await self._bury(entry)
            await self._confirmed(self._subscription.settle([entry.delivery], Outcome.SETTLED))
        except BridgeError:
            self._counters.dead_letter_failures += 1
            self.window.stays(entry, self._clock.mono() + _RETRY_BURY)
            self._arm()
            return
        self._counters.dead_letters += 1
        self.window.left(entry)
        self._moved()

    async def _put_off_for_long(self, entry: Entry, until: int, future: asyncio.Future[None]) -> None:
        """Where the backend fails to keep it, the window does; then it may come twice."""
        try:
            await self._confirmed(future)
        except BridgeError:
            self.window.stays(entry, until)
            self._arm()
        else:
            self.window.left(entry)
            self._moved()

    def _arm(self) -> None:
        """Set the one timer to the next moment at which the window changes by itself."""
        mono_at, wall_at = self.window.next_events()
        if mono_at is None and wall_at is None:
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
            self._timer = self._loop.call_at(at, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._advance(self._clock.mono(), self._clock.wall())
        self._serve()


def _retrieve(future: asyncio.Future[None]) -> None:
    """Nobody waits for this outcome: unrecorded, it is worked out again after a restart."""
    if not future.cancelled():
        future.exception()
