"""Which destinations there are, how many partitions they have, and where their messages go; made on first use."""

import asyncio
from collections.abc import Mapping
from typing import Final

from adapters.rabbitmq import names, topology
from adapters.rabbitmq.book import Book
from adapters.rabbitmq.link import Link
from adapters.rabbitmq.options import Existing, Options
from adapters.rabbitmq.topology import Layout, Step, play
from bridge.errors import BridgeError, DestinationInvalid, DestinationUnknown
from bridge.message import Message

_ENDINGS: Final = ", ".join(f"…{ending}" for ending in names.RESERVED)


class Destinations:
    """Many who ask for the same unknown destination share one question, and one set of declarations.

    What is known is forgotten with the connection, and when an exchange turns out to be gone: then everything is
    declared once more, which is harmless where it is there.
    """

    def __init__(self, options: Options, consuming: Link, book: Book) -> None:
        self._options = options
        self._link = consuming
        self._book = book
        self._foreign: Mapping[str, Existing] = {
            name: existing
            for name, existing in options.destinations.items()
            if existing.exchange is not None or existing.queue is not None
        }
        """Those whose exchange or queue is none of the bridge's."""
        self._known: dict[str, int] = {}
        self._asking: dict[str, asyncio.Task[int]] = {}
        consuming.came.append(self._known.clear)

    async def partitions(self, destination: str) -> int:
        """Number of partitions, creating the destination on first use.

        Raises `DestinationUnknown`, `DestinationInvalid`, `Refused`, `BackendUnavailable` or `OutcomeUnknown`.
        """
        known = self._known.get(destination)
        if known is not None:
            return known
        asking = self._asking.get(destination)
        if asking is None:
            asking = self._asking[destination] = asyncio.create_task(self._ask(destination))
            asking.add_done_callback(lambda task: self._asked(destination, task))
        return await asyncio.shield(asking)

    def forget(self, exchange: str) -> None:
        """Declare it anew on the next use: the exchange has turned out not to be there."""
        self._known.pop(exchange, None)
        for name, existing in self._foreign.items():
            if exchange in {existing.exchange, existing.queue}:
                self._known.pop(name, None)

    def existing(self, destination: str) -> Existing | None:
        """Return what the destination has that is none of the bridge's; None: an exchange of its own."""
        return self._foreign.get(destination)

    def route(self, message: Message) -> tuple[str, str]:
        """Return the exchange and the routing key for a message."""
        if (existing := self._foreign.get(message.destination)) is None:
            return message.destination, names.routing_key(message.partition or 0)
        if existing.exchange is None:
            return "", existing.queue or ""
        return existing.exchange, existing.routing_key or ""

    def exchange(self, destination: str) -> str:
        """Return the exchange that its messages are published to; empty where they go straight to a queue."""
        existing = self._foreign.get(destination)
        return destination if existing is None else existing.exchange or ""

    def log_bytes(self, destination: str) -> int:
        """Return how large its log may grow; 0: it keeps none. The settings go before what the book says."""
        said = self._options.destinations.get(destination, Existing())
        if said.queue is not None or said.log is False:
            return 0
        layout = self._book.layout(destination)
        entered = layout.log_bytes if layout is not None else self._options.log_bytes * self._options.log
        return self._options.log_bytes if said.log and not entered else entered

    def declarations(self, destination: str) -> list[Step]:
        """Return what must be there of a destination: the bridge's own is declared, if it may, the rest looked for."""
        existing = self._foreign.get(destination)
        if existing is None:
            if not self._options.create:
                return topology.created(destination)
            return topology.destination(destination, self.log_bytes(destination))
        steps = topology.looked_for(existing)
        if existing.exchange is not None:
            steps += topology.log(destination, topology.tap(existing), self.log_bytes(destination))
        return steps

    async def close(self) -> None:
        """Stop asking."""
        for task in list(self._asking.values()):
            task.cancel()
        if self._asking:
            await asyncio.wait(self._asking.values())

    async def _ask(self, destination: str) -> int:
        """Have the book say what it is, then declare it."""
        if destination in self._foreign:
            await self._play(destination, self.declarations(destination))
            return 1
        if destination.startswith(self._options.prefix) or destination.endswith(names.RESERVED):
            raise DestinationInvalid(f"{destination}: {self._options.prefix}…, {_ENDINGS} are internal names.")
        layout = self._book.layout(destination)
        if layout is None:
            if not self._options.create:
                raise DestinationUnknown(
                    f"{destination}: there is none of that name, and the bridge may not create it."
                )
            layout = Layout(self._options.partitions, self.log_bytes(destination))
            layout = await self._book.claim(destination, layout)
        await self._play(destination, self.declarations(destination))
        return layout.partitions

    async def _play(self, destination: str, steps: list[Step]) -> None:
        channel = await self._link.channel()
        try:
            await play(channel, destination, steps)
        finally:
            await channel.close()

    def _asked(self, destination: str, task: asyncio.Task[int]) -> None:
        del self._asking[destination]
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._known[destination] = task.result()
        elif not isinstance(error, BridgeError):
            raise error
