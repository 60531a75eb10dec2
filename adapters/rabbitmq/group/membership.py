"""Shares the partitions of groups between the bridges of one prefix.

A bridge announces the groups that it serves over a fanout exchange: when they change, and now and then. About once a
second it sends the same to each known bridge, as a mandatory message: a returned one shows that the bridge is
gone, because RabbitMQ deletes its control queue with its connection. Only balance depends on all this. That a partition
has one consumer is up to RabbitMQ (single active consumer).
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from functools import partial
from itertools import count
from typing import Any, Final
from uuid import uuid4

from pika import BasicProperties

from adapters.amqp.channel import Channel
from adapters.amqp.link import Link
from adapters.amqp.messages import Outgoing
from adapters.amqp.settings import REQUEST_TIMEOUT
from adapters.base import Stored
from adapters.rabbitmq.group.assignment import Peers, encode, identity_of, share
from adapters.rabbitmq.options import Options
from adapters.rabbitmq.publish.outcomes import is_missing, is_unroutable
from adapters.rabbitmq.publish.publisher import Publisher
from adapters.rabbitmq.topology.names import Own
from bridge.errors import BackendUnavailable, BridgeError

_PAUSE: Final = (0.1, 0.3)
"""Seconds between attempts to declare another."""
_log = logging.getLogger("bridge.rabbitmq")

Arrived = Callable[[BasicProperties, bytes], None]


class ControlQueue:
    """The control queue of this bridge: exclusive, so it ends with the connection, and bound to a fanout exchange.

    If the queue is lost, another one is declared, `<identity>.<number>`: RabbitMQ may still have the former.
    """

    def __init__(self, link: Link, exchange: str, arrived: Arrived, declared: Callable[[], None]) -> None:
        """`declared` is called each time that there is a new queue."""
        # Not named by the broker: a permission to read `amq.gen-.*` would be one to read those of all users.
        self.identity = f"{exchange}.{uuid4().hex}"
        self.name: str | None = None
        """None: there is none at the moment."""
        self._link = link
        self._exchange = exchange
        self._arrived = arrived
        self._declared = declared
        self._numbers = count(1)
        self._channel: Channel | None = None
        self._there = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Declare the first one. Raises `BackendUnavailable` or `Refused`; may be called again then."""
        if self._keeping is None:
            channel = await self._declare()
            self._keeping = asyncio.create_task(self._keep(channel))

    async def close(self) -> None:
        """Delete it. Idempotent."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait((self._keeping,))
        self.name = None
        if self._channel is not None:
            await self._channel.close()

    async def ready(self) -> None:
        """Wait while there is none. Raises `BackendUnavailable`."""
        if self._link.up and self.name is None:
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT / 1000):
                    await self._there.wait()
            except TimeoutError:
                raise BackendUnavailable("RabbitMQ: this bridge has no control queue at the moment.") from None
        if self.name is None:
            raise BackendUnavailable(self._link.failure.detail)

    def renew(self) -> None:
        """Replace it: it receives nothing."""
        if self._channel is not None and self._channel.open:
            self._channel.raw.close()

    async def _keep(self, channel: Channel) -> None:
        while True:
            await asyncio.wait((channel.ended,))
            self.name = None
            self._there.clear()
            if self._link.up:
                _log.warning("the control queue was lost, another one follows", extra={"error": channel.ended.result()})
            channel = await self._declare_again()

    async def _declare_again(self) -> Channel:
        while True:
            await asyncio.sleep(random.uniform(*_PAUSE))  # noqa: S311 - no secret
            if not self._link.up:
                continue
            try:
                return await self._declare()
            except BridgeError as error:
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
            await channel.ask(what, "basic_consume", queue=name, on_message_callback=self._receive, auto_ack=True)
        except BaseException:
            await channel.close()
            raise
        self.name = name
        self._there.set()
        self._declared()
        return channel

    def _receive(self, _channel: object, _method: object, properties: Any, body: bytes) -> None:  # noqa: ANN401 - pika's
        self._arrived(properties, body)


_BEAT: Final = (0.8, 1.2)
"""Seconds between two messages to a bridge, with jitter: bridges that start together do not all send at once."""
_ANNOUNCED: Final = 10
"""Beats between two announcements: a bridge may have missed one."""
_ECHO: Final = 10.0
"""Seconds in which this bridge's own announcement reaches its control queue; it takes a few milliseconds."""
_MUTE: Final = 5
"""Beats without a chance to send, after which a bridge consumes all partitions: a death is not noticed meanwhile."""
_SETTLE: Final = 0.05
"""Seconds from news to a new assignment: bridges that come or go together are one change."""
_FAREWELL: Final = 1.0
"""Seconds that leaving waits until the others can have noticed."""

Changed = Callable[[frozenset[int]], None]


class Membership:
    """The part of this bridge in one group."""

    def __init__(self, bridges: "Bridges", group: str, partitions: int, changed: Changed) -> None:
        """`changed` is called with each share after the first; after a lost connection also if it is the same."""
        self.group = group
        self.share: frozenset[int] = frozenset()
        """The partitions that this bridge consumes."""
        self._bridges = bridges
        self._partitions = partitions
        self._changed = changed

    async def join(self) -> frozenset[int]:
        """Join the group, and return this bridge's share; others may still consume it. Raises `BackendUnavailable`."""
        await self._bridges.enter(self)
        self.share = self._bridges.share(self.group, self._partitions)
        return self.share

    async def leave(self) -> None:
        """Leave the group, best before closing the consumers: the others wait in line for the queues then."""
        announced = self._bridges.leave(self)
        if announced is not None:
            await asyncio.wait((announced,), timeout=_FAREWELL)

    def assign(self, *, again: bool) -> None:
        """Compute the share anew; `again` if all consumers were lost."""
        share = self._bridges.share(self.group, self._partitions)
        if again or share != self.share:
            self.share = share
            self._changed(share)


class Bridges:
    """The bridges of one prefix, as this one has discovered them, for all its groups."""

    def __init__(self, options: Options, consuming: Link, publishing: Link, publisher: Publisher) -> None:
        self._exchange = Own(options.prefix).bridges
        self._publishing = publishing
        self._publisher = publisher
        self._memberships: dict[str, Membership] = {}
        self._peers = Peers()
        self._queue = ControlQueue(consuming, self._exchange, self._arrived, self._declared)
        self._said = encode(())
        """What this bridge says of itself."""
        self._sending: dict[str, asyncio.Future[Stored]] = {}
        """The last message to each bridge, by control queue."""
        self._beats = count(1)
        self._beating: asyncio.TimerHandle | None = None
        self._announcing: asyncio.Future[None] | None = None
        self._unheard: float | None = None
        """When the oldest announcement was sent that has not come back (seconds of the loop's clock)."""
        self._mute = 0
        """Beats since a message could be sent."""
        self._lost = False
        """Whether the connection, with all consumers on it, was lost since the last assignment."""
        self._news: set[str] = set()
        """Groups whose members have changed."""
        self._settling: asyncio.TimerHandle | None = None
        consuming.on_lost.append(self._connection_lost)

    async def start(self) -> None:
        """Become known to the others. Raises `BackendUnavailable` or `Refused`; may be called again then."""
        await self._queue.start()
        if self._beating is None:
            self._beat()

    async def close(self) -> None:
        """Leave all groups at once. Idempotent."""
        for timer in (self._beating, self._settling):
            if timer is not None:
                timer.cancel()
        await self._queue.close()

    async def enter(self, membership: Membership) -> None:
        """Join a group. Raises `BackendUnavailable`."""
        await self._queue.ready()
        self._memberships[membership.group] = membership
        self._announce_soon()

    def leave(self, membership: Membership) -> "asyncio.Future[None] | None":
        """Leave a group; returns what is done when that was sent, None if the membership is over already."""
        if self._memberships.get(membership.group) is not membership:
            return None
        del self._memberships[membership.group]
        return self._announce_soon()

    def share(self, group: str, partitions: int) -> frozenset[int]:
        """Return the partitions of a group that this bridge consumes."""
        others = [] if self._mute >= _MUTE else self._peers.serving(group)
        return share(group, self._queue.identity, others, partitions)

    async def own_queue(self) -> str:
        """Return the control queue of this bridge. Raises `BackendUnavailable`."""
        await self._queue.ready()
        return self._queue.name or ""

    def is_own(self, queue: str) -> bool:
        """Whether this bridge has, or had, this control queue."""
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
        """Announce the new queue: each bridge that gets this answers."""
        self._unheard = None
        self._announce_soon()
        self._reconsider(self._memberships)

    def _connection_lost(self, _failure: BackendUnavailable) -> None:
        self._lost = True

    def _beat(self) -> None:
        now = asyncio.get_running_loop().time()
        self._beating = asyncio.get_running_loop().call_later(random.uniform(*_BEAT), self._beat)  # noqa: S311 - no secret
        muted = self._mute >= _MUTE
        can_send = self._publishing.up and self._publishing.blocked is None and self._queue.name is not None
        self._mute = 0 if can_send else self._mute + 1
        if muted != (self._mute >= _MUTE):
            self._reconsider(self._memberships)
        if not can_send:
            return
        if self._unheard is not None and self._unheard < now - _ECHO:
            self._queue.renew()
            return
        for queue in self._peers.queues():
            if queue not in self._sending:
                self._send_to(queue)
        if next(self._beats) % _ANNOUNCED == 0:
            self._announce_soon()

    def _announce_soon(self) -> "asyncio.Future[None]":
        """Announce the groups at the end of this turn of the loop; the future is done when RabbitMQ has it, or not."""
        if self._announcing is None:
            self._announcing = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(self._announce)
        return self._announcing

    def _announce(self) -> None:
        announcing, self._announcing = self._announcing, None
        self._said = encode(self._memberships)
        if announcing is None:
            return
        if self._queue.name is None:  # the next one is announced
            announcing.set_result(None)
            return
        if self._unheard is None:
            self._unheard = asyncio.get_running_loop().time()
        self._send(self._exchange, "").add_done_callback(partial(self._announced, announcing))

    def _announced(self, announcing: "asyncio.Future[None]", sent: asyncio.Future[Stored]) -> None:
        if not announcing.done():
            announcing.set_result(None)
        error = None if sent.cancelled() else sent.exception()
        if error is not None:  # the next beats reach the known bridges
            self._unheard = None
            if is_unroutable(error) or is_missing(error):
                self._queue.renew()

    def _send_to(self, queue: str) -> None:
        sent = self._sending[queue] = self._send("", queue)
        sent.add_done_callback(partial(self._sent_to, queue))

    def _sent_to(self, queue: str, sent: asyncio.Future[Stored]) -> None:
        del self._sending[queue]
        if not sent.cancelled() and is_unroutable(sent.exception()):
            self._reconsider(self._peers.remove(queue))

    def _send(self, exchange: str, routing_key: str) -> asyncio.Future[Stored]:
        properties = BasicProperties(reply_to=self._queue.name, content_type="application/json", delivery_mode=1)
        return self._publisher.send(Outgoing(exchange, routing_key, properties, self._said))

    def _arrived(self, properties: BasicProperties, body: bytes) -> None:
        queue = properties.reply_to
        if queue == self._queue.name:
            self._unheard = None
        elif isinstance(queue, str) and queue:
            new, groups = self._peers.heard(queue, body)
            if new and queue not in self._sending:
                self._send_to(queue)
            self._reconsider(groups)

    def _reconsider(self, groups: Collection[str]) -> None:
        """Compute the shares of groups anew, soon."""
        self._news.update(groups)
        if self._news and self._settling is None:
            self._settling = asyncio.get_running_loop().call_later(_SETTLE, self._settle)

    def _settle(self) -> None:
        self._settling = None
        news, self._news = self._news, set()
        again, self._lost = self._lost and self._queue.name is not None, self._lost and self._queue.name is None
        for group in list(self._memberships) if again else news:
            membership = self._memberships.get(group)
            if membership is not None:
                membership.assign(again=again)
