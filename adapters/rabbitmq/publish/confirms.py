"""One channel in confirm mode: what was sent on it, and what became of it.

When the broker closes a channel over a message it does not say over which one, and it confirms nothing any more. But
it handles the messages of a channel one after the other: what came after that one was thrown away, for certain, and
what came before went to its queues, and only the confirm is missing. So the last one that it can have been is certain.
"""

import asyncio
from itertools import takewhile
from typing import Any, Protocol

from pika.exceptions import ChannelClosedByBroker

from adapters.amqp.channel import Channel
from adapters.amqp.connection import Connection
from adapters.amqp.frames import Frames
from adapters.amqp.messages import Outgoing
from adapters.base import Stored
from adapters.rabbitmq.publish.outcomes import (
    closed_over_another,
    is_of_exchange,
    limit_of,
    nacked,
    of_publish,
    unconfirmed_at_close,
    unencodable,
    unroutable,
)
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


class Watch(Protocol):
    """What the messages of a channel are published through."""

    def closed(self, over: PendingPublish | None, reason: BaseException) -> None:
        """The channel ended: over that message, as far as that is known; pika's reason."""

    def nacked(self, sent: PendingPublish) -> None:
        """A queue did not take the message."""


class Confirms:
    """An open channel in confirm mode, for messages to one exchange or queue at a time."""

    def __init__(self, channel: Channel, prefix: str) -> None:
        self._channel = channel
        self._connection: Connection = channel.raw.connection
        self._frames = Frames(channel.raw.channel_number, self._connection.params.frame_max)
        self.watch: Watch | None = None
        self._prefix = prefix
        self._last = 0
        """The number of the last message, as the broker counts them."""
        self.unconfirmed: dict[int, PendingPublish] = {}
        """By number, in order."""
        self.ended: BaseException | None = None
        """Why it takes no more messages, in pika's words."""
        self.nacks = 0
        self._settled: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Switch the channel to confirm mode. Raises `BackendUnavailable`."""
        self._channel.raw.add_on_return_callback(self._on_return)
        self._channel.raw.add_on_close_callback(self._on_close)
        self._connection.confirmed[self._channel.raw.channel_number] = self._on_confirm
        await self._channel.ask("RabbitMQ", "confirm_delivery", ack_nack_callback=_never)

    @property
    def congested(self) -> bool:
        """Whether the broker reads more slowly than is written."""
        return self._connection.congested

    def send(self, sent: PendingPublish) -> None:
        """Write the message."""
        try:
            pieces = self._frames.of(sent.outgoing, mandatory=sent.mandatory)
        except BridgeError as error:
            sent.fail(error)
            return
        except Exception as error:  # noqa: BLE001 - whatever pika's encoder meets: nothing was written
            sent.fail(unencodable(sent.what, error))
            return
        sent.write()
        self._last += 1
        self.unconfirmed[self._last] = sent
        self._connection.write(pieces)

    async def settled(self) -> None:
        """Wait until what was sent has its outcome."""
        if self.unconfirmed:
            self._settled = asyncio.get_running_loop().create_future()
            await self._settled

    def close(self) -> None:
        """Ask for the end of the channel: it has no use, and no message waits for it."""
        if self._channel.open:
            self._channel.raw.close()

    def _on_confirm(self, last: int, multiple: bool, ack: bool) -> None:
        for number in self._up_to(last) if multiple else (last,):
            sent = self.unconfirmed.pop(number, None)
            if sent is None:  # it was returned
                continue
            if ack:
                sent.succeed()
            else:
                self.nacks += 1
                sent.fail(nacked(sent.outgoing.exchange, self._prefix, sent.what))
                if self.watch is not None:
                    self.watch.nacked(sent)
        if self._settled is not None:
            self._look_settled()

    def _up_to(self, last: int) -> list[int]:
        return list(takewhile(last.__ge__, self.unconfirmed))

    def _on_return(self, _channel: object, method: Any, properties: Any, body: bytes) -> None:  # noqa: ANN401 - pika's
        """Find the message by what it looks like: what comes back has no number.

        Two that look the same are the same message, sent twice, and either answer suits both.
        """
        looks = (method.exchange, method.routing_key, properties.message_id, len(body))
        for number, sent in self.unconfirmed.items():
            if sent.looks == looks:
                del self.unconfirmed[number]
                sent.fail(unroutable(sent.outgoing.exchange, sent.outgoing.routing_key))
                break
        self._look_settled()

    def _look_settled(self) -> None:
        if self._settled is not None and not self.unconfirmed and not self._settled.done():
            self._settled.set_result(None)

    def _on_close(self, _channel: object, reason: BaseException) -> None:
        unconfirmed, self.unconfirmed = self.unconfirmed, {}
        self._connection.confirmed.pop(self._channel.raw.channel_number, None)
        culprit = _culprit(unconfirmed, reason)
        self.ended = reason
        self._look_settled()
        if self.watch is not None:
            self.watch.closed(None if culprit is None else unconfirmed[culprit], reason)
        for number, sent in unconfirmed.items():
            if culprit is None or number < culprit:
                sent.fail(unconfirmed_at_close(reason, sent.what))
            elif number == culprit:
                sent.fail(of_publish(reason, sent.what))
            else:
                sent.fail(closed_over_another(reason))


def _never(_frame: object) -> None:
    """Fill the place of pika's own callback for confirms: the connection calls `Confirms` before it."""


def _culprit(unconfirmed: dict[int, PendingPublish], reason: BaseException) -> int | None:
    """Return the number of the last message that the channel can have been closed over; None: of none is it certain.

    All went to the same exchange or queue.
    """
    if not isinstance(reason, ChannelClosedByBroker):
        return None
    limit = limit_of(reason)
    if limit is None and not is_of_exchange(reason) and len(unconfirmed) > 1:
        return None
    fitting = [number for number, sent in unconfirmed.items() if limit is None or sent.size > limit]
    return fitting[-1] if fitting else None
