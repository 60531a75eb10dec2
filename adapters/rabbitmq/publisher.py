"""Everything that the bridge publishes, on one connection.

One channel carries nearly all of it, with many messages unconfirmed at a time. What is not known to work goes over
channels of its own first (`Trials`), so that a mistake about one exchange does not touch the others.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from adapters.base import Stored
from adapters.rabbitmq.confirms import Confirms, Watch
from adapters.rabbitmq.link import Link
from adapters.rabbitmq.options import REQUEST_TIMEOUT, Options
from adapters.rabbitmq.outcomes import (
    again,
    blocked,
    closing,
    is_gone,
    is_of_exchange,
    limit_of,
    of_connection,
    of_publish,
    too_large,
)
from adapters.rabbitmq.record import Outgoing
from adapters.rabbitmq.sent import Sent
from adapters.rabbitmq.trials import Trials
from bridge.errors import BackendUnavailable, BridgeError

_FLUSH: Final = REQUEST_TIMEOUT / 1000
"""Seconds in which what was accepted gets its outcome when the bridge stops; the engine has waited for most before."""
_NOWHERE: Final = Stored(None, None)


class Publisher:
    """Sends, and says what became of each message."""

    def __init__(self, options: Options, link: Link) -> None:
        self._prefix = options.prefix
        self._link = link
        self._main: Confirms | None = None
        self._opening: asyncio.Task[None] | None = None
        self._queued: deque[Sent] = deque()
        """What waits until the channel is open again."""
        self._proven: set[str] = set()
        """Exchanges that have taken a message on this connection."""
        self._limit: int | None = None
        """Bytes of a message, once the broker has closed a channel over one that was larger."""
        self._trials = Trials(partial(self._new, Watch(self._forget, self._proven.discard)), self._passed)
        self._closing = False
        self.gone: Callable[[str], None] = lambda _exchange: None
        """Told the name of an exchange that has turned out not to be there."""
        link.came.append(self._begin)
        link.gone.append(self._lost)

    async def start(self) -> None:
        """Be ready to send. Raises `BackendUnavailable`."""
        self._begin()
        opening = self._opening
        if opening is not None:
            await asyncio.wait((opening,))
        if self._main is None:
            raise self._refusal() or BackendUnavailable("RabbitMQ has not opened a channel.")

    def send(
        self, outgoing: Outgoing, *, confirmed: bool = True, mandatory: bool = True, stored: Stored = _NOWHERE
    ) -> asyncio.Future[Stored]:
        """Store a message; `stored` is what the future's result will be.

        The future raises as `Adapter.publish` says. With `confirmed` off it is done at once, if not too many are under
        way. What was returned because no queue took it: `is_unroutable`; because there is no such exchange: `is_gone`.
        """
        sent = Sent(outgoing, mandatory=mandatory, stored=stored)
        if self._closing:
            sent.fail(closing())
        elif self._pass(sent) and not confirmed and self._main is not None and not self._main.crowded:
            sent.done.add_done_callback(_retrieved)
            done: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
            done.set_result(stored)
            return done
        return sent.done

    async def close(self) -> None:
        """Wait for the outcome of what was accepted, for a while, then let go of the channels. Idempotent."""
        self._closing = True
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH):
                if self._opening is not None:
                    await asyncio.wait((self._opening,))
                await self._trials.settled()
                if self._main is not None:
                    await self._main.settled()
        await self._trials.close()
        self._fail(closing())
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
            main = await self._new(Watch(self._main_closed, self._proven.discard))
            if main.ended is not None:
                raise of_connection(main.ended)
        except BridgeError as error:
            self._fail(error)
        else:
            self._main = main
            queued, self._queued = self._queued, deque()
            self._pass_on(queued)
        finally:
            self._opening = None

    async def _new(self, watch: Watch) -> Confirms:
        channel = await self._link.channel()
        confirms = Confirms(channel, watch, self._prefix)
        await confirms.start()
        return confirms

    def _passed(self, exchange: str, waiting: deque[Sent]) -> None:
        self._proven.add(exchange)
        self._pass_on(waiting)

    def _pass_on(self, waiting: deque[Sent]) -> None:
        """Send what has waited, in order, as if it came just now."""
        for sent in waiting:
            self._pass(sent)

    def _pass(self, sent: Sent) -> bool:
        """Send a message, or have it wait its turn; return whether it went over the channel that all share."""
        refusal = self._refusal()
        if refusal is not None:
            sent.fail(refusal)
        elif self._limit is not None and sent.size > self._limit:
            sent.fail(too_large(sent.what))
        elif sent.outgoing.exchange not in self._proven:
            self._trials.send(sent)
        elif self._main is None:
            self._queued.append(sent)
            self._begin()
        else:
            self._main.send(sent)
            return True
        return False

    def _main_closed(self, over: Sent | None, reason: BaseException) -> None:
        self._main = None
        self._forget(over, reason)
        if self._link.up:
            self._begin()

    def _forget(self, over: Sent | None, reason: BaseException) -> None:
        """Look at the message that a channel was closed over, as far as that is known."""
        self._limit = limit_of(reason) or self._limit
        if over is not None and is_of_exchange(reason):
            self._proven.discard(over.outgoing.exchange)
            if is_gone(of_publish(reason, over.what)):
                self.gone(over.outgoing.exchange)

    def _lost(self, failure: BackendUnavailable) -> None:
        self._proven.clear()
        self._limit = None
        self._fail(failure)

    def _fail(self, error: BridgeError) -> None:
        queued, self._queued = self._queued, deque()
        for sent in queued:
            sent.fail(again(error))


def _retrieved(done: "asyncio.Future[Stored]") -> None:
    if not done.cancelled():
        done.exception()
