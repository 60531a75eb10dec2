"""The errors of publishing, from RabbitMQ's reply codes: not stored, outcome unknown, rejected."""

import re
from typing import Final

from pika import exceptions as pika

from adapters.amqp.errors import ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED, of_channel, of_connection
from bridge.errors import (
    BackendFull,
    BackendUnavailable,
    BodyTooLarge,
    BridgeError,
    HeaderInvalid,
    OutcomeUnknown,
    Refused,
)

_LIMIT: Final = re.compile(r"message size \d+ is larger than configured max size (\d+)")


class _Missing(Exception):
    """The cause of `exchange_missing`: a separate class would be one more error code for clients."""


class _Unroutable(Exception):
    """The cause of `unroutable`."""


def exchange_missing(exchange: str) -> BackendUnavailable:
    """The exchange is missing. Nothing was stored; on its next use it is declared again."""
    error = BackendUnavailable(f"{exchange}: there is no such exchange, it may have just been deleted.")
    error.__cause__ = _Missing(exchange)
    return error


def is_missing(error: BaseException | None) -> bool:
    """Whether it is an error of `exchange_missing`."""
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


def nacked(exchange: str, prefix: str, what: str) -> BridgeError:
    """A queue has refused the message. Other queues of the destination may have stored it.

    The default exchange and the bridge's own exchanges route to one queue: then nothing was stored.
    """
    if not exchange or exchange.startswith(prefix):
        return BackendFull(f"{what}: the queue is full or has failed.")
    return OutcomeUnknown(f"{what}: a queue is full or has failed; others may have stored the message.")


def untried(what: str) -> BackendUnavailable:
    """A queue has refused the message before this one. This one was not sent."""
    return BackendUnavailable(f"{what}: a queue is full or has failed.")


def unencodable(exchange: str, error: Exception) -> HeaderInvalid:
    """A value that AMQP cannot carry. Nothing was sent."""
    return HeaderInvalid(f"{exchange}: the message has a value that AMQP cannot carry ({type(error).__name__}).")


def closed_over_another(error: BaseException) -> BackendUnavailable:
    """The channel was closed before the broker handled this message. Nothing was stored."""
    return BackendUnavailable(f"{_reason(error)} The message was not stored.")


def unconfirmed_at_close(error: BaseException, exchange: str) -> OutcomeUnknown:
    """The message was sent, and the broker sends no more confirms."""
    return OutcomeUnknown(f"{exchange}: {_reason(error)} Before that it did not say whether it stored the message.")


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
    found = _LIMIT.search(error.reply_text) if isinstance(error, pika.ChannelClosedByBroker) else None
    return None if found is None else int(found[1])


def is_of_exchange(error: BaseException) -> bool:
    """Whether a channel was closed because of the exchange: every message to it has the same outcome."""
    return isinstance(error, pika.ChannelClosedByBroker) and error.reply_code in {NOT_FOUND, ACCESS_REFUSED}


def of_publish(error: BaseException, exchange: str) -> BridgeError:
    """Return the error of the message that was why a channel was closed. Nothing was stored."""
    if isinstance(error, pika.ChannelClosedByBroker) and error.reply_code == NOT_FOUND:
        return exchange_missing(exchange)
    if isinstance(error, pika.ChannelClosedByBroker) and error.reply_code == PRECONDITION_FAILED:
        if limit_of(error) is not None:
            return too_large(exchange)
        return Refused(f"{exchange}: RabbitMQ does not accept the message ({error.reply_text}).")
    return of_channel(error, exchange)


def _reason(error: BaseException) -> str:
    if isinstance(error, pika.ChannelClosedByBroker):
        return f"RabbitMQ closed the channel ({error.reply_code} {error.reply_text})."
    return of_connection(error).detail
