"""A message under way, and whoever waits for what becomes of it."""

import asyncio

from adapters.base import Stored
from adapters.rabbitmq.record import Outgoing
from bridge.errors import BridgeError


class Sent:
    """It lets go of the body once that is written: the socket's buffer is then the only one that holds it."""

    __slots__ = ("done", "mandatory", "outgoing", "size", "stored", "written")

    def __init__(self, outgoing: Outgoing, *, mandatory: bool, stored: Stored) -> None:
        self.outgoing = outgoing
        self.mandatory = mandatory
        self.stored = stored
        """What whoever waits is told when it is stored."""
        self.size = len(outgoing.body)
        self.written = False
        self.done: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()

    @property
    def what(self) -> str:
        """What it was sent to, for a person: the default exchange has no name."""
        return self.outgoing.exchange or self.outgoing.routing_key

    @property
    def looks(self) -> tuple[str, str, str | None, int]:
        """What it can be known by when it is returned."""
        outgoing = self.outgoing
        return outgoing.exchange, outgoing.routing_key, outgoing.properties.message_id, self.size

    def write(self) -> None:
        """It is handed to the socket."""
        outgoing = self.outgoing
        self.outgoing = Outgoing(outgoing.exchange, outgoing.routing_key, outgoing.properties, b"")
        self.written = True

    def succeed(self) -> None:
        """It is stored."""
        if not self.done.done():
            self.done.set_result(self.stored)

    def fail(self, error: BridgeError) -> None:
        """It is not, or nobody knows."""
        if not self.done.done():
            self.done.set_exception(error)
