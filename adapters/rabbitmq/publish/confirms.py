"""One channel in confirm mode: what was sent on it, and what became of it.

When the broker closes a channel over a message it does not say over which one, and it confirms nothing any more. But
it handles the messages of a channel one after the other: what came after that one was thrown away, for certain, and
what came before went to its queues, and only the confirm is missing. So it is looked for by the broker's words.
"""

import asyncio
import re
from collections.abc import Callable
from itertools import takewhile
from typing import Any, Final, NamedTuple

from pika.exceptions import ChannelClosedByBroker

from adapters.amqp.channel import Channel
from adapters.amqp.connection import Connection
from adapters.amqp.frames import Frames
from adapters.rabbitmq.publish.outcomes import (
    closed_over_another,
    limit_of,
    nacked,
    of_publish,
    unconfirmed_at_close,
    unencodable,
    unroutable,
)
from adapters.rabbitmq.publish.pending import PendingPublish
from bridge.errors import BridgeError

_CROWD: Final = 1_000
"""Messages under way: memory is bounded."""
_EXCHANGE: Final = re.compile(r"exchange '(.*)(' in vhost|[.]{3}$)")


class Watch(NamedTuple):
    """Callbacks for failures."""

    closed: Callable[[PendingPublish | None, BaseException], None]
    """Called with the message that the channel was closed over, as far as that is known, and pika's reason."""
    nacked: Callable[[PendingPublish], None]
    """Called with the message that a queue did not take."""


class Confirms:
    """An open channel in confirm mode."""

    def __init__(self, channel: Channel, watch: Watch, prefix: str) -> None:
        self._channel = channel
        self._connection: Connection = channel.raw.connection
        self._frames = Frames(channel.raw.channel_number, self._connection.params.frame_max)
        self._watch = watch
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
    def open(self) -> bool:
        """Whether it takes messages."""
        return self._channel.open

    @property
    def crowded(self) -> bool:
        """Whether so much is under way that also messages without confirms are waited for."""
        return len(self.unconfirmed) > _CROWD or self._connection.congested

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
                self._watch.nacked(sent)
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
        self._watch.closed(None if culprit is None else unconfirmed[culprit], reason)
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
    """Return the number of the last message that the channel can have been closed over; None: of none is it certain."""
    if not isinstance(reason, ChannelClosedByBroker):
        return None
    limit = limit_of(reason)
    fitting = [
        number
        for number, sent in unconfirmed.items()
        if (_is_named(sent.outgoing.exchange, reason.reply_text) if limit is None else sent.size > limit)
    ]
    if fitting:
        return fitting[-1]
    return next(iter(unconfirmed)) if len(unconfirmed) == 1 else None


def _is_named(exchange: str, text: str) -> bool:
    """Whether the broker speaks of this exchange; its texts end at 255 bytes, with dots."""
    found = _EXCHANGE.search(text)
    return found is not None and (exchange == found[1] if found[2] != "..." else exchange.startswith(found[1]))
