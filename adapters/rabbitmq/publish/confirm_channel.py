"""One channel in confirm mode: the messages sent on it, and their outcomes.

A broker that closes a channel because of a message does not say which message that was, and sends no more confirms. But
it handles the messages of a channel in order: it has dropped those behind that message, and has routed those before it,
whose confirms are missing. So the last message that can be the cause separates the two.
"""

import asyncio
import re
from collections.abc import Callable
from itertools import takewhile
from typing import Any, Final

from pika.exceptions import ChannelClosedByBroker

from adapters.amqp.channel import Channel
from adapters.amqp.connection import Connection
from adapters.amqp.errors import ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED, of_channel, of_connection
from adapters.amqp.messages import Outgoing
from adapters.amqp.publish_frames import Frames
from adapters.base import Stored
from adapters.rabbitmq.headers import RESENT
from bridge.errors import (
    BackendFull,
    BackendUnavailable,
    BodyTooLarge,
    BridgeError,
    HeaderInvalid,
    OutcomeUnknown,
    Refused,
)


class PendingPublish:
    """A message that is being published.

    Its body is freed once it is written to the socket's buffer, unless it may be sent again.
    """

    __slots__ = ("deadline", "done", "outgoing", "resend", "resent", "size", "stored", "written")

    def __init__(
        self, outgoing: Outgoing, *, stored: Stored, deadline: float | None = None, resend: bool = False
    ) -> None:
        self.outgoing = outgoing
        self.stored = stored
        """The result of `done`, if it is stored."""
        self.size = len(outgoing.body)
        self.deadline = deadline
        """Until when it waits during an outage, in seconds of the loop's clock; None: it fails at once."""
        self.resend = resend
        """Whether it is sent again if the connection is lost before its confirm: its consumers drop a second copy."""
        self.resent = 0
        """How often it was sent before without a confirm: then it may be stored already."""
        self.written = False
        self.done: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()

    @property
    def target(self) -> str:
        """The exchange or queue, for error texts: the default exchange has no name."""
        return self.outgoing.exchange or self.outgoing.routing_key

    @property
    def waits(self) -> bool:
        """Whether it waits for the broker during an outage."""
        return self.deadline is not None

    def again(self) -> None:
        """Prepare it to be sent again, after the connection was lost before its confirm."""
        self.resent += 1
        self.written = False
        properties = self.outgoing.properties
        properties.headers = {**(properties.headers or {}), RESENT: self.resent}

    def drop_body(self) -> None:
        """Free the body: the message is written, or is not sent any more."""
        outgoing = self.outgoing
        self.outgoing = Outgoing(outgoing.exchange, outgoing.routing_key, outgoing.properties, b"")

    def succeed(self) -> None:
        """It is stored."""
        if not self.done.done():
            self.done.set_result(self.stored)

    def fail(self, error: BridgeError) -> None:
        """It is not stored; or the outcome is unknown, as it is if it was sent before."""
        if self.resent and not isinstance(error, OutcomeUnknown):
            error = OutcomeUnknown(f"{error.detail} An earlier attempt, whose connection was lost, may have stored it.")
        if not self.done.done():
            self.done.set_exception(error)


class ConfirmChannel:
    """An open channel in confirm mode, for messages to one exchange or queue at a time."""

    def __init__(self, channel: Channel, prefix: str) -> None:
        self._channel = channel
        self._connection: Connection = channel.raw.connection
        self._frames = Frames(channel.raw.channel_number, self._connection.params.frame_max)
        self.on_closed: Callable[[PendingPublish | None, BaseException], None] = lambda _over, _reason: None
        """Called when it was closed, with the message that was the cause, if known, and pika's reason."""
        self.on_unconfirmed: Callable[[list[PendingPublish]], None] = lambda _again: None
        """Called when the connection was lost, with the messages that are to be sent again, in order."""
        self.on_nacked: Callable[[PendingPublish], None] = lambda _sent: None
        """Called with a message that a queue has refused."""
        self._prefix = prefix
        self._last = 0
        """The delivery tag of the last message."""
        self.unconfirmed: dict[int, PendingPublish] = {}
        """By delivery tag, in order."""
        self.ended: BaseException | None = None
        """Why it was closed, as pika reports it."""
        self.nacks = 0
        self._settled: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Switch the channel to confirm mode. Raises `BackendUnavailable`."""
        self._channel.raw.add_on_return_callback(self._on_return)
        self._channel.raw.add_on_close_callback(self._on_close)
        self._connection.confirmed[self._channel.raw.channel_number] = self._on_confirm
        await self._channel.ask("RabbitMQ", "confirm_delivery", ack_nack_callback=_ignore_confirm)

    def send(self, sent: PendingPublish) -> None:
        """Write the message."""
        try:
            pieces = self._frames.of(sent.outgoing)
        except BridgeError as error:
            sent.fail(error)
            return
        except Exception as error:  # noqa: BLE001 - any error of pika's encoder: nothing was written
            values = f"the message has a value that AMQP cannot carry ({type(error).__name__})"
            sent.fail(HeaderInvalid(f"{sent.target}: {values}."))
            return
        if not sent.resend:
            sent.drop_body()
        sent.written = True
        self._last += 1
        self.unconfirmed[self._last] = sent
        self._connection.write(pieces)

    async def settled(self) -> None:
        """Wait until all messages have their outcome."""
        if self.unconfirmed:
            self._settled = asyncio.get_running_loop().create_future()
            await self._settled

    def close(self) -> None:
        """Close the channel; no message may wait for a confirm."""
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
                self._nacked(sent)
        if self._settled is not None:
            self._check_settled()

    def _nacked(self, sent: PendingPublish) -> None:
        """A queue has refused the message. Other queues of the destination may have stored it.

        The default exchange and the bridge's own exchanges route to one queue: then nothing was stored.
        """
        self.nacks += 1
        exchange, target = sent.outgoing.exchange, sent.target
        if not exchange or exchange.startswith(self._prefix):
            sent.fail(BackendFull(f"{target}: the queue is full or has failed."))
        else:
            sent.fail(OutcomeUnknown(f"{target}: a queue is full or has failed; others may have stored the message."))
        self.on_nacked(sent)

    def _up_to(self, last: int) -> list[int]:
        return list(takewhile(last.__ge__, self.unconfirmed))

    def _on_return(self, _channel: object, method: Any, properties: Any, body: bytes) -> None:  # noqa: ANN401 - pika's
        """Find the message by its values: a returned message has no delivery tag.

        Two with the same values are the same message, sent twice; either outcome is right for both.
        """
        key = (method.exchange, method.routing_key, properties.message_id, len(body))
        for number, sent in self.unconfirmed.items():
            exchange, routing_key, slots, _ = sent.outgoing
            if (exchange, routing_key, slots.message_id, sent.size) == key:
                del self.unconfirmed[number]
                sent.fail(unroutable(exchange, routing_key))
                break
        self._check_settled()

    def _check_settled(self) -> None:
        if self._settled is not None and not self.unconfirmed and not self._settled.done():
            self._settled.set_result(None)

    def _on_close(self, _channel: object, reason: BaseException) -> None:
        unconfirmed, self.unconfirmed = self.unconfirmed, {}
        cause = _cause_of(unconfirmed, reason)
        self.ended = reason
        self._check_settled()
        self.on_closed(None if cause is None else unconfirmed[cause], reason)
        if not isinstance(reason, ChannelClosedByBroker):
            self.on_unconfirmed([sent for sent in unconfirmed.values() if sent.resend])
            unconfirmed = {number: sent for number, sent in unconfirmed.items() if not sent.resend}
        for number, sent in unconfirmed.items():
            if cause is None or number < cause:  # the broker sends no more confirms
                said = "Before that it did not say whether it stored the message."
                sent.fail(OutcomeUnknown(f"{sent.target}: {_reason(reason)} {said}"))
            elif number == cause:
                sent.fail(of_publish(reason, sent.target))
            else:  # the broker has not handled it
                sent.fail(BackendUnavailable(f"{_reason(reason)} The message was not stored."))


def _ignore_confirm(_frame: object) -> None:
    """Replace pika's callback for confirms: the connection calls `ConfirmChannel` directly."""


def _cause_of(unconfirmed: dict[int, PendingPublish], reason: BaseException) -> int | None:
    """Return the delivery tag of the last message that can be why the channel was closed; None: it is not certain.

    All were sent to the same exchange or queue.
    """
    if not isinstance(reason, ChannelClosedByBroker):
        return None
    limit = limit_of(reason)
    if limit is None and not is_of_exchange(reason) and len(unconfirmed) > 1:
        return None
    fitting = [number for number, sent in unconfirmed.items() if limit is None or sent.size > limit]
    return fitting[-1] if fitting else None


# The errors of publishing, from RabbitMQ's reply codes: not stored, outcome unknown, rejected.

_LIMIT: Final = re.compile(r"message size \d+ is larger than configured max size (\d+)")


class _Missing(Exception):
    """The cause of the error of a missing exchange: a separate class would be one more error code for clients."""


class _Unroutable(Exception):
    """The cause of `unroutable`."""


def is_missing(error: BaseException | None) -> bool:
    """Whether the exchange was missing."""
    return error is not None and isinstance(error.__cause__, _Missing)


def unroutable(exchange: str, routing_key: str) -> BackendUnavailable:
    """No queue is bound for the message. Nothing was stored."""
    said = (
        f"{exchange}: no queue is bound with the routing key {routing_key}."
        if exchange
        else f"{routing_key}: no such queue."
    )
    error = BackendUnavailable(said)
    error.__cause__ = _Unroutable(exchange)
    return error


def is_unroutable(error: BaseException | None) -> bool:
    """Whether it is an error of `unroutable`."""
    return error is not None and isinstance(error.__cause__, _Unroutable)


def not_taken(what: str) -> BackendUnavailable:
    """The message has waited until its deadline. Nothing was sent."""
    return BackendUnavailable(f"{what}: RabbitMQ did not take the message in time. It was not stored.")


def copy_of(error: BridgeError) -> BridgeError:
    """Return a copy of an error for another message: each needs its own exception."""
    another = type(error)(error.detail)
    another.retry_after = error.retry_after
    another.__cause__ = error.__cause__
    return another


def too_large(what: str) -> BodyTooLarge:
    """The message exceeds the broker's limit. Nothing was stored."""
    return BodyTooLarge(f"{what}: RabbitMQ does not accept messages this large (max_message_size).")


def limit_of(error: BaseException) -> int | None:
    """Return the broker's limit in bytes, if a channel was closed because of a larger message."""
    found = _LIMIT.search(error.reply_text) if isinstance(error, ChannelClosedByBroker) else None
    return None if found is None else int(found[1])


def is_of_exchange(error: BaseException) -> bool:
    """Whether a channel was closed because of the exchange: every message to it has the same outcome."""
    return isinstance(error, ChannelClosedByBroker) and error.reply_code in {NOT_FOUND, ACCESS_REFUSED}


def of_publish(error: BaseException, exchange: str) -> BridgeError:
    """Return the error of the message that was why a channel was closed. Nothing was stored."""
    if isinstance(error, ChannelClosedByBroker) and error.reply_code == NOT_FOUND:  # on its next use it is declared
        missing = BackendUnavailable(f"{exchange}: there is no such exchange, it may have just been deleted.")
        missing.__cause__ = _Missing(exchange)
        return missing
    if isinstance(error, ChannelClosedByBroker) and error.reply_code == PRECONDITION_FAILED:
        if limit_of(error) is not None:
            return too_large(exchange)
        return Refused(f"{exchange}: RabbitMQ does not accept the message ({error.reply_text}).")
    return of_channel(error, exchange)


def _reason(error: BaseException) -> str:
    if isinstance(error, ChannelClosedByBroker):
        return f"RabbitMQ closed the channel ({error.reply_code} {error.reply_text})."
    return of_connection(error).detail
