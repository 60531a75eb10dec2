"""librdkafka's errors as ours: its own codes are negative, the brokers' are the protocol's."""

import time
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from adapters.kafka import outcomes
from bridge.errors import (
    BackendUnavailable,
    BodyTooLarge,
    BridgeError,
    CannotStart,
    OutcomeUnknown,
)

# ruff: noqa: SLF001 - librdkafka's own codes are named with an underscore

ALL_DOWN: Final = KafkaError._ALL_BROKERS_DOWN
"""librdkafka says it after the reasons, again and again while it tries to connect."""
_QUIET: Final = 5.0
"""Seconds without an error after which an outage is over; it is tried twice a second to connect."""


class Outages:
    """Counts all that is said of one outage as one."""

    def __init__(self) -> None:
        self._said_at = -_QUIET

    def new(self) -> bool:
        """Whether what is said now is the first of it."""
        before, self._said_at = self._said_at, time.monotonic()
        return self._said_at - before > _QUIET


def reason_of(exception: KafkaException) -> KafkaError:
    """Return what librdkafka raised."""
    error: KafkaError = exception.args[0]
    return error


def fatal(error: KafkaError) -> bool:
    """Whether this client will never do its work again."""
    return error.fatal() or error.code() == KafkaError._FATAL


def of_creation(error: KafkaError, what: str) -> BackendUnavailable | CannotStart:
    """Why there is no client: it got no token in time, or does not understand its settings."""
    if error.code() == KafkaError.SASL_AUTHENTICATION_FAILED:
        return BackendUnavailable(f"{what}: {error.str()}.")
    return CannotStart(f"{what}: {error.str()}.")


def of_send(error: KafkaError, topic: str) -> BridgeError:
    """Why a record was not taken at all: nothing of it has left this process."""
    match error.code():
        case KafkaError._UNKNOWN_PARTITION:  # the engine chose one that there was: the topic was deleted
            return outcomes.of_produce(outcomes.UNKNOWN_TOPIC, topic)
        case KafkaError.MSG_SIZE_TOO_LARGE:
            return BodyTooLarge(f"{topic}: librdkafka sends at most 1,000,000,000 bytes at once.")
        case code if code > 0:
            return outcomes.of_produce(code, topic)
        case _:
            return BackendUnavailable(f"{topic}: {error.str()}.")


def of_delivery(error: KafkaError, topic: str) -> BridgeError:
    """What became of a record that was taken, and then reported as failed."""
    code = error.code()
    if code > 0:
        return outcomes.of_produce(code, topic)
    if code in {KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}:
        return outcomes.of_produce(outcomes.UNKNOWN_TOPIC, topic)
    # A message whose time is up may have been on its way once or never: its Python side does not say.
    return OutcomeUnknown(f"{topic}: Kafka does not say whether it stored the message: {error.str()}.")


def of_request(error: KafkaError, what: str) -> BridgeError:
    """Why a request that stores no message failed."""
    if error.code() > 0:
        return outcomes.of_request(error.code(), what)
    return BackendUnavailable(f"{what}: {error.str()}.")
