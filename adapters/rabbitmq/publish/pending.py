"""Messages under way: during an outage, an alarm, or while a channel is opened, they wait."""

import asyncio
from collections.abc import Iterable

from adapters.amqp.messages import Outgoing
from adapters.base import Stored
from adapters.rabbitmq.publish.outcomes import again
from bridge.errors import BridgeError


class PendingPublish:
    """It drops the body once that is written: the socket's buffer is then the only one that holds it."""

    __slots__ = ("done", "mandatory", "outgoing", "size", "stored", "waits", "written")

    def __init__(self, outgoing: Outgoing, *, mandatory: bool, stored: Stored, waits: bool = False) -> None:
        self.outgoing = outgoing
        self.mandatory = mandatory
        self.stored = stored
        """The result of `done` when it is stored."""
        self.size = len(outgoing.body)
        self.waits = waits
        """Whether it waits for the broker during an outage; otherwise it fails at once."""
        self.written = False
        self.done: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()

    @property
    def what(self) -> str:
        """What it was sent to, for a person: the default exchange has no name."""
        return self.outgoing.exchange or self.outgoing.routing_key

    @property
    def route(self) -> tuple[str, str]:
        """Where it is stored or is not: the exchange, and the queue for the default exchange, which leads to many."""
        outgoing = self.outgoing
        return (outgoing.exchange, "") if outgoing.exchange else ("", outgoing.routing_key)

    @property
    def looks(self) -> tuple[str, str, str | None, int]:
        """What it can be known by when it is returned."""
        outgoing = self.outgoing
        return outgoing.exchange, outgoing.routing_key, outgoing.properties.message_id, self.size

    def write(self) -> None:
        """It is handed to the socket."""
        self.drop_body()
        self.written = True

    def drop_body(self) -> None:
        """Free the body: the message is written, or is not sent any more."""
        outgoing = self.outgoing
        self.outgoing = Outgoing(outgoing.exchange, outgoing.routing_key, outgoing.properties, b"")

    def succeed(self) -> None:
        """It is stored."""
        if not self.done.done():
            self.done.set_result(self.stored)

    def fail(self, error: BridgeError) -> None:
        """It is not, or that is unknown."""
        if not self.done.done():
            self.done.set_exception(error)


class Unsent:
    """Messages that wait until the broker can take them, in the order in which they were accepted."""

    def __init__(self) -> None:
        self._messages: dict[int, PendingPublish] = {}
        """By identity, so that one whose time is over can be dropped without a search."""

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._messages)

    def add(self, sent: PendingPublish) -> None:
        """Put a message behind the others."""
        self._messages[id(sent)] = sent

    def put_back(self, messages: Iterable[PendingPublish]) -> None:
        """Put messages in front of the others: they were accepted before them."""
        first = {id(sent): sent for sent in messages if not sent.done.done()}
        self._messages = {**first, **self._messages}

    def drop(self, sent: PendingPublish) -> None:
        """Forget a message, if it is there."""
        self._messages.pop(id(sent), None)

    def take(self) -> list[PendingPublish]:
        """Return all messages in order, and keep none."""
        messages, self._messages = self._messages, {}
        return list(messages.values())

    def fail(self, error: BridgeError) -> None:
        """Fail all messages."""
        for sent in self.take():
            sent.fail(again(error))

    def fail_impatient(self, error: BridgeError) -> None:
        """Fail the messages that do not wait for the broker; the others stay."""
        for sent in self.take():
            if sent.waits:
                self.add(sent)
            else:
                sent.fail(again(error))
