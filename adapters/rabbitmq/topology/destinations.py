"""The destinations: how many partitions they have, and where their messages are published. Created on first use."""

import asyncio
from collections.abc import Mapping
from functools import partial
from time import monotonic
from typing import Final

from adapters.amqp.link import Link
from adapters.amqp.retry import retry
from adapters.amqp.settings import REQUEST_TIMEOUT
from adapters.base import DEAD_LETTER_SUFFIX
from adapters.rabbitmq.options import Existing, Options
from adapters.rabbitmq.topology import declarations, names
from adapters.rabbitmq.topology.catalogue import Catalogue
from adapters.rabbitmq.topology.declarations import Layout, Request, perform_on
from adapters.shared_calls import SharedCalls
from bridge.errors import BackendUnavailable, BridgeError, DestinationInvalid, DestinationUnknown
from bridge.message import Message

_ENDINGS: Final = ", ".join(f"…{ending}" for ending in names.RESERVED)


class Destinations:
    """Declares destinations, and remembers which it has declared on this connection.

    It forgets a destination whose exchange turns out to be missing. Declaring it again changes nothing that exists.
    """

    def __init__(self, options: Options, declaring: Link, catalogue: Catalogue) -> None:
        self._options = options
        self._link = declaring
        self._catalogue = catalogue
        self.existing: Mapping[str, Existing] = {
            name: existing
            for name, existing in options.destinations.items()
            if existing.exchange is not None or existing.queue is not None
        }
        """Exchanges and queues of others, by the destination that uses them; other destinations have their own."""
        self._known: dict[str, int] = {}
        self._calls: SharedCalls[tuple[str, bool], int] = SharedCalls()
        """By destination, and whether it is created."""
        self.close = self._calls.close
        declaring.on_connected.append(self._known.clear)

    async def partitions(self, destination: str, *, create: bool = True) -> int:
        """Return the number of partitions; with `create`, create the destination on first use.

        Raises `DestinationUnknown`, `DestinationInvalid`, `Refused`, `BackendUnavailable` or `OutcomeUnknown`.
        """
        while (known := self._known.get(destination)) is None:
            other = self._calls.running((destination, not create))
            if other is None:
                return await self._calls.run((destination, create), partial(self._wait_for, destination, create=create))
            # one after the other: RabbitMQ answers a second declaration of a stream before the stream has a leader, and
            # then closes the connection that publishes to it (541, seen with 3.10.8)
            await asyncio.wait([other])
        return known

    def known_partitions(self, destination: str) -> int | None:
        """Return the number of partitions if the destination has been declared on this connection."""
        return self._known.get(destination)

    def forget(self, exchange: str) -> None:
        """Declare the destination again on its next use: its exchange is missing."""
        self._known.pop(exchange, None)
        for name, existing in self.existing.items():
            if exchange in {existing.exchange, existing.queue}:
                self._known.pop(name, None)

    def route(self, message: Message) -> tuple[str, str]:
        """Return the exchange and the routing key for a message."""
        if (existing := self.existing.get(message.destination)) is None:
            return message.destination, names.routing_key(message.partition or 0)
        if existing.exchange is None:
            return "", existing.queue or ""
        return existing.exchange, existing.routing_key or ""

    def log_bytes(self, destination: str) -> int:
        """Return the limit of its log; 0: it has none. The settings override the catalogue.

        Dead letters have one in any case: the log keeps them until a group pulls them.
        """
        settings = self._options.destinations.get(destination, Existing())
        if settings.queue is not None or settings.log is False:
            return 0
        layout = self._catalogue.contents.destinations.get(destination)
        entered = layout.log_bytes if layout is not None else self._options.log_bytes * self._options.log
        needed = settings.log or destination.endswith(DEAD_LETTER_SUFFIX)
        return self._options.log_bytes if needed and not entered else entered

    def purges(self, destination: str, group: str | None = None) -> int:
        """Return how often the delayed messages of a destination, or of a group of it, were purged."""
        purges = self._catalogue.contents.purges
        return purges.get((destination, None), 0) + (0 if group is None else purges.get((destination, group), 0))

    def declarations(self, destination: str) -> list[Request]:
        """Return the declarations of a destination: exchanges and queues of others are only checked."""
        existing = self.existing.get(destination)
        if existing is None:
            if not self._options.create:
                return declarations.check_destination(destination)
            return declarations.destination(destination, self.log_bytes(destination))
        checks = declarations.check_existing(existing)
        return checks if existing.exchange is None else [*checks, *self.log(destination)]

    def log(self, destination: str) -> list[Request]:
        """Return the declarations of its log; an empty list if it has none."""
        return declarations.log(destination, self.log_bytes(destination), self.existing.get(destination))

    async def _wait_for(self, destination: str, *, create: bool) -> int:
        """Retry during an outage: after a restart the broker serves its streams only after a while."""
        deadline = monotonic() + REQUEST_TIMEOUT / 1000

        def failed(error: BridgeError) -> None:
            if not isinstance(error, BackendUnavailable) or monotonic() > deadline:
                raise error

        partitions = self._known[destination] = await retry(partial(self._declare, destination, create=create), failed)
        return partitions

    async def _declare(self, destination: str, *, create: bool) -> int:
        partitions = 1 if destination in self.existing else await self._claim(destination, create=create)
        await perform_on(self._link, destination, self.declarations(destination))
        return partitions

    async def _claim(self, destination: str, *, create: bool) -> int:
        """Return the number of partitions in the catalogue; enter the destination if it is missing."""
        if destination.startswith(self._options.prefix) or destination.endswith(names.RESERVED):
            raise DestinationInvalid(f"{destination}: {self._options.prefix}…, {_ENDINGS} are internal names.")
        layout = self._catalogue.contents.destinations.get(destination)
        if layout is None:
            if not (create and self._options.create):
                missing = f"{destination}: there is no such exchange or queue"
                raise DestinationUnknown(f"{missing}, and the bridge may not create it." if create else f"{missing}.")
            layout = Layout(self._options.partitions, self.log_bytes(destination))
            layout = await self._catalogue.claim(destination, layout)
        return layout.partitions
