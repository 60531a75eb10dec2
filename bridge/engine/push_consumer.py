"""A consumer that stays open: it serves one push stream, or one callback."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from bridge.engine.clock import Clock
from bridge.engine.destination_names import SubscriptionKey
from bridge.engine.entries_and_receipts import Entry
from bridge.engine.group import Group
from bridge.engine.observer import Observer
from bridge.engine.pull_and_prefetch import PullRequest
from bridge.errors import LeaseEnded
from bridge.message import Message

CREDIT: Final = 64
"""Unacknowledged messages allowed if the client names no number, as long as it acknowledges few."""
CREDIT_MAX: Final = 1000
"""Most unacknowledged messages that a client may be allowed."""
CREDIT_PERIOD: Final = 100
"""Milliseconds: a client that names no number may have as many messages as it has settled in that time.

With 64 the Python client waited half of the time for its acknowledgements; a client that takes 10 ms for a message
still holds no more than 64, so that the rest is there for others of its group.
"""
BATCH: Final = 64
"""Most messages taken at once unless the options say more, so that one busy stream does not hold up the others."""
BATCH_BYTES: Final = 256 << 10
"""Bytes of messages after which a batch is full; a stream holds at most this and one message."""


class ConsumerOptions(NamedTuple):
    """Options of one consumer."""

    duration: int
    """Duration of a lease, ms; while the consumer is open, leases are extended by as much each time."""
    ack: bool = True
    """False: messages are settled before `take` returns them ("at most once")."""
    credit: int | None = None
    """Unacknowledged messages allowed. None: see `CREDIT_PERIOD`."""
    credit_bytes: int = 1 << 20
    """Bytes of unacknowledged messages after which no more are taken."""
    batch: int = BATCH
    """Most messages taken at once."""
    receipts: bool = True
    """False: leased messages have no receipt; only this consumer settles them."""
    limit: int | None = None
    """Total of messages after which the consumer ends. None: no limit."""
    silence: int | None = None
    """Milliseconds without a message after which the consumer ends. None: never."""
    create: bool = True
    """False: a destination that does not exist is not created; `DestinationUnknown` is raised."""
    from_oldest: bool = False
    """True: a group that is new starts at the oldest message, whatever `delivery.new_group` says."""


class Leased(NamedTuple):
    """One message that a consumer has taken."""

    message: Message
    receipt: str | None
    """None: the message is settled already, or the options ask for no receipts."""
    lease_until: int
    """End of the lease unless it is extended, ms since 1970."""
    entry: Entry
    number: int
    """Number of this lease: the entry may be leased again later, to another consumer."""


class PushConsumer:
    """Takes messages of one group while it has credit, and extends their leases; `close` releases them.

    It is the `LeaseOwner` of its leases: the group's one timer extends them. One `take` at a time.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what the engine, which alone builds it, knows
        self,
        key: SubscriptionKey,
        group: Group,
        clock: Clock,
        options: ConsumerOptions,
        write_receipt: Callable[[Entry], str],
        on_close: Callable[[], None],
        observer: Observer | None = None,
    ) -> None:
        self._key = key
        self._observer = observer
        self._took_at = 0
        """When `take` was called, ms since 1970, for the observer."""
        self.renewal = options.duration
        self.stopped = False
        """Whether `stop` was called: the bridge is stopping, or the group is purged or deleted."""
        self.end_reason = "waitmills"
        """Valid once `take` has returned an empty list: the option that ended the consumer, or the reason of `stop`."""
        self._stop_reason = ""
        self._group = group
        self._clock = clock
        self._options = options
        self._pull_request = PullRequest(options.duration, options.silence, owner=self if options.ack else None)
        self._write_receipt = write_receipt
        self._on_close = on_close
        self._leased: dict[int, Entry] = {}
        self._leased_bytes = 0
        self._allowed = CREDIT
        """The credit of a client that names none: `CREDIT` to `CREDIT_MAX`."""
        self._settled = 0
        """Leases that have ended since `_settled_since` (mono)."""
        self._settled_since = clock.mono()
        self._remaining = options.limit
        self._wakeup: asyncio.Future[None] | None = None
        self._closed = False
        group.consumers += 1

    async def take(self) -> list[Leased]:
        """Wait for messages and return at least one; an empty list once the consumer has ended.

        A cancelled call loses no message and counts no delivery.
        """
        self._took_at = self._clock.wall()
        while not self.stopped:
            if self._remaining == 0:
                self.end_reason = "maxmessages"
                return []
            if (limit := self._credit_left()) <= 0:
                await self._wait_for_wakeup()
            elif entries := await self._lease(limit):
                return await self._to_leased(entries)
            elif not self.stopped:
                return []
        self.end_reason = self._stop_reason
        return []

    async def settle_up(self) -> None:
        """Wait until every lease is acknowledged, released or over; `take` must not be called any more.

        Each lease lasts a whole duration from now, and is not extended.
        """
        self.renewal = 0
        last = self._clock.mono() + self._options.duration
        for entry in self._leased.values():
            if entry.deadline < last:
                self._group.extend(entry, self._options.duration)
        while self._leased and not self.stopped:
            await self._wait_for_wakeup()

    async def ack(self, *leased: Leased) -> None:
        """Settle messages. Idempotent. Raises `BridgeError`.

        Raises `LeaseEnded` if one of them was released before; the others are settled.
        """
        ends = [] if self._observer is None else [self._observer.settling("ack", self._key, e.message) for e in leased]
        error: BaseException | None = None
        try:
            await self._settle(leased)
        except BaseException as failure:
            error = failure
            raise
        finally:
            for end in ends:
                end(error)

    def nack(self, leased: Leased, delay: int) -> None:
        """Release a message, to be delivered again after `delay` ms."""
        end = None if self._observer is None else self._observer.settling("nack", self._key, leased.message)
        if self._is_leased(leased):
            self._group.release(leased.entry, delay)
        if end is not None:
            end(None)

    def defer(self, leased: Leased, delay: int) -> None:
        """Release a message for `delay` ms without counting the delivery."""
        if self._is_leased(leased):
            self._group.defer(leased.entry, delay)

    def ended(self, entry: Entry) -> None:
        """See `LeaseOwner`."""
        if self._leased.pop(entry.number, None) is not None:
            self._leased_bytes -= entry.size
            self._settled += 1
        self._wake()

    def stop(self, reason: str) -> None:
        """End `take` and `settle_up`: the bridge is stopping (`draining`), or the group was `purged` or `deleted`.

        The first reason stays.
        """
        if not self.stopped:
            self.stopped, self._stop_reason = True, reason
        self._wake()

    def close(self) -> None:
        """Release at once the messages that are not acknowledged. Idempotent.

        If the bridge is stopping the engine releases them, without counting a delivery.
        """
        if self._closed:
            return
        self._closed = True
        self._group.consumers -= 1
        self._on_close()
        if not self.stopped:
            self.renewal = 0
            self._group.release_all([entry for entry in self._leased.values() if not entry.settling])

    @property
    def not_ready_reason(self) -> str | None:
        """Why the backend delivers nothing to the group now; None: it does."""
        return self._group.not_ready_reason

    def serves(self, group: Group) -> bool:
        """Return whether the consumer takes messages of this group."""
        return self._group is group

    def _is_leased(self, leased: Leased) -> bool:
        return leased.number in self._leased and not leased.entry.settling

    def _credit_left(self) -> int:
        options = self._options
        limit = options.batch if self._remaining is None else min(options.batch, self._remaining)
        if not options.ack:
            return limit
        if self._leased_bytes >= options.credit_bytes:
            return 0
        credit = self._own_credit() if options.credit is None else options.credit
        return min(limit, credit - len(self._leased))

    def _own_credit(self) -> int:
        """Return the credit of a client that names none; see `CREDIT_PERIOD`."""
        now = self._clock.mono()
        if (passed := now - self._settled_since) >= CREDIT_PERIOD:
            self._allowed = max(CREDIT, min(self._settled * CREDIT_PERIOD // passed, CREDIT_MAX))
            self._settled, self._settled_since = 0, now
        return self._allowed

    async def _lease(self, limit: int) -> list[Entry]:
        max_bytes = min(BATCH_BYTES, self._options.credit_bytes - self._leased_bytes)
        entries = self._group.lease_many(self._pull_request, limit, max_bytes)
        # more could exceed the bytes that this consumer takes, and would be fetched although nobody can have them
        most = limit if self._leased_bytes <= self._options.credit_bytes // 2 else 1
        waiting = self._pull_request._replace(most=most)
        if not entries and (first := await self._group.wait_for_lease(waiting)) is not None:
            rest = max_bytes - first.size
            entries = [first, *self._group.lease_many(self._pull_request, limit - 1, rest)]
        return entries

    async def _to_leased(self, entries: list[Entry]) -> list[Leased]:
        if self._remaining is not None:
            self._remaining -= len(entries)
        if self._options.ack:
            ahead = self._clock.wall() - self._clock.mono()
            for entry in entries:
                self._leased[entry.number] = entry
                self._leased_bytes += entry.size
            write_receipt = self._write_receipt if self._options.receipts else _no_receipt
            leased = [Leased(e.message, write_receipt(e), ahead + e.deadline, e, e.number) for e in entries]
        else:
            await self._group.settle_first(entries)
            leased = [Leased(entry.message, None, 0, entry, entry.number) for entry in entries]
        if self._observer is not None and self._options.receipts:
            for each in leased:
                self._observer.delivered("push", self._key, each.message, self._took_at)
        return leased

    async def _settle(self, leased: Sequence[Leased]) -> None:
        entries, ended = [], None
        for one in leased:
            if one.number in self._leased:
                entries.append(one.entry)
                continue
            try:
                self._group.find(one.number)  # acknowledged before, or not leased any more
            except LeaseEnded as error:
                ended = error
        if entries:
            await self._group.settle(entries)
        if ended is not None:
            raise ended

    async def _wait_for_wakeup(self) -> None:
        self._wakeup = asyncio.get_running_loop().create_future()
        try:
            await self._wakeup
        finally:
            self._wakeup = None

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)


def _no_receipt(_: Entry) -> None:
    """Return no receipt."""
