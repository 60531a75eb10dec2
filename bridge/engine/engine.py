"""The engine: what the doors call. It finds the group, keeps the promises that span groups, and drains."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from typing import Final, NamedTuple, Self

from adapters.base import Adapter, Delivery
from bridge.engine.clock import Clock
from bridge.engine.consumer import Consumer, Terms
from bridge.engine.counters import Counters
from bridge.engine.group import Group
from bridge.engine.names import check_name, dead_letter_of, is_dead_letter
from bridge.engine.policy import Policy
from bridge.engine.producer import Produced, Producer
from bridge.engine.receipts import Receipt, ReceiptBook
from bridge.engine.waiters import Want
from bridge.engine.window import Entry
from bridge.errors import (
    BackendUnavailable,
    BridgeError,
    CannotStart,
    Draining,
    LeaseEnded,
    ReceiptInvalid,
    TooManyInFlight,
)
from bridge.message import Field, Message

_RECONNECT: Final = (0.2, 0.5, 1, 2, 5)
"""Seconds between attempts to start the backend; the last one repeats."""
_DRAINING: Final = "The bridge is stopping and hands out no more messages."

_log = logging.getLogger("bridge.engine")


class GroupName(NamedTuple):
    """A consumer group is (destination, consumerId)."""

    source: str
    group: str

    @classmethod
    def checked(cls, source: str, group: str) -> Self:
        """Build one. Raises `DestinationInvalid`."""
        return cls(check_name(source, "x-oms-source"), check_name(group, "x-oms-consumerid"))


class Pulled(NamedTuple):
    """One message on its way to a consumer."""

    message: Message
    receipt: str | None
    """None: it is settled already (at most once)."""
    lease_until: int
    """End of the lease, ms since 1970."""
    undo: Callable[[], None]
    """To be called when the answer certainly did not reach the consumer."""


class Engine:
    """One backend, its producer, its groups."""

    def __init__(self, adapter: Adapter, clock: Clock, policy: Policy) -> None:
        self.adapter = adapter
        self.counters = Counters()
        self.trouble: str | None = "the backend has not started yet"
        """Why the bridge is not ready; None when it is."""
        self.draining = False
        self.clock = clock
        self._policy = policy
        self._producer = Producer(adapter, clock, policy, self.counters)
        self._receipts = ReceiptBook()
        self._groups: dict[GroupName, asyncio.Future[Group]] = {}
        self._leaving: dict[GroupName, asyncio.Future[None]] = {}
        self._by_number: dict[int, tuple[GroupName, Group]] = {}
        self._consumers: set[Consumer] = set()
        self._numbers: dict[GroupName, int] = {}
        self._next_number = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def groups(self) -> Sequence[tuple[GroupName, Group]]:
        """The groups that this bridge serves now."""
        return tuple(self._by_number.values())

    async def start(self) -> None:
        """Start the backend; while it is unavailable go on trying in the background and say so in `trouble`.

        What is not `BackendUnavailable` (a corrupt journal, a wrong setting) is raised: waiting would not mend it.
        """
        self._background(self._drop_idle_groups())
        try:
            await self.adapter.start()
        except BackendUnavailable as error:
            self._not_ready(error)
            self._background(self._keep_starting())
        else:
            self.trouble = None

    def produce(self, message: Message, require: Sequence[Field], peer: str) -> Awaitable[Produced]:
        """Publish one message. Raises the error tree."""
        self._check_ready()
        return self._producer.produce(message, require, peer)

    def produce_all(
        self, messages: Sequence[Message | BridgeError], require: Sequence[Field], peer: str
    ) -> Awaitable[list[Produced | BridgeError]]:
        """Publish a batch, one result per message in request order."""
        self._check_ready()
        return self._producer.produce_all(messages, require, peer)

    async def pull(self, name: GroupName, want: Want, *, ack: bool) -> Pulled | None:
        """Hand out one message, or None when there is none in time.

        Under ack it is leased; without, "the message is settled before it is sent (at most once)".
        """
        group, group_number = await self._joined(name, waits=want.wait != 0)
        entry = await group.lease(want)
        if entry is None:
            return None
        number = entry.number
        if not ack:
            await group.settle_first([entry])
            return Pulled(entry.message, None, 0, lambda: None)
        receipt = self._receipts.write(Receipt(group_number, number))
        until = self.clock.wall() + entry.deadline - self.clock.mono()
        return Pulled(entry.message, receipt, until, lambda: group.undo(entry, number))

    async def consume(self, name: GroupName, terms: Terms) -> Consumer:
        """Open a standing consumer; whoever opens it closes it."""
        group, group_number = await self._joined(name, waits=True)

        def write_receipt(entry: Entry) -> str:
            return self._receipts.write(Receipt(group_number, entry.number))

        consumer = Consumer(group, self.clock, terms, write_receipt, lambda: self._consumers.discard(consumer))
        self._consumers.add(consumer)
        return consumer

    async def ack(self, receipts: Sequence[str], named: GroupName | None) -> None:
        """Settle leases for good; one that was acknowledged before is done already."""
        found, failures = self._find(receipts, named)
        by_group: dict[Group, list[Entry]] = {}
        for _, group, entry in found:
            if entry is not None:
                by_group.setdefault(group, []).append(entry)
        for group, entries in by_group.items():
            await group.settle(entries)
        _report(receipts, failures)

    def nack(self, receipts: Sequence[str], delay: int, named: GroupName | None) -> None:
        """Give leases back, each message ready again after `delay` ms."""
        self._each_live(receipts, named, lambda group, entry: group.release(entry, delay))

    def extend(self, receipts: Sequence[str], duration: int, named: GroupName | None) -> None:
        """Let leases last `duration` ms from now."""
        self._each_live(receipts, named, lambda group, entry: group.extend(entry, duration))

    def drain(self) -> None:
        """Become not ready, hand out nothing more, answer the pulls that wait, end the streams."""
        if not self.draining:
            for joining in self._groups.values():
                joining.cancel()  # where others of a group have to agree, that may take longer than stopping may
        self.draining = True
        for consumer in tuple(self._consumers):
            consumer.stop()
        for _, group in self.groups:
            group.stop_waiting()

    async def close(self) -> None:
        """Release every lease without counting it as a failure, flush and close the backend."""
        self.drain()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._groups.values(), return_exceptions=True)
        leaving = [*self._leaving.values(), *(self._drop(name) for name, _ in self.groups)]
        for outcome in await asyncio.gather(*leaving, return_exceptions=True):
            if isinstance(outcome, BaseException):
                _log.error("a group was not left cleanly", exc_info=outcome)
        await self.adapter.close()

    def _check_ready(self) -> None:
        if self.trouble is not None:
            raise BackendUnavailable(f"The backend is not ready: {self.trouble}.")

    async def _joined(self, name: GroupName, *, waits: bool) -> tuple[Group, int]:
        """Return a group and its number for somebody who is going to take messages, perhaps after waiting."""
        self._check_ready()
        self._check_takes(waits=waits)
        group = await self._group(name)
        self._check_takes(waits=waits)  # joining may have taken a while
        return group, self._numbers[name]

    def _check_takes(self, *, waits: bool) -> None:
        if self.draining:
            raise Draining(_DRAINING)
        if waits and self.counters.waiting_pulls >= self._policy.waiting_pulls:
            raise TooManyInFlight(f"{self._policy.waiting_pulls} pulls and streams are waiting already.", retry_after=5)

    async def _group(self, name: GroupName) -> Group:
        """Return the group, joining it first if this is the first pull: later ones wait for the same joining."""
        joining = self._groups.get(name)
        if joining is not None and joining.done():
            return joining.result()
        if joining is None:
            joining = asyncio.ensure_future(self._join(name))
            self._groups[name] = joining
        try:
            return await asyncio.shield(joining)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if joining.cancelled() and (task is None or not task.cancelling()):
                raise Draining(_DRAINING) from None
            raise

    async def _join(self, name: GroupName) -> Group:
        group: Group | None = None

        def revoked(partitions: Collection[int]) -> Sequence[Delivery]:
            return () if group is None else group.revoke(partitions)  # None: nothing has been fetched yet

        try:
            if (leaving := self._leaving.get(name)) is not None:
                await asyncio.shield(leaving)
            group = Group(
                await self.adapter.subscribe(name.source, name.group, revoked, latest=self._policy.latest),
                self.clock,
                self._policy,
                self.counters,
                lambda entry: self._bury(name, entry),
                max_deliveries=None if is_dead_letter(name.source) else self._policy.max_deliveries,
                durable=self.adapter.features.durable,
            )
        except BaseException:
            del self._groups[name]
            raise
        self._next_number += 1
        self._numbers[name] = self._next_number
        self._by_number[self._next_number] = (name, group)
        return group

    async def _drop(self, name: GroupName) -> None:
        del self._groups[name]
        _, group = self._by_number.pop(self._numbers.pop(name))
        self._leaving[name] = leaving = asyncio.ensure_future(group.close())
        try:
            await asyncio.shield(leaving)  # stopping the bridge must not cut short what gives messages back
        finally:
            if leaving.done():
                del self._leaving[name]

    def _find(
        self, receipts: Sequence[str], named: GroupName | None
    ) -> tuple[list[tuple[str, Group, Entry | None]], dict[str, BridgeError]]:
        """Look every receipt up; None stands for an entry that is acknowledged already."""
        found: list[tuple[str, Group, Entry | None]] = []
        failures: dict[str, BridgeError] = {}
        for text in dict.fromkeys(receipts):
            try:
                receipt = self._receipts.read(text)
                name, group = self._by_number.get(receipt.group, (None, None))
                if group is None:
                    raise LeaseEnded("x-oms-receipt: the lease ended with its idle group.")
                if named is not None and named != name:
                    raise ReceiptInvalid("x-oms-receipt: the receipt belongs to another group than the one named.")
                found.append((text, group, group.find(receipt.lease)))
            except BridgeError as error:
                failures[text] = error
        return found, failures

    def _each_live(self, receipts: Sequence[str], named: GroupName | None, act: Callable[[Group, Entry], None]) -> None:
        found, failures = self._find(receipts, named)
        for text, group, entry in found:
            if entry is None or entry.settling:
                failures[text] = LeaseEnded("x-oms-receipt: the message is acknowledged already.")
            else:
                act(group, entry)
        _report(receipts, failures)

    async def _bury(self, name: GroupName, entry: Entry) -> None:
        """Write the dead letter: the message as it was, with the reason, the source and the count as properties."""
        message = entry.delivery.message
        reason = {
            "oms-dead-letter-reason": "max-deliveries",
            "oms-dead-letter-source": name.source,
            "oms-dead-letter-group": name.group,
            "oms-dead-letter-count": str(entry.attempts),
        }
        if message.expire_time is not None:
            reason["oms-dead-letter-expiretime"] = str(message.expire_time)
        await self._producer.bury(
            message._replace(
                destination=dead_letter_of(name.source),
                properties={**message.properties, **reason},
                partition=None,
                delay_time=None,
                expire_time=None,
            )
        )
        _log.warning("dead letter", extra={"source": name.source, "group": name.group, "id": message.message_id})

    async def _keep_starting(self) -> None:
        for attempt in range(1 << 30):
            await asyncio.sleep(_RECONNECT[min(attempt, len(_RECONNECT) - 1)])
            try:
                await self.adapter.start()
            except BackendUnavailable as error:
                self._not_ready(error)
            except (CannotStart, BridgeError) as error:
                self.trouble = str(error)
                _log.exception("the backend cannot start; waiting will not mend it")
                return
            else:
                self.trouble = None
                _log.warning("the backend is ready")
                return

    def _not_ready(self, error: BackendUnavailable) -> None:
        if error.detail != self.trouble:
            self.trouble = error.detail
            _log.warning("the backend is not ready", extra={"reason": error.detail})

    async def _drop_idle_groups(self) -> None:
        idle = self._policy.group_idle
        while True:
            await asyncio.sleep(idle / 4000)
            since = self.clock.mono() - idle
            for name, group in self.groups:
                if group.idle and group.touched <= since:
                    await self._leave(name)

    async def _leave(self, name: GroupName) -> None:
        try:
            await self._drop(name)
        except BridgeError:
            _log.warning("an idle group was not left cleanly", exc_info=True)

    def _background(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _report(receipts: Sequence[str], failures: dict[str, BridgeError]) -> None:
    """Raise what went wrong. With several receipts, say which ones: the others are done."""
    if not failures:
        return
    error = next(iter(failures.values()))
    if len(receipts) > 1:
        failed = ", ".join(text[:80].encode("unicode_escape").decode("ascii") for text in failures)
        raise type(error)(f"{error.detail} Of {len(receipts)} receipts these failed, the others are done: {failed}.")
    raise error
