"""Who publishes: a producer for what must not be lost, and others for what was asked to be quicker."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from adapters.base import Stored
from adapters.kafka import drivers
from adapters.kafka.drivers.base import Acks, Producer
from adapters.kafka.line import Line
from adapters.kafka.options import Options
from adapters.kafka.outcomes import is_topic_gone
from adapters.kafka.record import Outgoing
from bridge.message import AT_MOST_ONCE, Message

_FLUSH: Final = 10_000
"""Milliseconds in which what was accepted is sent when the bridge stops; the engine has waited for most before."""


class Publisher:
    """Sends every record of the bridge."""

    def __init__(self, options: Options, make: Callable[[Options, Acks], Producer] = drivers.producer) -> None:
        self._lines = {acks: Line(partial(make, options, acks)) for acks in Acks}
        self.gone: Callable[[str], None] = lambda _topic: None
        """Told the name of a topic that has turned out not to be there."""

    async def start(self) -> None:
        """Connect. Raises `BackendUnavailable` or `CannotStart`."""
        await self._lines[Acks.ALL].start()

    def send(self, record: Outgoing, acks: Acks = Acks.ALL) -> asyncio.Future[Stored]:
        """Store a record. The future raises as `Adapter.publish` says."""
        sent = self._lines[acks].send(record)
        sent.add_done_callback(partial(self._look, record.topic))
        return sent

    async def partitions(self, topic: str) -> int | None:
        """Number of partitions, asked of the cluster; None: there is no such topic."""
        return await self._lines[Acks.ALL].running().partitions(topic)

    async def close(self) -> None:
        """Send what is accepted, let go of every connection. Idempotent."""
        await asyncio.gather(*(line.close(_FLUSH) for line in self._lines.values()))

    def _look(self, topic: str, sent: asyncio.Future[Stored]) -> None:
        if not sent.cancelled() and is_topic_gone(sent.exception()):
            self.gone(topic)


def acks_of(message: Message) -> Acks:
    """Return how many copies of a message its `durability` and `qos` ask for."""
    if message.qos == AT_MOST_ONCE:
        return Acks.NONE
    return Acks.LEADER if message.durability == 0 else Acks.ALL
