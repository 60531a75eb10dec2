"""The ladder on the broker: made a storey at a time, when a delay first needs it."""

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Final, NamedTuple

from adapters.rabbitmq import ladder
from adapters.rabbitmq.channel import Channel
from adapters.rabbitmq.ladder import BASE, STOREYS, Declaration, Exchange, Queue
from adapters.rabbitmq.link import Link
from adapters.rabbitmq.names import Own
from adapters.rabbitmq.topology import Step, play

_REACH: Final = (0, *(BASE**digits.stop for digits in STOREYS))
"""By the number of storeys that stand: the shortest delay, ms, for which they are not enough."""
_SET: Final = 1.5
"""Seconds before new queues are trusted with a message. RabbitMQ (3.10.8) writes down which quorum queues it has only
after a moment: one that was made up to 0.7 s before `kill -9` is there afterwards, but dead, with all it held."""
_EXIT_AGE: Final = 60.0
"""Seconds after which an exit is declared again: with an exchange that somebody deletes, what leads to it goes, too."""


class Exit(NamedTuple):
    """What leads from the foot of the ladder to where messages go."""

    name: str
    declarations: tuple[Declaration, ...]


class Scaffold:
    """Knows what stands. A connection that is lost takes the knowledge with it: the broker may have lost it all."""

    def __init__(self, own: Own, link: Link) -> None:
        self.own = own
        self._link = link
        self._channel: Channel | None = None
        self._storeys = 0
        """How many stand."""
        self._exits: dict[str, float] = {}
        """When each is to be declared again, in seconds of the monotonic clock."""
        link.gone.append(lambda _reason: self.forget())

    def stands(self, wait: int, exit_: Exit) -> bool:
        """Whether everything is there that a message needs which waits so many ms."""
        return wait < _REACH[self._storeys] and self._exits.get(exit_.name, 0.0) > monotonic()

    async def build(self, wait: int, exit_: Exit) -> None:
        """Make what is missing of that.

        Raises `BackendUnavailable`, `Refused`, or `DestinationUnknown` if there is nothing to lead to.
        """
        while wait >= _REACH[self._storeys]:
            number = self._storeys
            await self._build_storey(number)
            self._storeys = number + 1
        if self._exits.get(exit_.name, 0.0) <= monotonic():
            await self._declare(exit_.declarations)
            self._exits[exit_.name] = monotonic() + _EXIT_AGE

    async def lost(self) -> int | None:
        """Count the messages that came down and found nobody. None: nothing was delayed on this connection yet.

        Raises `BackendUnavailable`, or `DestinationUnknown` if the ladder has been deleted: it is made anew then.
        """
        if not self._storeys:
            return None
        try:
            answer = await (await self._open()).ask(self.own.lost, "queue_declare", queue=self.own.lost, passive=True)
        except BaseException:
            self.forget()
            raise
        return int(answer.message_count)

    def forget(self, exit_: Exit | None = None) -> None:
        """Make it anew on its next use: this exit, or without one everything."""
        if exit_ is not None:
            self._exits.pop(exit_.name, None)
            return
        self._storeys = 0
        self._exits.clear()

    async def close(self) -> None:
        """Let go of the channel. Idempotent."""
        if self._channel is not None:
            await self._channel.close()

    async def _build_storey(self, number: int) -> None:
        """Declare all of it, also where it is there: somebody may have deleted a part of it."""
        *others, last, binding = ladder.storey(self.own, number)
        there = await (await self._open()).has(last.name)
        await self._declare(others)
        if not there:
            await asyncio.sleep(_SET)
        await self._declare((last, binding))

    async def _declare(self, declarations: Sequence[Declaration]) -> None:
        await play(await self._open(), self.own.deliver, [_step(each) for each in declarations])

    async def _open(self) -> Channel:
        if self._channel is None or not self._channel.open:
            self._channel = await self._link.channel()
        return self._channel


def _step(declaration: Declaration) -> Step:
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
