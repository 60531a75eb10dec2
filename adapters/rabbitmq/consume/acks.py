"""Sends the acknowledgements of one partition, and answers them once the broker has surely received them."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from adapters.rabbitmq.consume.consumer import FRAMES, Consumer
from adapters.rabbitmq.consume.unacked import Unacked
from bridge.errors import BridgeError

_FAREWELL: Final = 2.0
"""Seconds that letting go waits for acknowledgements under way."""


class Waiter:
    """One call that waits until the broker has forgotten some messages."""

    __slots__ = ("future", "left")

    def __init__(self, future: asyncio.Future[None]) -> None:
        self.future = future
        self.left = 0

    def done(self) -> None:
        """Note that one more is forgotten."""
        self.left -= 1
        if not self.left and not self.future.done():
            self.future.set_result(None)

    def fail(self, error: BridgeError) -> None:
        """Fail the future: the outcome is unknown, or nothing was acknowledged."""
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # whether a caller waits for it or not


class Acks:
    """One proof under way at a time: what is settled meanwhile goes with the next one."""

    def __init__(self, held: Unacked[Waiter], forgotten: Callable[[], None]) -> None:
        """`forgotten` is called each time the broker is known to have forgotten something."""
        self._held = held
        self._forgotten = forgotten
        self._loop = asyncio.get_running_loop()
        self._consumer: Consumer | None = None
        self._due = False
        """Whether acknowledgements are to be sent at the next turn of the loop."""
        self._proving = False
        self._quiet: asyncio.Future[None] | None = None

    def begin(self, consumer: Consumer | None) -> None:
        """Send them on another channel; None: on none for now. What was under way is not proven any more."""
        self._consumer = consumer
        self._proving = False
        self.settled()

    def settled(self) -> None:
        """Acknowledge what is settled, all of it once in a turn of the loop."""
        if not self._due and not self._proving:
            self._due = True
            self._loop.call_soon(self._send)

    async def quiet(self) -> None:
        """Wait, not for long, until no acknowledgement is under way."""
        if self._due or self._proving:
            self._quiet = self._loop.create_future()
            await asyncio.wait((self._quiet,), timeout=_FAREWELL)
            self._quiet = None

    def _send(self) -> None:
        self._due = False
        consumer = self._consumer
        if self._proving:
            return
        acks = self._held.acks(FRAMES) if consumer is not None and consumer.open else []
        if acks and consumer is not None:
            self._proving = True
            consumer.ack(acks, partial(self._proven, consumer))
        elif self._quiet is not None and not self._quiet.done():
            self._quiet.set_result(None)

    def _proven(self, consumer: Consumer) -> None:
        if consumer is self._consumer:
            self._proving = False
            for waiter in self._held.proven():
                waiter.done()
            self._forgotten()
            self._send()
