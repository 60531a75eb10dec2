"""The channel of a partition: deliveries, acknowledgements, and the confirmation that the broker has applied those.

AMQP has no answer to an acknowledgement, but requests behind it on the same channel are answered. Measured on 3.10.8
with a quorum queue; in the third column, the process that writes the broker's log was suspended:

| answer to | after 1 ack, after 24 | while nothing is written |
|---|---|---|
| `basic.qos` | 0.15 ms, 0.5 ms | is sent: a bridge may be killed then, a broker may not (one kill undid 7 of 24) |
| passive `queue.declare` | 0.17 ms, 0.5 ms | is sent (one kill undid 1 of 24) |
| `basic.consume`, `basic.cancel` | 0.6 ms, 1.4 ms | is not sent: both are written to the queue's log, behind the acks |

So a second consumer is added and cancelled in turn. With single active consumer no message is delivered to it. On a
queue of others messages would be: there `basic.qos` confirms.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Final

from pika.exceptions import ChannelClosed

from adapters.amqp.channel import Channel, ignore_delivery
from adapters.amqp.messages import Arrival
from adapters.rabbitmq.consume.partition_state import Ack, Unacked
from bridge.errors import BackendUnavailable, BridgeError

ACKS_MAX: Final = 24
"""Acknowledgements between two confirmations: a channel with 32 acknowledgements that a quorum queue has not applied
holds the next ones back, and the confirmation would overtake those (`quorum_commands_soft_limit`)."""

_PARTITION: Final = "partition "
"""Of the tags of consumers that get messages; the others confirm acknowledgements."""

Arrived = Callable[[Arrival], None]
OnEnded = Callable[[BridgeError], None]


class Consumer:
    """Consumes one queue, or two, on its own channel."""

    def __init__(self, channel: Channel, prefetch: int, arrived: Arrived, on_ended: OnEnded) -> None:
        """`arrived` is called with each message.

        `on_ended` is called when the broker ends the consumer; not when the connection is lost.
        """
        self._channel = channel
        self._prefetch = prefetch
        self._arrived = arrived
        self._on_ended = on_ended
        self._queues: dict[str, str] = {}
        """The consumed queues, by consumer tag."""
        self._queue = ""
        """The last consumed queue."""
        self._numbers = count()
        """Of consumers: pika keeps the tag of the last one a moment longer."""
        self._confirmation: str | None = None
        """Tag of the second consumer while it exists."""
        self._closing = False
        channel.ended.add_done_callback(lambda ended: self._ended(ended.result()))
        channel.raw.add_on_cancel_callback(lambda frame: self._cancelled(str(frame.method.consumer_tag)))

    @property
    def open(self) -> bool:
        """Whether messages are delivered on it, and can be acknowledged."""
        return self._channel.open and not self._closing

    @property
    def queue(self) -> str:
        """The last consumed queue."""
        return self._queue

    async def consume(self, queue: str) -> int:
        """Consume a queue; returns the number of messages that were ready in it.

        Raises `DestinationUnknown` if the queue does not exist, `Refused` or `BackendUnavailable`.
        """
        ready = await self._count_ready(queue)
        await self._consume(queue)
        return ready

    async def ready(self) -> int:
        """Return the number of messages that are ready in the last consumed queue. Raises as `consume` does."""
        return await self._count_ready(self._queue)

    async def _count_ready(self, queue: str) -> int:
        declared = await self._channel.ask(queue, "queue_declare", queue=queue, passive=True)
        return int(declared.message_count)

    async def replace(self, prefetch: int) -> None:
        """Have the last consumed queue delivered to another consumer of this channel, up to `prefetch` messages.

        The messages of the consumer before stay unacknowledged, and do not count. No acknowledgement may be under way.
        Raises `BackendUnavailable`.
        """
        if self._confirmation is not None:  # it would become the active one
            confirmation, self._confirmation = self._confirmation, None
            await self._channel.ask(self._queue, "basic_cancel", consumer_tag=confirmation)
        before = next(tag for tag, queue in self._queues.items() if queue == self._queue)
        self._prefetch = prefetch
        await self._consume(self._queue)
        del self._queues[before]  # the broker reports the end of a consumer that has a tag here
        await self._channel.ask(self._queue, "basic_cancel", consumer_tag=before)

    async def delete(self, queue: str) -> None:
        """Delete a consumed queue. Raises `Refused` or `BackendUnavailable`."""
        for tag in [tag for tag, consumed in self._queues.items() if consumed == queue]:
            del self._queues[tag]  # the broker reports the end of a consumer that has a tag here
        await self._channel.ask(queue, "queue_delete", queue=queue)

    def ack(self, acks: Sequence[Ack], confirmed: Callable[[], None]) -> None:
        """Acknowledge; `confirmed` is called once the broker has applied it, and not if the channel closes before."""
        raw = self._channel.raw
        for ack in acks:
            raw.basic_ack(ack.tag, ack.multiple)
        if self._confirmation is not None:
            confirmation, self._confirmation = self._confirmation, None
            raw.basic_cancel(confirmation, callback=lambda _frame: confirmed())
        else:
            confirmation = self._confirmation = f"confirmation {next(self._numbers)}"
            raw.basic_consume(
                self._queue, ignore_delivery, consumer_tag=confirmation, callback=lambda _frame: confirmed()
            )

    async def close(self) -> None:
        """Close the channel: unacknowledged messages return to their places in the queue."""
        self._closing = True
        await self._channel.close()

    async def _consume(self, queue: str) -> None:
        await self._channel.ask(queue, "basic_qos", prefetch_count=self._prefetch)
        # when the channel ends, a quorum queue takes the messages back in the order of the tags
        tag = f"{_PARTITION}{next(self._numbers):06}"
        await self._channel.consume(queue, self._delivered, consumer_tag=tag)
        self._queues[tag] = self._queue = queue

    def _delivered(self, consumer: str, arrival: Arrival) -> None:
        if consumer.startswith(_PARTITION) and not self._closing:
            self._arrived(arrival)

    def _ended(self, reason: BaseException) -> None:
        # without a queue yet, `consume` raises it
        if not self._closing and self._queues and isinstance(reason, ChannelClosed):
            self._closing = True
            self._on_ended(BackendUnavailable(f"{self._queue}: RabbitMQ closed the channel ({reason})."))

    def _cancelled(self, tag: str) -> None:
        if tag == self._confirmation:
            self._confirmation = None
        elif tag in self._queues and not self._closing:
            self._closing = True
            self._on_ended(BackendUnavailable(f"{self._queues[tag]}: RabbitMQ has cancelled the consumer."))


class RequestingConsumer(Consumer):
    """Consumes a queue of others: RabbitMQ delivers no more messages than are wanted at that moment.

    A quorum queue counts each message that returns to it, however it returns (measured on 3.10.8, 4.0.5 and 4.3.6:
    closed channel, lost connection, cancel, reject, nack and recover), and drops it after `x-delivery-limit`. So none
    may be fetched ahead. A request is a consumer whose prefetch is the number of messages; it is cancelled at its first
    delivery, before an acknowledgement could have RabbitMQ deliver another one. A request takes 1 to 7 ms.
    """

    def __init__(
        self, channel: Channel, arrived: Arrived, on_ended: OnEnded, wanted: Callable[[], int], queue: str
    ) -> None:
        """`wanted` returns how many messages are to be requested now."""
        super().__init__(channel, 1, arrived, on_ended)
        self._wanted = wanted
        self._queue = queue
        self._request: str | None = None
        """Tag of the consumer, until RabbitMQ has cancelled it."""
        self._requested = 0
        self._cancelling = False

    async def ready(self) -> int:
        """See `Consumer`."""
        ready = await super().ready()
        self._queues[""] = self._queue  # from now on the end of the channel is reported
        return ready

    def request(self) -> None:
        """Request as many messages as are wanted now; fewer than before if some are not wanted any more."""
        wanted = max(self._wanted(), 0) if self.open else 0
        if self._request is not None:
            if wanted < self._requested:
                self._cancel()
        elif wanted:
            raw = self._channel.raw
            self._prefetch = self._requested = wanted
            self._request = f"{_PARTITION}{next(self._numbers)}"
            self._channel.deliver_to(self._delivered)
            raw.basic_qos(prefetch_count=wanted)
            raw.basic_consume(self._queue, ignore_delivery, consumer_tag=self._request)

    def ack(self, acks: Sequence[Ack], confirmed: Callable[[], None]) -> None:
        """See `Consumer`."""
        raw = self._channel.raw
        for ack in acks:
            raw.basic_ack(ack.tag, ack.multiple)
        raw.basic_qos(prefetch_count=self._prefetch, callback=lambda _frame: confirmed())

    def _delivered(self, consumer: str, arrival: Arrival) -> None:
        if consumer == self._request:
            self._cancel()
        super()._delivered(consumer, arrival)

    def _cancel(self) -> None:
        if not self._cancelling and self._request is not None and self.open:
            self._cancelling = True
            self._channel.raw.basic_cancel(self._request, callback=lambda _frame: self._has_ended())

    def _has_ended(self) -> None:
        self._request, self._cancelling = None, False
        self.request()

    def _cancelled(self, tag: str) -> None:
        if tag == self._request and not self._closing:
            self._closing = True
            self._on_ended(BackendUnavailable(f"{self._queue}: RabbitMQ has cancelled the consumer."))


_QUIET_TIMEOUT: Final = 2.0
"""Seconds that closing waits for acknowledgements under way."""


class Waiter:
    """A call that waits until the broker has removed some messages."""

    __slots__ = ("future", "left")

    def __init__(self, future: asyncio.Future[None]) -> None:
        self.future = future
        self.left = 0

    def done(self) -> None:
        """One more message is removed."""
        self.left -= 1
        if not self.left and not self.future.done():
            self.future.set_result(None)

    def fail(self, error: BridgeError) -> None:
        """Fail the future: the outcome is unknown, or nothing was acknowledged."""
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # no caller may be waiting for it


class Acks:
    """Sends acknowledgements, with one confirmation under way at a time."""

    def __init__(self, unacked: Unacked[Waiter], removed: Callable[[], None]) -> None:
        """`removed` is called each time the broker has removed messages."""
        self._unacked = unacked
        self._on_removed = removed
        self._loop = asyncio.get_running_loop()
        self._consumer: Consumer | None = None
        self._due = False
        """Whether acknowledgements are to be sent in the next iteration of the loop."""
        self._confirming = False
        self._held = False
        """Whether none are sent until `begin` or `resume`."""
        self._quiet: asyncio.Future[None] | None = None

    def begin(self, consumer: Consumer | None) -> None:
        """Send them on another channel; None: on none. What was under way will not be confirmed."""
        self._consumer = consumer
        self._confirming = False
        self.resume()

    def resume(self) -> None:
        """Send them again after `hold`."""
        self._held = False
        self.settled()

    def settled(self) -> None:
        """Acknowledge all settled messages, once in an iteration of the loop."""
        if not self._due and not self._confirming:
            self._due = True
            self._loop.call_soon(self._send)

    async def hold(self) -> bool:
        """Send none until `begin` or `resume`, and wait until none is under way; False: some still are."""
        self._held = True
        await self._wait_until_quiet()
        return not self._confirming

    async def finish(self) -> None:
        """Send all that are due, then do as `hold` does."""
        await self._wait_until_quiet()
        await self.hold()

    async def _wait_until_quiet(self) -> None:
        """Wait until no acknowledgement is under way, at most `_QUIET_TIMEOUT`."""
        if self._due or self._confirming:
            self._quiet = self._loop.create_future()
            await asyncio.wait((self._quiet,), timeout=_QUIET_TIMEOUT)
            self._quiet = None

    def _send(self) -> None:
        self._due = False
        consumer = self._consumer
        if self._confirming:
            return
        can_send = consumer is not None and consumer.open and not self._held
        acks = self._unacked.acks(ACKS_MAX) if can_send else []
        if acks and consumer is not None:
            self._confirming = True
            consumer.ack(acks, partial(self._on_confirmed, consumer))
        elif self._quiet is not None and not self._quiet.done():
            self._quiet.set_result(None)

    def _on_confirmed(self, consumer: Consumer) -> None:
        if consumer is self._consumer:
            self._confirming = False
            for waiter in self._unacked.confirmed():
                waiter.done()
            self._on_removed()
            self._send()
