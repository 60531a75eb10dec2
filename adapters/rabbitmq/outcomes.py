"""What RabbitMQ's reply codes mean: not stored, unknown, rejected. The codes are the protocol's."""

import re
from typing import Final

from pika import exceptions as pika

from adapters.rabbitmq.reasons import reason_of
from bridge.errors import (
    BackendFull,
    BackendUnavailable,
    BodyTooLarge,
    BridgeError,
    DestinationUnknown,
    HeaderInvalid,
    OutcomeUnknown,
    Refused,
)

ACCESS_REFUSED: Final = 403
NOT_FOUND: Final = 404
RESOURCE_LOCKED: Final = 405
PRECONDITION_FAILED: Final = 406
_ASLEEP: Final = ("is down or inaccessible", "does not have a replica on the local node")
"""What the broker says of a queue or stream that is there, in the first moments after it was killed and started."""
_LIMIT: Final = re.compile(r"message size \d+ is larger than configured max size (\d+)")
BLOCKED_RETRY: Final = 5
"""Seconds after which it is worth trying again when the broker has an alarm: memory or disk come back slowly."""


class _Gone(Exception):
    """The cause of what `exchange_gone` returns: a class of its own would be one more outcome for clients to know."""


class _Unroutable(Exception):
    """The cause of what `unroutable` returns."""


def exchange_gone(exchange: str) -> BackendUnavailable:
    """The exchange is not there. Nothing was stored; on its next use it is looked for, or made, again."""
    error = BackendUnavailable(f"{exchange}: there is no such exchange, it may have just been deleted.")
    error.__cause__ = _Gone(exchange)
    return error


def is_gone(error: BaseException | None) -> bool:
    """Whether it is what `exchange_gone` returned."""
    return error is not None and isinstance(error.__cause__, _Gone)


def unroutable(exchange: str, routing_key: str) -> BackendUnavailable:
    """No queue was there to take the message. Nothing was stored."""
    said = (
        f"{exchange}: no queue takes the routing key {routing_key}." if exchange else f"{routing_key}: no such queue."
    )
    error = BackendUnavailable(said)
    error.__cause__ = _Unroutable(exchange)
    return error


def is_unroutable(error: BaseException | None) -> bool:
    """Whether it is what `unroutable` returned."""
    return error is not None and isinstance(error.__cause__, _Unroutable)


def blocked(reason: str) -> BackendUnavailable:
    """The broker takes no messages: an alarm of its memory or disk. Nothing was sent."""
    return BackendUnavailable(f"RabbitMQ takes no messages at the moment ({reason}).", retry_after=BLOCKED_RETRY)


def closing() -> BackendUnavailable:
    """The bridge stops. Nothing was sent."""
    return BackendUnavailable("The bridge is closing its connection to RabbitMQ.")


def nacked(exchange: str, prefix: str, what: str) -> BridgeError:
    """A queue did not take the message. A destination has more queues, and those may have taken it.

    The default exchange and the bridge's own ones lead to one queue each: then it is certain that nothing was stored.
    """
    if not exchange or exchange.startswith(prefix):
        return BackendFull(f"{what}: the queue is full or has failed.")
    return OutcomeUnknown(f"{what}: a queue is full or has failed; others may have stored the message.")


def untried(what: str) -> BackendUnavailable:
    """A queue has not taken the message before this one, which was not sent."""
    return BackendUnavailable(f"{what}: a queue is full or has failed.")


def unencodable(exchange: str, error: Exception) -> HeaderInvalid:
    """A value that AMQP cannot carry. Nothing was sent."""
    return HeaderInvalid(f"{exchange}: the message holds what AMQP cannot carry ({type(error).__name__}).")


def closed_over_another(error: BaseException) -> BackendUnavailable:
    """The channel closed before this message was looked at. Nothing was stored."""
    return BackendUnavailable(f"{_reason(error)} The message was not stored.")


def unconfirmed_at_close(error: BaseException, exchange: str) -> OutcomeUnknown:
    """The message was sent, and its confirm can come no more."""
    return OutcomeUnknown(f"{exchange}: {_reason(error)} Before that it did not say whether it stored the message.")


def again(error: BridgeError) -> BridgeError:
    """Return the same error for one more message: an exception belongs to one."""
    another = type(error)(error.detail)
    another.retry_after = error.retry_after
    another.__cause__ = error.__cause__
    return another


def too_large(what: str) -> BodyTooLarge:
    """The broker's limit; nothing was stored."""
    return BodyTooLarge(f"{what}: RabbitMQ does not take messages as large (max_message_size).")


def limit_of(error: BaseException) -> int | None:
    """Return how many bytes a message may have, if a channel closed over one that had more."""
    found = _LIMIT.search(error.reply_text) if isinstance(error, pika.ChannelClosedByBroker) else None
    return None if found is None else int(found[1])


def is_of_exchange(error: BaseException) -> bool:
    """Whether a channel closed because of the exchange, so that any other message to it has the same fate."""
    return isinstance(error, pika.ChannelClosedByBroker) and error.reply_code in {NOT_FOUND, ACCESS_REFUSED}


def of_publish(error: BaseException, exchange: str) -> BridgeError:
    """Why a channel closed over a message to that exchange. Nothing was stored."""
    if isinstance(error, pika.ChannelClosedByBroker) and error.reply_code == NOT_FOUND:
        return exchange_gone(exchange)
    if isinstance(error, pika.ChannelClosedByBroker) and error.reply_code == PRECONDITION_FAILED:
        if limit_of(error) is not None:
            return too_large(exchange)
        return Refused(f"{exchange}: RabbitMQ does not take the message ({error.reply_text}).")
    return of_channel(error, exchange)


def _reason(error: BaseException) -> str:
    if isinstance(error, pika.ChannelClosedByBroker):
        return f"RabbitMQ closed the channel ({error.reply_code} {error.reply_text})."
    return of_connection(error).detail


def of_channel(error: BaseException, what: str) -> BridgeError:
    """Why a channel closed in the middle of something; `what` it was about, for a person."""
    if not isinstance(error, pika.ChannelClosedByBroker):
        return of_connection(error)
    code, text = error.reply_code, error.reply_text
    if code == ACCESS_REFUSED:
        return Refused(f"{what}: the bridge's user has no permission for it (RabbitMQ's permissions).")
    if any(words in text for words in _ASLEEP):
        return BackendUnavailable(f"{what}: RabbitMQ does not serve it yet ({text}).")
    if code == NOT_FOUND:
        return DestinationUnknown(f"{what}: there is no such exchange or queue.")
    if code == PRECONDITION_FAILED:
        return Refused(f"{what}: it exists and is declared otherwise ({text}).")
    return BackendUnavailable(f"{what}: RabbitMQ closed the channel ({code} {text}).")


def of_connection(error: BaseException, server: str | None = None) -> BackendUnavailable:
    """Why there is no connection (to `server`, `host:port`), or not any more."""
    return BackendUnavailable(f"RabbitMQ{'' if server is None else f', {server}'}: {reason_of(error)}.")
