"""A standing consumer: what stands behind a push stream, and behind a callback."""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from bridge.engine.clock import Clock
from bridge.engine.group import Group
from bridge.engine.waiters import Want
from bridge.engine.window import Entry
from bridge.message import Message

CREDIT: Final = 64
"""Unacknowledged messages allowed to who names no number."""
BATCH: Final = 64
"""Most messages taken at once, so that one busy stream does not hold up the others."""
BATCH_BYTES: Final = 256 << 10
"""Bytes of bodies after which a batch is full; what a stream holds is at most this and one message."""


class Terms(NamedTuple):
    """On which terms a consumer takes messages."""

    duration: int
    """Lease, ms; renewed by as much each time while the consumer lives."""
    ack: bool = True
    """False: settled before they are taken ("at most once")."""
    credit: int = CREDIT
    """Unacknowledged messages allowed."""
    credit_bytes: int = 1 << 20
    """Bytes of unacknowledged bodies after which no more are taken."""
    limit: int | None = None
    """Messages in all."""
    silence: int | None = None
    """Milliseconds without a message after which it is over. None: never."""


class Leased(NamedTuple):
    """One message that a consumer has taken."""

    message: Message
    receipt: str | None
    """None: it is settled already."""
    lease_until: int
    """End of the lease unless it is renewed, ms since 1970."""
    entry: Entry
    number: int
    """The lease's own: the entry may be leased again, to somebody else."""


class Consumer:
    """Takes messages of one group while it has credit and keeps their leases alive; `close` gives all of them back.

    It has no task and no timer of its own: the group's one timer renews the leases. One `take` at a time.
    """

    def __init__(
        self, group: Group, clock: Clock, terms: Terms, write_receipt: Callable[[Entry], str], left: Callable[[], None]
    ) -> None:
        self.renewal = terms.duration
        self.stopped = False
        """Whether the bridge is stopping."""
        self.why = "waitmills"
        """Which of its terms ended it, once `take` has returned none; or `draining`."""
        self._group = group
        self._clock = clock
        self._terms = terms
        self._want = Want(terms.duration, terms.silence, keeper=self if terms.ack else None)
        self._write_receipt = write_receipt
        self._left = left
        self._held: dict[int, Entry] = {}
        self._held_bytes = 0
        self._allowance = terms.limit
        self._news: asyncio.Future[None] | None = None
        self._closed = False
        group.consumers += 1

    async def take(self) -> list[Leased]:
        """Wait for messages and return at least one; none when it is over, by its `Terms` or because the bridge stops.

        Cancelling a call that waits loses nothing and counts nothing.
        """
        while not self.stopped:
            if self._allowance == 0:
                self.why = "maxmessages"
                return []
            if (room := self._room()) <= 0:
                await self._wait_for_news()
            elif entries := await self._lease(room):
                return await self._taken(entries)
            elif not self.stopped:
                return []
        self.why = "draining"
        return []

    async def settle_up(self) -> None:
        """Take nothing more and wait until every lease is acknowledged, given back or over.

        Each lasts a whole duration from now, and is renewed no more.
        """
        self.renewal = 0
        last = self._clock.mono() + self._terms.duration
        for entry in self._held.values():
            if entry.deadline < last:
                self._group.extend(entry, self._terms.duration)
        while self._held and not self.stopped:
            await self._wait_for_news()

    async def ack(self, leased: Leased) -> None:
        """Settle a message for good; twice is harmless. Raises the error tree: `LeaseEnded` when it was given back."""
        if (entry := self._group.find(leased.number)) is not None:
            await self._group.settle([entry])

    def nack(self, leased: Leased, delay: int) -> None:
        """Give a message back, to be delivered again after `delay` ms."""
        if self._has(leased):
            self._group.release(leased.entry, delay)

    def put_off(self, leased: Leased, delay: int) -> None:
        """Give a message back for `delay` ms without counting the delivery."""
        if self._has(leased):
            self._group.put_off(leased.entry, delay)

    def ended(self, entry: Entry) -> None:
        """See `Keeper`."""
        if self._held.pop(entry.number, None) is not None:
            self._held_bytes -= len(entry.delivery.message.body)
        self._tell()

    def stop(self) -> None:
        """End whatever waits: the bridge is stopping."""
        self.stopped = True
        self._tell()

    def close(self) -> None:
        """Give back at once what is not acknowledged. Idempotent.

        When the bridge is stopping it is the engine that gives it back, without counting it as a delivery.
        """
        if self._closed:
            return
        self._closed = True
        self._group.consumers -= 1
        self._left()
        if not self.stopped:
            self.renewal = 0
            self._group.hand_back([entry for entry in self._held.values() if not entry.settling])

    def _has(self, leased: Leased) -> bool:
        return leased.number in self._held and not leased.entry.settling

    def _room(self) -> int:
        terms = self._terms
        room = BATCH if self._allowance is None else min(BATCH, self._allowance)
        if not terms.ack:
            return room
        return min(room, terms.credit - len(self._held)) if self._held_bytes < terms.credit_bytes else 0

    async def _lease(self, room: int) -> list[Entry]:
        max_bytes = min(BATCH_BYTES, self._terms.credit_bytes - self._held_bytes)
        entries = self._group.lease_now(self._want, room, max_bytes)
        if not entries and (first := await self._group.lease(self._want)) is not None:
            rest = max_bytes - len(first.delivery.message.body)
            entries = [first, *self._group.lease_now(self._want, room - 1, rest)]
        return entries

    async def _taken(self, entries: list[Entry]) -> list[Leased]:
        if self._allowance is not None:
            self._allowance -= len(entries)
        if not self._terms.ack:
            await self._group.settle_first(entries)
            return [Leased(entry.message, None, 0, entry, entry.number) for entry in entries]
        ahead = self._clock.wall() - self._clock.mono()
        for entry in entries:
            self._held[entry.number] = entry
            self._held_bytes += len(entry.delivery.message.body)
        return [Leased(e.message, self._write_receipt(e), ahead + e.deadline, e, e.number) for e in entries]

    async def _wait_for_news(self) -> None:
        self._news = asyncio.get_running_loop().create_future()
        try:
            await self._news
        finally:
            self._news = None

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
