"""What RabbitMQ's reply codes mean: not stored, unknown, rejected. The codes are the protocol's."""

from typing import Final

from pika import exceptions as pika

from bridge.errors import BackendUnavailable, BodyTooLarge, BridgeError, DestinationUnknown, Refused

TOO_LARGE: Final = 311
ACCESS_REFUSED: Final = 403
NOT_FOUND: Final = 404
RESOURCE_LOCKED: Final = 405
PRECONDITION_FAILED: Final = 406
_NOT_ALLOWED: Final = 530


def of_channel(error: BaseException, what: str) -> BridgeError:
    """Why a channel closed in the middle of something; `what` it was about, for a person."""
    if not isinstance(error, pika.ChannelClosedByBroker):
        return of_connection(error)
    code, text = error.reply_code, error.reply_text
    if code == TOO_LARGE or "larger than" in text:
        return BodyTooLarge(f"{what}: RabbitMQ does not take messages as large (max_message_size).")
    if code == ACCESS_REFUSED:
        return Refused(f"{what}: the bridge's user has no permission for it (RabbitMQ's permissions).")
    if code == NOT_FOUND:
        return DestinationUnknown(f"{what}: there is no such exchange or queue.")
    if code == PRECONDITION_FAILED:
        return Refused(f"{what}: it exists and is declared otherwise ({text}).")
    return BackendUnavailable(f"{what}: RabbitMQ closed the channel ({code} {text}).")


def of_connection(error: BaseException) -> BackendUnavailable:
    """Why there is no connection, or not any more."""
    if isinstance(error, pika.ProbableAuthenticationError | pika.AuthenticationError):
        reason = "it does not accept this user and password"
    elif isinstance(error, pika.ProbableAccessDeniedError) or (
        isinstance(error, pika.ConnectionClosedByBroker) and error.reply_code in {_NOT_ALLOWED, ACCESS_REFUSED}
    ):
        reason = "there is no such virtual host, or this user has no access to it"
    elif isinstance(error, pika.IncompatibleProtocolError):
        reason = "it does not speak AMQP 0-9-1 on this port, or wants TLS"
    elif isinstance(error, pika.ConnectionClosed):
        reason = f"the connection was closed ({error.reply_code} {error.reply_text})"
    else:
        reason = f"{type(error).__name__} {error}"
    return BackendUnavailable(f"RabbitMQ: {reason}.")
