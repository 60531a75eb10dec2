"""Everything that the bridge publishes, on one connection.

One channel carries nearly all of it, with many messages unconfirmed at a time. What is not known to work goes over
separate channels first (`Probes`), so that a mistake about one exchange does not touch the others. During an outage
or an alarm, clients' messages wait (`Unsent`) and are sent in order when it is over.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

from adapters.amqp.errors import blocked, closing, of_connection
from adapters.amqp.link import Link
from adapters.amqp.messages import Outgoing
from adapters.amqp.settings import REQUEST_TIMEOUT
from adapters.base import Stored
from adapters.rabbitmq.options import Options
from adapters.rabbitmq.publish.confirms import Confirms, Watch
from adapters.rabbitmq.publish.outcomes import (
    again,
    is_missing,
    is_of_exchange,
    limit_of,
    not_taken,
    of_publish,
    too_large,
)
from adapters.rabbitmq.publish.pending import PendingPublish, Unsent
from adapters.rabbitmq.publish.probes import Probes, Route
from bridge.errors import BackendUnavailable, BridgeError

_FLUSH: Final = REQUEST_TIMEOUT / 1000
"""Seconds in which what was accepted gets its outcome when the bridge stops; the engine has waited for most before."""
_RETRY: Final = 0.5
"""Seconds until another attempt to open the channel on a connection that stays."""
_NOWHERE: Final = Stored(None, None)


class Publisher:
    """Sends, and says what became of each message."""

    def __init__(self, options: Options, link: Link) -> None:
        self._prefix = options.prefix
        self._link = link
        self._main: Confirms | None = None
        self._opening: asyncio.Task[None] | None = None
        self._unsent = Unsent()
        self._proven: set[Route] = set()
        """Exchanges, and queues behind the default exchange, that have taken a message on this connection."""
        self._limit: int | None = None
        """Bytes of a message, once the broker has closed a channel over one that was larger."""
        watch = Watch(self._forget, self._nacked)
        self._trials = Probes(partial(self._new, watch), self._passed, self._put_back)
        self._closing = False
        self.on_exchange_missing: Callable[[str], None] = lambda _exchange: None
        """Called with the name of an exchange that has turned out not to be there."""
        link.on_connected.append(self._begin)
        link.on_lost.append(self._lost)
        link.on_unblocked.append(self._unblocked)

    async def start(self) -> None:
        """Be ready to send. Raises `BackendUnavailable`."""
        self._begin()
        opening = self._opening
        if opening is not None:
            await asyncio.wait((opening,))
        if self._main is None:
            raise self._refusal() or BackendUnavailable("RabbitMQ has not opened a channel.")

    def send(
        self,
        outgoing: Outgoing,
        *,
        confirmed: bool = True,
        mandatory: bool = True,
        stored: Stored = _NOWHERE,
        deadline: float | None = None,
    ) -> asyncio.Future[Stored]:
        """Store a message; `stored` is what the future's result will be.

        During an outage it waits until `deadline` (seconds of the loop's clock), then it is not stored; None: it fails
        at once.

        The future raises as `Adapter.publish` says. With `confirmed` off it is done at once, if not too many are under
        way. What was returned because no queue took it: `is_unroutable`; because there is no exchange: `is_missing`.
        """
        sent = PendingPublish(outgoing, mandatory=mandatory, stored=stored, waits=deadline is not None)
        if self._closing:
            sent.fail(closing())
        elif self._pass(sent) and not confirmed and self._main is not None and not self._main.crowded:
            sent.done.add_done_callback(_retrieved)
            done: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
            done.set_result(stored)
            return done
        if deadline is not None and not sent.written and not sent.done.done():
            timer = asyncio.get_running_loop().call_at(deadline, self._expire, sent)
            sent.done.add_done_callback(lambda _done: timer.cancel())
        return sent.done

    async def close(self) -> None:
        """Wait for the outcome of what was accepted, for a while, then close the channels. Idempotent."""
        self._closing = True
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH):
                if self._opening is not None:
                    await asyncio.wait((self._opening,))
                await self._trials.settled()
                if self._main is not None:
                    await self._main.settled()
        await self._trials.close()
        self._unsent.fail(closing())
        if self._main is not None:
            self._main.close()

    def _refusal(self) -> BridgeError | None:
        """Why nothing can be sent now."""
        if not self._link.up:
            return again(self._link.failure)
        return None if self._link.blocked is None else blocked(self._link.blocked)

    def _begin(self) -> None:
        """Open the channel, unless that is under way."""
        if self._main is None and self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        try:
            main = await self._new(Watch(self._main_closed, self._nacked))
            if main.ended is not None:
                raise of_connection(main.ended)
        except BridgeError as error:
            self._unsent.fail_impatient(error)
            asyncio.get_running_loop().call_later(_RETRY, self._begin_if_needed)
        else:
            self._main = main
            self._pass_on(self._unsent.take())
        finally:
            self._opening = None

    def _begin_if_needed(self) -> None:
        """Open the channel if messages wait for it and it can be opened."""
        if self._unsent and self._refusal() is None and not self._closing:
            self._begin()

    def _unblocked(self) -> None:
        """Send what has waited for the end of an alarm."""
        if self._main is None:
            self._begin_if_needed()
        else:
            self._pass_on(self._unsent.take())

    def _put_back(self, messages: deque[PendingPublish], error: BridgeError) -> None:
        """Have messages wait that could not be sent, in front of those that were accepted after them."""
        self._unsent.put_back(messages)
        if self._closing:
            self._unsent.fail(closing())
            return
        self._unsent.fail_impatient(error)
        if self._main is not None and self._refusal() is None:
            self._pass_on(self._unsent.take())
        else:
            self._begin_if_needed()

    def _expire(self, sent: PendingPublish) -> None:
        """Fail a message that has waited until its deadline: it was not sent."""
        if not sent.written:
            self._unsent.drop(sent)
            sent.fail(self._refusal() or not_taken(sent.what))
            sent.drop_body()

    async def _new(self, watch: Watch) -> Confirms:
        channel = await self._link.channel()
        confirms = Confirms(channel, watch, self._prefix)
        await confirms.start()
        return confirms

    def _nacked(self, sent: PendingPublish) -> None:
        self._proven.discard(sent.route)

    def _passed(self, route: Route, waiting: deque[PendingPublish]) -> None:
        self._proven.add(route)
        self._pass_on(waiting)

    def _pass_on(self, waiting: Iterable[PendingPublish]) -> None:
        """Send what has waited, in order, as if it came just now."""
        for sent in waiting:
            self._pass(sent)

    def _pass(self, sent: PendingPublish) -> bool:
        """Send a message, or have it wait its turn; return whether it went over the channel that all share."""
        refusal = self._refusal()
        if sent.done.done():  # it has waited too long
            return False
        if refusal is not None and not sent.waits:
            sent.fail(refusal)
        elif self._limit is not None and sent.size > self._limit:
            sent.fail(too_large(sent.what))
        elif refusal is not None:
            self._unsent.add(sent)
        elif self._main is None or self._unsent:
            self._unsent.add(sent)
            self._begin()
        elif sent.route not in self._proven:
            self._trials.send(sent)
        else:
            self._main.send(sent)
            return True
        return False

    def _main_closed(self, over: PendingPublish | None, reason: BaseException) -> None:
        self._main = None
        self._forget(over, reason)
        if self._link.up:
            self._begin()

    def _forget(self, over: PendingPublish | None, reason: BaseException) -> None:
        """Look at the message that a channel was closed over, as far as that is known."""
        self._limit = limit_of(reason) or self._limit
        if over is not None and is_of_exchange(reason):
            self._proven.discard(over.route)
            if is_missing(of_publish(reason, over.what)):
                self.on_exchange_missing(over.outgoing.exchange)

    def _lost(self, failure: BackendUnavailable) -> None:
        self._proven.clear()
        self._limit = None
        self._unsent.fail_impatient(failure)


def _retrieved(done: "asyncio.Future[Stored]") -> None:
    if not done.cancelled():
        done.exception()
