"""First messages to exchanges and queues, each on a channel where no other message is.

Whether an exchange is there, and whether the bridge may write to it, is answered by closing the channel. And a quorum
queue that has no leader stops the channel that writes to it, for 65 s until a nack (3.10.8), with all that is
written behind it. So only what is known to work goes over the channel that all share.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from pika.exceptions import ChannelClosedByBroker

from adapters.amqp.errors import closing
from adapters.rabbitmq.publish.confirms import Confirms
from adapters.rabbitmq.publish.outcomes import again, is_of_exchange, of_publish, untried
from adapters.rabbitmq.publish.pending import PendingPublish
from bridge.errors import BackendUnavailable, BridgeError

_AT_ONCE: Final = 100
"""Channels at a time; a broker allows 2,047 of them on a connection unless configured otherwise."""


Route = tuple[str, str]
"""See `PendingPublish.route`."""


class Probes:
    """Tries routes; what is published to one in the meantime waits, so that its order stays."""

    def __init__(
        self,
        new: Callable[[], Awaitable[Confirms]],
        passed: Callable[[Route, deque[PendingPublish]], None],
        unsent: Callable[[deque[PendingPublish], BridgeError], None],
    ) -> None:
        self._new = new
        self._passed = passed
        """Called with a route that has taken a message, and what waits for it, to be sent on at once."""
        self._unsent = unsent
        """Called with the messages that were not sent because the connection was lost or is blocked, in order."""
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._waiting: dict[Route, deque[PendingPublish]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: Confirms | None = None

    def send(self, sent: PendingPublish) -> None:
        """Send the first message to its route, or keep it until the first has its outcome."""
        if sent.done.done():  # it has waited too long
            return
        waiting = self._waiting.get(sent.route)
        if waiting is not None:
            waiting.append(sent)
            return
        self._waiting[sent.route] = deque()
        task = asyncio.get_running_loop().create_task(self._try(sent))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settled(self) -> None:
        """Wait until what is being tried has its outcome."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Close the channels."""
        for task in self._tasks:
            task.cancel()
        await self.settled()
        if self._idle is not None:
            self._idle.close()

    async def _try(self, first: PendingPublish) -> None:
        error: BridgeError | None = None
        passed = outage = False
        try:
            async with self._slots:
                channel = await self._channel()
                passed, error = await self._outcome(channel, first)
                outage = channel.ended is not None and not isinstance(channel.ended, ChannelClosedByBroker)
        except BridgeError as failed:
            error = failed
            outage = isinstance(failed, BackendUnavailable)
        except asyncio.CancelledError:
            error = closing()
        waiting = self._waiting.pop(first.route)
        if passed:
            self._passed(first.route, waiting)
            return
        if error is not None and not first.written:
            waiting.appendleft(first)
        if error is not None and outage:
            self._unsent(waiting, error)
            return
        for sent in waiting:
            if error is None:  # the fault was the first message's own
                self.send(sent)
            else:
                sent.fail(again(error))

    async def _outcome(self, channel: Confirms, first: PendingPublish) -> tuple[bool, BridgeError | None]:
        """Send it and wait; return whether its exchange has taken a message, or why it takes no other either."""
        if first.done.done():  # it has waited too long
            self._keep(channel)
            return False, None
        nacks = channel.nacks
        channel.send(first)
        passed = bool(channel.unconfirmed)  # else it could not be written
        await channel.settled()
        if channel.ended is not None:
            return False, _same_for_others(channel.ended, first.what)
        self._keep(channel)
        return (passed, None) if channel.nacks == nacks else (False, untried(first.what))

    def _keep(self, channel: Confirms) -> None:
        """Keep one channel for the next trial."""
        if self._idle is None:
            self._idle = channel
        else:
            channel.close()

    async def _channel(self) -> Confirms:
        channel, self._idle = self._idle, None
        if channel is None or not channel.open:
            channel = await self._new()
        return channel


def _same_for_others(ended: BaseException, what: str) -> BridgeError | None:
    """Why no other message can be sent either after the channel ended over one."""
    if isinstance(ended, ChannelClosedByBroker) and not is_of_exchange(ended):
        return None
    return of_publish(ended, what)
