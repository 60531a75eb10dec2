"""How many messages lie in the queues of a subscription: asked of the broker while somebody wants to know it."""

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Final

from adapters.amqp.link import Link
from bridge.errors import BridgeError

EVERY: Final = 5.0
"""Seconds between two counts. One queue costs a round trip of 0.2 ms."""
_SHARE: Final = 20
"""A group of a thousand queues is counted at most a twentieth of the time."""
_WANTED: Final = 120.0
"""Seconds for which the count goes on after it was last read: two intervals of a slow scraper."""


class ReadyCount:
    """The latest count; it is not kept up while nobody reads it."""

    def __init__(self, link: Link, queues: Callable[[], Collection[str]]) -> None:
        self._link = link
        self._queues = queues
        self._latest: int | None = None
        self._read = 0.0
        self._counting: asyncio.Task[None] | None = None

    def latest(self) -> int | None:
        """Return the count, which is up to some seconds old; None: not known yet, or the broker does not tell."""
        self._read = time.monotonic()
        if self._counting is None:
            self._counting = asyncio.get_running_loop().create_task(self._count())
        return self._latest

    def stop(self) -> None:
        """Count no more."""
        if self._counting is not None:
            self._counting.cancel()

    async def _count(self) -> None:
        try:
            while time.monotonic() - self._read < _WANTED:
                begun = time.monotonic()
                try:
                    self._latest = await self._ask()
                except BridgeError:  # a queue is gone, or the connection
                    self._latest = None
                await asyncio.sleep(max(EVERY, _SHARE * (time.monotonic() - begun)))
        finally:
            self._latest = self._counting = None

    async def _ask(self) -> int:
        channel = await self._link.channel()  # its own: the broker closes it if a queue is not there
        try:
            return sum(
                [
                    int((await channel.ask(queue, "queue_declare", queue=queue, passive=True)).message_count)
                    for queue in self._queues()
                ]
            )
        finally:
            await channel.close()
