"""The delay levels in RabbitMQ: declared when a delay first needs them."""

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Final, NamedTuple

from adapters.amqp.channel import Channel
from adapters.amqp.link import Link
from adapters.rabbitmq.delay.levels import Declaration, Exchange, Queue, levels
from adapters.rabbitmq.topology.declarations import Step, play
from adapters.rabbitmq.topology.names import Own

_SETTLED: Final = 1.5
"""Seconds before new queues are trusted with a message. RabbitMQ (3.10.8) writes down which quorum queues it has only
after a moment: one that was made up to 0.7 s before `kill -9` is there afterwards, but dead, with all it held."""
_EXIT_AGE: Final = 60.0
"""Seconds after which an exit is declared again: when an exchange is deleted, what leads to it goes, too."""


class Exit(NamedTuple):
    """What leads from the lowest level to where messages go."""

    name: str
    declarations: tuple[Declaration, ...]


class Declarer:
    """Remembers what is declared; forgets it with the connection, because the broker may have lost it all."""

    def __init__(self, own: Own, link: Link) -> None:
        self.own = own
        self._link = link
        self._channel: Channel | None = None
        self._levels = False
        """Whether all levels are there."""
        self._exits: dict[str, float] = {}
        """When each is to be declared again, in seconds of the monotonic clock."""
        link.on_lost.append(lambda _reason: self.forget())

    def declared(self, exit_: Exit) -> bool:
        """Whether everything is there that a message needs."""
        return self._levels and self._exits.get(exit_.name, 0.0) > monotonic()

    async def declare(self, exit_: Exit) -> None:
        """Declare what is missing of that.

        Raises `BackendUnavailable`, `Refused`, or `DestinationUnknown` if there is nothing to lead to.
        """
        if not self._levels:
            await self._declare_levels()
            self._levels = True
        if not self.declared(exit_):
            await self._declare(exit_.declarations)
            self._exits[exit_.name] = monotonic() + _EXIT_AGE

    async def lost(self) -> int | None:
        """Count the due messages that had no destination. None: nothing was delayed on this connection yet.

        Raises `BackendUnavailable`, or `DestinationUnknown` if the levels were deleted: they are declared anew then.
        """
        if not self._levels:
            return None
        try:
            answer = await (await self._open()).ask(self.own.lost, "queue_declare", queue=self.own.lost, passive=True)
        except BaseException:
            self.forget()
            raise
        return int(answer.message_count)

    def forget(self, exit_: Exit | None = None) -> None:
        """Declare this exit anew on its next use, or without one everything."""
        if exit_ is not None:
            self._exits.pop(exit_.name, None)
            return
        self._levels = False
        self._exits.clear()

    async def close(self) -> None:
        """Close the channel. Idempotent."""
        if self._channel is not None:
            await self._channel.close()

    async def _declare_levels(self) -> None:
        """Declare all of it, also where it is there: a part of it may have been deleted."""
        *others, last, binding = levels(self.own)
        there = await (await self._open()).has(last.name)
        await self._declare(others)
        if not there:
            await asyncio.sleep(_SETTLED)
        await self._declare((last, binding))

    async def _declare(self, declarations: Sequence[Declaration]) -> None:
        await play(await self._open(), self.own.deliver, [step(each) for each in declarations])

    async def _open(self) -> Channel:
        if self._channel is None or not self._channel.open:
            self._channel = await self._link.channel()
        return self._channel


def step(declaration: Declaration) -> Step:
    """Return the request that declares it."""
    if isinstance(declaration, Queue):
        arguments = dict(declaration.arguments)
        return Step("queue_declare", {"queue": declaration.name, "durable": True, "arguments": arguments})
    if isinstance(declaration, Exchange):
        arguments = dict(declaration.arguments)
        kind = {"exchange_type": "topic", "durable": True}
        return Step("exchange_declare", {"exchange": declaration.name, **kind, "arguments": arguments})
    where = {"source": declaration.source, "routing_key": declaration.key}
    if declaration.to_exchange:
        return Step("exchange_bind", {"destination": declaration.target, **where})
    return Step(
        "queue_bind", {"queue": declaration.target, "exchange": declaration.source, "routing_key": declaration.key}
    )
