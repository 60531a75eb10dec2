"""Shares the partitions of groups between the bridges of one prefix.

A bridge announces the groups that it serves over a fanout exchange: when they change, and about every ten seconds.
About once a second it sends the same to each known bridge as a mandatory message. If that is returned, the bridge has
ended, because RabbitMQ deletes its control queue with its connection. Only balance depends on the announcements:
RabbitMQ ensures that a partition has one active consumer.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from functools import partial
from itertools import count
from typing import Final
from uuid import uuid4

from pika import BasicProperties

from adapters.amqp.channel import Channel
from adapters.amqp.link import Link
from adapters.amqp.messages import Arrival, Outgoing
from adapters.amqp.retry import retry, within_timeout
from adapters.base import Stored
from adapters.rabbitmq.group.assignment import Peers, encode, identity_of, share
from adapters.rabbitmq.options import Options
from adapters.rabbitmq.publish.confirm_channel import is_missing, is_unroutable
from adapters.rabbitmq.publish.publisher import Publisher
from adapters.rabbitmq.topology.names import Own
from bridge.errors import BackendUnavailable, BridgeError

_log = logging.getLogger("bridge.rabbitmq")

Arrived = Callable[[Arrival], None]


class ControlQueue:
    """The control queue of this bridge: bound to a fanout exchange, and exclusive, so that it ends with the connection.

    If it is lost, another one is declared, `<identity>.<number>`: RabbitMQ may still have the last one.
    """

    def __init__(self, link: Link, exchange: str, arrived: Arrived, declared: Callable[[], None]) -> None:
        """`declared` is called each time a queue was declared."""
        # not named by the broker: a permission for `amq.gen-.*` would allow reading the queues of all users
        self.identity = f"{exchange}.{uuid4().hex}"
        self.name: str | None = None
        """None: it is lost, and another one is not declared yet."""
        self._link = link
        self._exchange = exchange
        self._arrived = arrived
        self._declared = declared
        self._numbers = count(1)
        self._channel: Channel | None = None
        self._available = asyncio.Event()
        self._redeclaring: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Declare the first one. Raises `BackendUnavailable` or `Refused`; may be called again then."""
        if self._redeclaring is None:
            channel = await self._declare()
            self._redeclaring = asyncio.create_task(self._keep(channel))

    async def close(self) -> None:
        """Delete the queue. Idempotent."""
        if self._redeclaring is not None:
            self._redeclaring.cancel()
            await asyncio.wait((self._redeclaring,))
        self.name = None
        if self._channel is not None:
            await self._channel.close()

    async def ready(self) -> None:
        """Wait until there is a queue. Raises `BackendUnavailable`."""
        if self._link.up and self.name is None:
            await within_timeout(self._available.wait(), "RabbitMQ: this bridge has no control queue at the moment.")
        if self.name is None:
            raise BackendUnavailable(self._link.failure.detail)

    def renew(self) -> None:
        """Replace the queue: it receives no messages."""
        if self._channel is not None and self._channel.open:
            self._channel.raw.close()

    async def _keep(self, channel: Channel) -> None:
        while True:
            await asyncio.wait((channel.ended,))
            self.name = None
            self._available.clear()
            if self._link.up:
                _log.warning(
                    "the control queue was lost, another one is declared", extra={"error": channel.ended.result()}
                )
            channel = await retry(self._declare, self._warn)

    def _warn(self, error: BridgeError) -> None:
        if self._link.up:
            _log.warning("the bridge has no control queue: %s", error)

    async def _declare(self) -> Channel:
        channel = self._channel = await self._link.channel()
        raw, what = channel.raw, self._exchange
        raw.add_on_cancel_callback(lambda _frame: raw.is_open and raw.close())  # it was deleted
        name = f"{self.identity}.{next(self._numbers)}"
        try:
            await channel.ask(what, "exchange_declare", exchange=what, exchange_type="fanout", durable=True)
            await channel.ask(what, "queue_declare", queue=name, exclusive=True, auto_delete=True)
            await channel.ask(what, "queue_bind", queue=name, exchange=what, routing_key="")
            await channel.consume(name, lambda _consumer, arrival: self._arrived(arrival), auto_ack=True)
        except BaseException:
            await channel.close()
            raise
        self.name = name
        self._available.set()
        self._declared()
        return channel


_HEARTBEAT: Final = (0.8, 1.2)
"""Seconds between two messages to each bridge, with jitter: bridges that start together do not send at once."""
_ANNOUNCED: Final = 10
"""Heartbeats between two announcements: a bridge may have missed one."""
_RECEIVED: Final = 10.0
"""Seconds in which this bridge's own announcement reaches its control queue; it takes a few milliseconds."""
_MUTE_MAX: Final = 5
"""Heartbeats that cannot be sent, after which a bridge consumes all partitions: it does not notice bridges that end."""
_DEBOUNCE: Final = 0.05
"""Seconds from a change to the new assignment: bridges that start or end together are one change."""
_LEAVE_TIMEOUT: Final = 1.0
"""Seconds that leaving waits for its announcement."""

Changed = Callable[[frozenset[int]], None]


class Membership:
    """The membership of this bridge in one group."""

    def __init__(self, bridges: "Bridges", group: str, partitions: int, changed: Changed) -> None:
        """`changed` is called with each share after the first; after a lost connection also if it is the same."""
        self.group = group
        self.share: frozenset[int] = frozenset()
        """The partitions that this bridge consumes."""
        self._bridges = bridges
        self._partitions = partitions
        self._changed = changed

    async def join(self) -> frozenset[int]:
        """Join the group; return this bridge's share, which others may still consume. Raises `BackendUnavailable`."""
        await self._bridges.add(self)
        self.share = self._bridges.share(self.group, self._partitions)
        return self.share

    async def leave(self) -> None:
        """Leave the group. Before the consumers are closed, so that those of other bridges are ready."""
        announced = self._bridges.remove(self)
        if announced is not None:
            await asyncio.wait((announced,), timeout=_LEAVE_TIMEOUT)

    def assign(self, *, again: bool) -> None:
        """Compute the share again; `again`: report it also if it is the same, as all consumers were lost."""
        share = self._bridges.share(self.group, self._partitions)
        if again or share != self.share:
            self.share = share
            self._changed(share)


class Bridges:
    """The bridges of one prefix that this bridge has discovered, for all its groups."""

    def __init__(self, options: Options, consuming: Link, publishing: Link, publisher: Publisher) -> None:
        self._exchange = Own(options.prefix).bridges
        self._publishing = publishing
        self._publisher = publisher
        self._memberships: dict[str, Membership] = {}
        self._peers = Peers()
        self._queue = ControlQueue(consuming, self._exchange, self._arrived, self._declared)
        self._announcement = encode(())
        """The groups that this bridge serves."""
        self._sending: dict[str, asyncio.Future[Stored]] = {}
        """The last message to each bridge, while it is not confirmed, by control queue."""
        self._heartbeats = count(1)
        self._heartbeat_timer: asyncio.TimerHandle | None = None
        self._announcing: asyncio.Future[None] | None = None
        self._sent_at: float | None = None
        """When the oldest announcement was sent that this bridge has not received (seconds of the loop's clock)."""
        self._unsent = 0
        """Heartbeats since a message could be sent."""
        self._lost = False
        """Whether the connection, with all consumers on it, was lost since the last assignment."""
        self._changed_groups: set[str] = set()
        """Groups whose members have changed."""
        self._debouncing: asyncio.TimerHandle | None = None
        consuming.on_lost.append(self._connection_lost)

    async def start(self) -> None:
        """Announce this bridge. Raises `BackendUnavailable` or `Refused`; may be called again then."""
        await self._queue.start()
        if self._heartbeat_timer is None:
            self._send_heartbeats()

    async def close(self) -> None:
        """Leave all groups at once. Idempotent."""
        for timer in (self._heartbeat_timer, self._debouncing):
            if timer is not None:
                timer.cancel()
        await self._queue.close()

    async def add(self, membership: Membership) -> None:
        """Join a group. Raises `BackendUnavailable`."""
        await self._queue.ready()
        self._memberships[membership.group] = membership
        self._announce_soon()

    def remove(self, membership: Membership) -> "asyncio.Future[None] | None":
        """Leave a group; returns a future that is done when this was announced, None if it was left before."""
        if self._memberships.get(membership.group) is not membership:
            return None
        del self._memberships[membership.group]
        return self._announce_soon()

    def share(self, group: str, partitions: int) -> frozenset[int]:
        """Return the partitions of a group that this bridge consumes."""
        others = [] if self._unsent >= _MUTE_MAX else self._peers.serving(group)
        return share(group, self._queue.identity, others, partitions)

    async def own_queue(self) -> str:
        """Return the control queue of this bridge. Raises `BackendUnavailable`."""
        await self._queue.ready()
        return self._queue.name or ""

    def is_own(self, queue: str) -> bool:
        """Whether this is, or was, the control queue of this bridge."""
        return identity_of(queue) == self._queue.identity

    async def has_ended(self, queue: str) -> bool:
        """Whether the bridge with this control queue has ended, or has lost its connection.

        Raises `BackendUnavailable` or `OutcomeUnknown`.
        """
        try:
            await self._send("", queue)
        except BackendUnavailable as error:
            if is_unroutable(error):
                return True
            raise
        return False

    def _declared(self) -> None:
        """Announce the new queue: each bridge that receives this sends its own announcement."""
        self._sent_at = None
        self._announce_soon()
        self._assign_soon(self._memberships)

    def _connection_lost(self, _failure: BackendUnavailable) -> None:
        self._lost = True

    def _send_heartbeats(self) -> None:
        now = asyncio.get_running_loop().time()
        pause = random.uniform(*_HEARTBEAT)  # noqa: S311 - no secret
        self._heartbeat_timer = asyncio.get_running_loop().call_later(pause, self._send_heartbeats)
        muted = self._unsent >= _MUTE_MAX
        can_send = self._publishing.up and self._publishing.blocked is None and self._queue.name is not None
        self._unsent = 0 if can_send else self._unsent + 1
        if muted != (self._unsent >= _MUTE_MAX):
            self._assign_soon(self._memberships)
        if not can_send:
            return
        if self._sent_at is not None and self._sent_at < now - _RECEIVED:
            self._queue.renew()
            return
        for queue in self._peers.queues():
            if queue not in self._sending:
                self._send_to(queue)
        if next(self._heartbeats) % _ANNOUNCED == 0:
            self._announce_soon()

    def _announce_soon(self) -> "asyncio.Future[None]":
        """Announce the groups at the end of this iteration of the loop; the future is done with the outcome."""
        if self._announcing is None:
            self._announcing = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(self._announce)
        return self._announcing

    def _announce(self) -> None:
        announcing, self._announcing = self._announcing, None
        self._announcement = encode(self._memberships)
        if announcing is None:
            return
        if self._queue.name is None:  # it is announced when another queue is declared
            announcing.set_result(None)
            return
        if self._sent_at is None:
            self._sent_at = asyncio.get_running_loop().time()
        self._send(self._exchange, "").add_done_callback(partial(self._announced, announcing))

    def _announced(self, announcing: "asyncio.Future[None]", sent: asyncio.Future[Stored]) -> None:
        if not announcing.done():
            announcing.set_result(None)
        error = None if sent.cancelled() else sent.exception()
        if error is not None:  # the next heartbeats reach the known bridges
            self._sent_at = None
            if is_unroutable(error) or is_missing(error):
                self._queue.renew()

    def _send_to(self, queue: str) -> None:
        sent = self._sending[queue] = self._send("", queue)
        sent.add_done_callback(partial(self._sent_to, queue))

    def _sent_to(self, queue: str, sent: asyncio.Future[Stored]) -> None:
        del self._sending[queue]
        if not sent.cancelled() and is_unroutable(sent.exception()):
            self._assign_soon(self._peers.remove(queue))

    def _send(self, exchange: str, routing_key: str) -> asyncio.Future[Stored]:
        properties = BasicProperties(reply_to=self._queue.name, content_type="application/json", delivery_mode=1)
        return self._publisher.send(Outgoing(exchange, routing_key, properties, self._announcement))

    def _arrived(self, arrival: Arrival) -> None:
        queue = arrival.properties.reply_to
        if queue == self._queue.name:
            self._sent_at = None
        elif isinstance(queue, str) and queue:
            new, groups = self._peers.announced(queue, arrival.body)
            if new and queue not in self._sending:
                self._send_to(queue)
            self._assign_soon(groups)

    def _assign_soon(self, groups: Collection[str]) -> None:
        """Compute the shares of groups anew, soon."""
        self._changed_groups.update(groups)
        if self._changed_groups and self._debouncing is None:
            self._debouncing = asyncio.get_running_loop().call_later(_DEBOUNCE, self._assign)

    def _assign(self) -> None:
        self._debouncing = None
        news, self._changed_groups = self._changed_groups, set()
        again, self._lost = self._lost and self._queue.name is not None, self._lost and self._queue.name is None
        for group in list(self._memberships) if again else news:
            membership = self._memberships.get(group)
            if membership is not None:
                membership.assign(again=again)
