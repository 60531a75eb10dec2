"""Publishes messages on one connection, and reports the outcome of each.

Each exchange has its own channel, and so has each queue behind the default exchange. RabbitMQ closes the channel if an
exchange is missing or not permitted, and a quorum queue without a leader blocks the channel that writes to it, for 65 s
until a nack (3.10.8). So neither concerns messages to another destination.

The first message on a channel is sent alone: if the exchange is missing, those behind it were certainly not stored.
During an outage or an alarm, clients' messages wait, and are sent in order after it. Those that were sent before it and
not confirmed are sent again, first and in order, with a header by which consumers drop the second copy of a message.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from adapters.amqp.errors import blocked, closing, of_connection
from adapters.amqp.link import Link
from adapters.amqp.messages import Outgoing
from adapters.amqp.settings import REQUEST_TIMEOUT
from adapters.base import Stored
from adapters.rabbitmq.options import Options
from adapters.rabbitmq.publish.confirm_channel import (
    ConfirmChannel,
    PendingPublish,
    copy_of,
    is_missing,
    is_of_exchange,
    limit_of,
    not_taken,
    of_publish,
    too_large,
)
from bridge.errors import BackendUnavailable, BridgeError

_CHANNELS: Final = 256
"""Channels that are kept open, or half of what the broker allows: 2,047 unless configured otherwise."""
_AT_ONCE: Final = 100
"""First messages under way at a time, on all channels."""
_UNAWAITED_MAX: Final = 1_000
"""Messages under way for which no caller waits: memory is bounded."""
_FLUSH: Final = REQUEST_TIMEOUT / 1000
"""Seconds that closing waits for the outcomes of accepted messages; the engine has waited for most before."""
_RETRY: Final = 0.5
"""Seconds between attempts to open a channel on an open connection."""
_NOWHERE: Final = Stored(None, None)

Route = tuple[str, str]
"""An exchange; and the queue, for the default exchange."""


class RouteChannel:
    """The messages to one exchange or queue: those under way on its channel, and those not sent yet."""

    def __init__(self, publisher: "Publisher") -> None:
        self._publisher = publisher
        self.waiting: dict[PendingPublish, None] = {}
        """Not sent yet, in order."""
        self.channel: ConfirmChannel | None = None
        self._verified = False
        """Whether the broker has confirmed a message on the channel."""
        self._verifying: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """Whether the channel can be used for another route."""
        under_way = self.channel is not None and self.channel.unconfirmed
        return not (under_way or self.waiting or self._verifying)

    def send(self, sent: PendingPublish) -> bool:
        """Send a message, or append it to those that wait; return whether it was sent."""
        if self._verified and not self.waiting and self._publisher.refusal() is None:
            self._write(sent)
            return True
        self.waiting[sent] = None
        self.resume()
        return False

    def resume(self) -> None:
        """Send the waiting messages, unless the first one is under way or the broker accepts none."""
        if not self.waiting or self._verifying is not None or self._publisher.refusal() is not None:
            return
        waiting, self.waiting = self.waiting, {}
        for sent in waiting:
            if self._verified:
                self._write(sent)
            else:
                self.waiting[sent] = None
        if self.waiting:
            self._verifying = asyncio.get_running_loop().create_task(self._verify())

    def fail(self, error: BridgeError, *, patient: bool = True) -> None:
        """Fail the waiting messages; without `patient` only those that do not wait during an outage."""
        for sent in list(self.waiting):
            if patient or not sent.waits:
                del self.waiting[sent]
                sent.fail(copy_of(error))

    def send_again(self, unconfirmed: list[PendingPublish]) -> None:
        """Put messages that were sent before the connection was lost before those that wait."""
        for sent in unconfirmed:
            sent.again()
        self.waiting = dict.fromkeys(unconfirmed) | self.waiting
        for sent in unconfirmed:
            self._publisher.expire_later(self, sent)

    async def settled(self) -> None:
        """Wait until all accepted messages have their outcome."""
        while self._verifying is not None:
            await asyncio.wait((self._verifying,))
        if self.channel is not None:
            await self.channel.settled()

    async def close(self) -> None:
        """Close the channel, and fail the waiting messages."""
        if self._verifying is not None:
            self._verifying.cancel()
            await asyncio.wait((self._verifying,))
        self.fail(closing())
        if self.channel is not None:
            self.channel.close()

    def _nacked(self, sent: PendingPublish) -> None:
        """Fail the messages that wait behind a refused one: they were not sent."""
        self._verified = False
        self.fail(BackendUnavailable(f"{sent.target}: a queue is full or has failed."))

    def _closed(self, over: PendingPublish | None, reason: BaseException) -> None:
        """Fail the waiting messages if the channel was closed because of the exchange."""
        self.channel, self._verified = None, False
        if over is not None and is_of_exchange(reason):
            self.fail(of_publish(reason, over.target))
        self._publisher.learn(over, reason)

    async def _verify(self) -> None:
        try:
            while self.waiting and not self._verified and self._publisher.refusal() is None:
                try:
                    async with self._publisher.slots:
                        await self._try_first()
                except BridgeError as error:
                    self.fail(error, patient=False)
                    if self._publisher.refusal() is None:
                        await asyncio.sleep(_RETRY)
        finally:
            self._verifying = None
        self.resume()

    async def _try_first(self) -> None:
        """Send the first message alone: `_verified` says whether it was confirmed. Raises `BackendUnavailable`."""
        channel = self.channel
        if channel is None:
            channel = await self._publisher.channel()
            self.channel, channel.on_closed, channel.on_nacked = channel, self._closed, self._nacked
            channel.on_unconfirmed = self.send_again
        await channel.settled()  # messages that were sent before a nack
        if channel.ended is not None or not self.waiting or self._publisher.refusal() is not None:
            return
        nacks, first = channel.nacks, next(iter(self.waiting))
        del self.waiting[first]
        self._write(first)
        written = bool(channel.unconfirmed)  # otherwise it could not be encoded, or its deadline is over
        await channel.settled()
        self._verified = written and channel.ended is None and channel.nacks == nacks

    def _write(self, sent: PendingPublish) -> None:
        limit = self._publisher.limit
        if limit is not None and sent.size > limit:
            sent.fail(too_large(sent.target))
        elif self.channel is not None and not sent.done.done():
            self.channel.send(sent)


class Publisher:
    """Publishes messages, each on the channel of its exchange or queue."""

    def __init__(self, options: Options, link: Link) -> None:
        self._prefix = options.prefix
        self._link = link
        self._routes: dict[Route, RouteChannel] = {}
        """The least recently used is the first."""
        self.slots = asyncio.Semaphore(_AT_ONCE)
        """For first messages."""
        self.limit: int | None = None
        """The broker's limit in bytes, once it has closed a channel because of a larger message."""
        self._unawaited = 0
        """Messages under way for which no caller waits."""
        self._closing = False
        self.on_exchange_missing: Callable[[str], None] = lambda _exchange: None
        """Called with the name of an exchange that is missing."""
        link.on_connected.append(self._resume)
        link.on_lost.append(self._lost)
        link.on_unblocked.append(self._resume)

    def send(
        self,
        outgoing: Outgoing,
        *,
        confirmed: bool = True,
        stored: Stored = _NOWHERE,
        deadline: float | None = None,
        resend: bool = False,
    ) -> asyncio.Future[Stored]:
        """Store a message; `stored` is the result of the future.

        During an outage it waits until `deadline` (seconds of the loop's clock), then it is not stored; None: it fails
        at once. With `resend` it is sent again if the connection is lost before its confirm; otherwise its outcome is
        unknown then.

        The future raises as `Adapter.publish` says. Without `confirmed` it is done at once, if not too many are under
        way. `is_unroutable` and `is_missing` recognize the errors of a missing queue and a missing exchange.
        """
        sent = PendingPublish(outgoing, stored=stored, deadline=deadline, resend=resend)
        refusal = closing() if self._closing else None if sent.waits else self.refusal()
        if refusal is not None:
            sent.fail(refusal)
            return sent.done
        route = (outgoing.exchange, "") if outgoing.exchange else ("", outgoing.routing_key)
        channel = self._routes.pop(route) if route in self._routes else RouteChannel(self)
        self._routes[route] = channel
        if channel.send(sent):
            if not (confirmed or sent.done.done() or self._link.congested) and self._unawaited < _UNAWAITED_MAX:
                self._unawaited += 1
                sent.done.add_done_callback(self._awaited)
                done: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
                done.set_result(stored)
                return done
        else:
            self.expire_later(channel, sent)
        return sent.done

    async def close(self) -> None:
        """Wait for the outcomes of accepted messages, at most `_FLUSH`, then close the channels. Idempotent."""
        self._closing = True
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH):
                for channel in list(self._routes.values()):
                    await channel.settled()
        for channel in list(self._routes.values()):
            await channel.close()

    # Called by `RouteChannel`:

    def refusal(self) -> BridgeError | None:
        """Return why no message can be sent now; None: it can."""
        if not self._link.up:
            return copy_of(self._link.failure)
        return None if self._link.blocked is None else blocked(self._link.blocked)

    async def channel(self) -> ConfirmChannel:
        """Return a channel: with many open, that of the route used least recently. Raises `BackendUnavailable`."""
        while len(self._routes) > min(_CHANNELS, self._link.channel_max // 2):
            idle = next((route for route, channel in self._routes.items() if channel.idle), None)
            if idle is None:
                break
            if (free := self._routes.pop(idle).channel) is not None:
                return free
        opened = ConfirmChannel(await self._link.channel(), self._prefix)
        await opened.start()
        if opened.ended is not None:
            raise of_connection(opened.ended)
        return opened

    def learn(self, over: PendingPublish | None, reason: BaseException) -> None:
        """Remember the limit or the missing exchange because of which a channel was closed."""
        self.limit = limit_of(reason) or self.limit
        if over is not None and is_missing(of_publish(reason, over.target)):
            self.on_exchange_missing(over.outgoing.exchange)

    def expire_later(self, channel: RouteChannel, sent: PendingPublish) -> None:
        """Fail a message at its deadline if it was not sent by then."""
        if sent.deadline is not None and not sent.done.done():
            timer = asyncio.get_running_loop().call_at(sent.deadline, self._expire, channel, sent)
            sent.done.add_done_callback(lambda _done: timer.cancel())

    def _awaited(self, done: "asyncio.Future[Stored]") -> None:
        self._unawaited -= 1
        if not done.cancelled():
            done.exception()

    def _expire(self, channel: RouteChannel, sent: PendingPublish) -> None:
        """Fail a message at its deadline, if it was not sent."""
        if not sent.written:
            channel.waiting.pop(sent, None)
            sent.fail(self.refusal() or not_taken(sent.target))
            sent.drop_body()

    def _resume(self) -> None:
        """Send the messages that waited for the connection, or for the end of an alarm."""
        for channel in self._routes.values():
            channel.resume()

    def _lost(self, failure: BackendUnavailable) -> None:
        self.limit = None
        for channel in self._routes.values():
            channel.fail(failure, patient=False)
