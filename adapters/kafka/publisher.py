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
from adapters.kafka.record import Outgoing
from bridge.errors import BackendUnavailable, BridgeError, DestinationUnknown
from bridge.message import Message

_AT_MOST_ONCE: Final = 1
_FLUSH: Final = 10_000
"""Milliseconds in which what was accepted is sent when the bridge stops."""


class Publisher:
    """Sends every record of the bridge."""

    def __init__(self, options: Options, make: Callable[[Options, Acks], Producer] = drivers.producer) -> None:
        self._create = options.create
        self._lines = {acks: Line(partial(make, options, acks)) for acks in Acks}
        self.gone: Callable[[str], None] = lambda _topic: None
        """Told the name of a topic that has turned out not to be there."""

    async def start(self) -> None:
        """Connect. Raises `BackendUnavailable` or `CannotStart`."""
        await self._lines[Acks.ALL].start()

    def publish(self, message: Message, record: Outgoing) -> asyncio.Future[Stored]:
        """Store a message as its `durability` and `qos` ask. The future raises as `Adapter.publish` says."""
        sent = self._lines[_acks_of(message)].send(record)
        future: asyncio.Future[Stored] = sent.get_loop().create_future()
        sent.add_done_callback(partial(self._stored, future, record))
        return future

    def send(self, record: Outgoing, acks: Acks) -> asyncio.Future[int | None]:
        """Store a record; the future holds its offset. It raises as `Adapter.publish` says."""
        sent = self._lines[acks].send(record)
        future: asyncio.Future[int | None] = sent.get_loop().create_future()
        sent.add_done_callback(partial(self._sent, future, record))
        return future

    async def partitions(self, topic: str) -> int | None:
        """Number of partitions, asked of the cluster; None: there is no such topic."""
        return await self._lines[Acks.ALL].running().partitions(topic)

    async def close(self) -> None:
        """Send what is accepted, let go of every connection. Idempotent."""
        await asyncio.gather(*(line.close(_FLUSH) for line in self._lines.values()))

    def _stored(self, future: asyncio.Future[Stored], record: Outgoing, sent: asyncio.Future[int | None]) -> None:
        error = sent.exception()
        if future.done():
            return
        if error is None:
            future.set_result(Stored(record.partition, sent.result()))
        else:
            future.set_exception(self._meant(error, record.topic))

    def _sent(self, future: asyncio.Future[int | None], record: Outgoing, sent: asyncio.Future[int | None]) -> None:
        error = sent.exception()
        if future.done():
            return
        if error is None:
            future.set_result(sent.result())
        else:
            future.set_exception(self._meant(error, record.topic))

    def _meant(self, error: BaseException, topic: str) -> BaseException:
        """A topic that has gone is made anew on its next use, where that is allowed."""
        if not isinstance(error, DestinationUnknown):
            return error
        self.gone(topic)
        if not self._create:
            return error
        said: BridgeError = BackendUnavailable(f"{topic}: the topic was deleted a moment ago.")
        said.__cause__ = error
        return said


def _acks_of(message: Message) -> Acks:
    if message.qos == _AT_MOST_ONCE:
        return Acks.NONE
    return Acks.LEADER if message.durability == 0 else Acks.ALL
