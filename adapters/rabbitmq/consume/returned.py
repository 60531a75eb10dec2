"""Puts back the messages that a delivery limit has taken out of a group's queues.

RabbitMQ counts each message that returns to a quorum queue, whether a consumer received it or not: when a group is
closed, when a partition is refreshed or moves, when a connection is lost. The bridge declares its queues without a
limit, but a policy may set one, which no client can see. So RabbitMQ dead-letters what exceeds the limit to a queue of
the group, and keeps it until that queue has confirmed it (at least once). From there a bridge publishes it again to the
queue that it was in, where RabbitMQ counts from 0. Such a message comes later than those behind it, and perhaps twice.
"""

import asyncio
import logging
import re
from functools import partial
from typing import Any, Final

from adapters.amqp.channel import Channel
from adapters.amqp.link import Link
from adapters.amqp.messages import Arrival, Outgoing
from adapters.amqp.retry import retry
from adapters.base import Stored
from adapters.rabbitmq.mapping import copied, is_marker
from adapters.rabbitmq.publish.confirm_channel import is_unroutable
from adapters.rabbitmq.publish.publisher import Publisher
from bridge.errors import BridgeError

_PREFETCH: Final = 32
"""Messages that are being put back. If the bridge is killed, these count as returned once."""
_RETRY: Final = 1.0
"""Seconds between attempts to put a message back."""
_CLOSE: Final = 2.0
"""Seconds that closing waits for these."""
_DEATH: Final = "x-death"
_LIMIT: Final = "delivery_limit"
"""Why RabbitMQ has dead-lettered a message. The others have expired: they are dropped."""
_HISTORY: Final = re.compile(r"\.h(\d+)$")
_log = logging.getLogger("bridge.rabbitmq")


class ReturnedMessages:
    """Consumes the queue for what a delivery limit has taken out of the other queues of a group."""

    def __init__(self, link: Link, publisher: Publisher, queue: str) -> None:
        self._link = link
        self._publisher = publisher
        self._queue = queue
        self._warned: set[str] = set()
        """Queues whose limit was logged."""
        self._sending: set[asyncio.Future[Stored]] = set()
        self._closing = False
        self._consuming: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to consume, and continue after a lost connection."""
        self._consuming = asyncio.get_running_loop().create_task(self._consume())

    async def close(self) -> None:
        """Stop, after the messages that are being published. Idempotent."""
        self._closing = True
        if self._sending:
            await asyncio.wait(self._sending, timeout=_CLOSE)
        if self._consuming is not None:
            self._consuming.cancel()
            await asyncio.wait((self._consuming,))

    async def _consume(self) -> None:
        while True:
            channel = await retry(self._open, lambda error: _log.debug("%s: %s", self._queue, error))
            try:
                await asyncio.wait((channel.ended,))
            finally:
                await channel.close()

    async def _open(self) -> Channel:
        channel = await self._link.channel()
        raw = channel.raw
        raw.add_on_cancel_callback(lambda _frame: raw.is_open and raw.close())  # the queue was deleted
        try:
            await channel.ask(self._queue, "basic_qos", prefetch_count=_PREFETCH)
            await channel.consume(self._queue, lambda _consumer, arrival: self._put_back(channel, arrival))
        except BaseException:
            await channel.close()
            raise
        return channel

    def _put_back(self, channel: Channel, arrival: Arrival) -> None:
        if not channel.open or self._closing:
            return
        death = _last_death(arrival)
        queue = str(death.get("queue", ""))
        if death.get("reason") != _LIMIT or not queue:
            channel.raw.basic_ack(arrival.tag)
            return
        if queue not in self._warned:
            self._warned.add(queue)
            _log.warning(
                "%s: a policy limits deliveries, which counts messages that no consumer received. The bridge puts them"
                " back, behind others. Set delivery-limit for other queues than the bridge's only.",
                queue,
            )
        keys = death.get("routing-keys") or [arrival.routing_key]
        arrival.properties.expiration = death.get("original-expiration")
        properties = copied(arrival._replace(routing_key=str(keys[0])))
        if not is_marker(properties):  # the mark at its end stays in a history, which is deleted behind it
            queue = _HISTORY.sub(r".p\1", queue)
        sending = self._publisher.send(Outgoing("", queue, properties, arrival.body))
        self._sending.add(sending)
        sending.add_done_callback(partial(self._sent, channel, arrival))

    def _sent(self, channel: Channel, arrival: Arrival, sending: asyncio.Future[Stored]) -> None:
        """Remove the message from the queue once it is stored in the other one, or that was deleted."""
        self._sending.discard(sending)
        if sending.cancelled() or not channel.open:
            return
        error = sending.exception()
        if error is None or is_unroutable(error):
            channel.raw.basic_ack(arrival.tag)
            return
        if not isinstance(error, BridgeError):
            raise error
        _log.info("%s: a message is not put back yet: %s", self._queue, error)
        asyncio.get_running_loop().call_later(_RETRY, self._put_back, channel, arrival)


def _last_death(arrival: Arrival) -> dict[str, Any]:
    """Return RabbitMQ's note of why and from where it has dead-lettered a message."""
    deaths = (arrival.properties.headers or {}).get(_DEATH)
    return deaths[0] if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict) else {}
