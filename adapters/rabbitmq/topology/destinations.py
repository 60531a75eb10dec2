"""Which destinations there are, how many partitions they have, and where their messages go; made on first use."""

import asyncio
from collections.abc import Mapping
from typing import Final

from adapters.amqp.link import Link
from adapters.amqp.settings import REQUEST_TIMEOUT
from adapters.rabbitmq.options import Existing, Options
from adapters.rabbitmq.topology import declarations, names
from adapters.rabbitmq.topology.catalogue import Catalogue
from adapters.rabbitmq.topology.declarations import Layout, Step, Tap, play
from bridge.errors import BackendUnavailable, BridgeError, DestinationInvalid, DestinationUnknown
from bridge.message import Message

_ENDINGS: Final = ", ".join(f"…{ending}" for ending in names.RESERVED)
_RETRY: Final = 0.2
"""Seconds between two questions about a destination, during an outage."""


class Destinations:
    """Many who ask for the same unknown destination share one question, and one set of declarations.

    What is known is forgotten with the connection, and when an exchange turns out to be gone: then everything is
    declared once more, which is harmless where it is there.
    """

    def __init__(self, options: Options, declaring: Link, catalogue: Catalogue) -> None:
        self._options = options
        self._link = declaring
        self._catalogue = catalogue
        self._foreign: Mapping[str, Existing] = {
            name: existing
            for name, existing in options.destinations.items()
            if existing.exchange is not None or existing.queue is not None
        }
        """Those whose exchange or queue is none of the bridge's."""
        self._known: dict[str, int] = {}
        self._asking: dict[str, tuple[bool, asyncio.Task[int]]] = {}
        """By destination: whether it is created, and the question."""
        declaring.on_connected.append(self._known.clear)

    async def partitions(self, destination: str, *, create: bool = True) -> int:
        """Return the number of partitions; with `create`, create the destination on first use.

        Raises `DestinationUnknown`, `DestinationInvalid`, `Refused`, `BackendUnavailable` or `OutcomeUnknown`.
        """
        while (known := self._known.get(destination)) is None:
            creates, asking = self._asking.get(destination) or self._ask_once(destination, create=create)
            if creates == create:
                return await asyncio.shield(asking)
            # One after the other: RabbitMQ answers a second declaration of a stream that is just being made before that
            # has a leader, and ends the connection that publishes to it then (541, seen with 3.10.8).
            await asyncio.wait([asking])
        return known

    def known_partitions(self, destination: str) -> int | None:
        """Number of partitions, if the destination has been declared on this connection."""
        return self._known.get(destination)

    def forget(self, exchange: str) -> None:
        """Declare it anew on the next use: the exchange has turned out not to be there."""
        self._known.pop(exchange, None)
        for name, existing in self._foreign.items():
            if exchange in {existing.exchange, existing.queue}:
                self._known.pop(name, None)

    def existing(self, destination: str) -> Existing | None:
        """Return what the destination has that is none of the bridge's; None: its own exchange."""
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
        """Return how large its log may grow; 0: it keeps none. The settings go before what the catalogue says."""
        said = self._options.destinations.get(destination, Existing())
        if said.queue is not None or said.log is False:
            return 0
        layout = self._catalogue.layout(destination)
        entered = layout.log_bytes if layout is not None else self._options.log_bytes * self._options.log
        return self._options.log_bytes if said.log and not entered else entered

    def purges(self, destination: str, group: str | None = None) -> int:
        """Return how often the messages were purged that wait for a destination, or for a group of it."""
        count = self._catalogue.purges(destination, None)
        return count if group is None else count + self._catalogue.purges(destination, group)

    def declarations(self, destination: str) -> list[Step]:
        """Return what must be there of a destination: the bridge's own is declared, if it may, the rest looked for."""
        existing = self._foreign.get(destination)
        if existing is None:
            if not self._options.create:
                return declarations.created(destination)
            return declarations.destination(destination, self.log_bytes(destination))
        steps = declarations.looked_for(existing)
        if existing.exchange is not None:
            steps += self.log(destination)
        return steps

    def log(self, destination: str) -> list[Step]:
        """Return the declarations of its log; none if it keeps none."""
        existing = self._foreign.get(destination)
        tap = Tap(destination, ("#",)) if existing is None else declarations.tap(existing)
        return declarations.log(destination, tap, self.log_bytes(destination))

    async def close(self) -> None:
        """Stop asking."""
        tasks = [task for _, task in self._asking.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _ask_once(self, destination: str, *, create: bool) -> tuple[bool, asyncio.Task[int]]:
        asking = asyncio.create_task(self._wait_for(destination, create=create))
        self._asking[destination] = (create, asking)
        asking.add_done_callback(lambda task: self._answered(destination, task))
        return create, asking

    async def _wait_for(self, destination: str, *, create: bool) -> int:
        """Ask until the broker answers: after a restart it takes a while until it serves its streams."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + REQUEST_TIMEOUT / 1000
        while True:
            try:
                return await self._ask(destination, create=create)
            except BackendUnavailable:
                if loop.time() + _RETRY > deadline:
                    raise
            await asyncio.sleep(_RETRY)

    async def _ask(self, destination: str, *, create: bool) -> int:
        """Have the catalogue say what it is, then declare it."""
        if destination in self._foreign:
            await self._play(destination, self.declarations(destination))
            return 1
        if destination.startswith(self._options.prefix) or destination.endswith(names.RESERVED):
            raise DestinationInvalid(f"{destination}: {self._options.prefix}…, {_ENDINGS} are internal names.")
        layout = self._catalogue.layout(destination)
        if layout is None:
            if not create:
                raise DestinationUnknown(f"{destination}: there is no such exchange or queue.")
            if not self._options.create:
                raise DestinationUnknown(
                    f"{destination}: there is no such exchange or queue, and the bridge may not create it."
                )
            layout = Layout(self._options.partitions, self.log_bytes(destination))
            layout = await self._catalogue.claim(destination, layout)
        await self._play(destination, self.declarations(destination))
        return layout.partitions

    async def _play(self, destination: str, steps: list[Step]) -> None:
        channel = await self._link.channel()
        try:
            await play(channel, destination, steps)
        finally:
            await channel.close()

    def _answered(self, destination: str, task: asyncio.Task[int]) -> None:
        del self._asking[destination]
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._known[destination] = task.result()
        elif not isinstance(error, BridgeError):
            raise error
