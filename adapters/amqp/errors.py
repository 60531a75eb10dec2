"""Errors of connections and channels, from the reply codes of AMQP."""

import socket
import ssl
from typing import Final

from pika import exceptions as pika

from bridge.errors import BackendUnavailable, BridgeError, DestinationUnknown, Refused

ACCESS_REFUSED: Final = 403
NOT_FOUND: Final = 404
RESOURCE_LOCKED: Final = 405
PRECONDITION_FAILED: Final = 406
_NOT_SERVED: Final = ("is down or inaccessible", "does not have a replica on the local node")
"""RabbitMQ's texts about a queue or stream that exists, in the first moments after a restart."""
BLOCKED_RETRY: Final = 5
"""Seconds until a retry during an alarm of the broker's memory or disk, which ends slowly."""


class ClosedInTLS(pika.IncompatibleProtocolError):  # type: ignore[misc] # pika has no types
    """The connection was closed after the TLS handshake: TLS 1.3 checks the client's certificate only then.

    The broker's alert about it often does not arrive.
    """


_NO_ACCESS: Final = {403, 530}
"""Reply codes of a connection that is closed while it is opened: ACCESS_REFUSED, NOT_ALLOWED."""
_REASONS: Final = (
    (pika.ProbableAuthenticationError, "it does not accept this user and password"),
    (pika.AuthenticationError, "it offers no login mechanism that the bridge supports"),
    (
        ClosedInTLS,
        "it does not accept the bridge's certificate, or requires one (certificate= and key=), or does not speak AMQP",
    ),
    (pika.IncompatibleProtocolError, "it does not speak AMQP 0-9-1 on this port, or requires TLS (amqps://)"),
    (pika.AMQPHeartbeatTimeout, "it has sent no heartbeat for too long"),
)


def reason_of(error: BaseException) -> str:
    """Return the reason of a lost connection as a text behind "RabbitMQ: "."""
    if isinstance(error.__cause__, ssl.SSLError):  # pika's own error depends on the moment
        return _of_tls(error.__cause__)
    code = error.reply_code if isinstance(error, pika.ConnectionClosedByBroker) else None
    if isinstance(error, pika.ProbableAccessDeniedError) or code in _NO_ACCESS:
        return "there is no such virtual host, or this user has no access to it"
    for kind, words in _REASONS:
        if isinstance(error, kind):
            return words
    if isinstance(error, pika.ConnectionClosed):
        return f"the connection was closed ({error.reply_code} {error.reply_text})"
    return _of_socket(error)


def _of_socket(error: BaseException) -> str:
    if isinstance(error, ssl.SSLError):
        return _of_tls(error)
    if isinstance(error, TimeoutError):
        return "it does not answer"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(error, socket.gaierror):
        return f"its host name cannot be resolved ({error.strerror})"
    if isinstance(error, OSError) and error.errno is None:  # asyncio's, of a name with several addresses
        return "none of the addresses of its host answers"
    return f"the connection was lost ({error})" if isinstance(error, pika.StreamLostError) else str(error)


def _of_tls(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}); ca= names the file of the CA to trust"
    reason = error.reason or str(error)
    if reason == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS on this port (amqp://)"
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return f"it does not accept the bridge's certificate, or requires one: certificate= and key= ({reason})"
    return f"TLS failed ({reason})"


def blocked(reason: str) -> BackendUnavailable:
    """The broker accepts no messages: an alarm of its memory or disk. Nothing was sent."""
    return BackendUnavailable(f"RabbitMQ accepts no messages at the moment ({reason}).", retry_after=BLOCKED_RETRY)


def closing() -> BackendUnavailable:
    """The bridge stops. Nothing was sent."""
    return BackendUnavailable("The bridge is closing its connection to RabbitMQ.")


def of_channel(error: BaseException, subject: str) -> BridgeError:
    """Return the error of a closed channel; `subject` is named in it."""
    if not isinstance(error, pika.ChannelClosedByBroker):
        return of_connection(error)
    code, text = error.reply_code, error.reply_text
    if code == ACCESS_REFUSED:
        return Refused(f"{subject}: the bridge's user has no permission for it (RabbitMQ's permissions).")
    if any(words in text for words in _NOT_SERVED):
        return BackendUnavailable(f"{subject}: RabbitMQ does not serve it yet ({text}).")
    if code == NOT_FOUND:
        return DestinationUnknown(f"{subject}: there is no such exchange or queue.")
    if code == PRECONDITION_FAILED:
        return Refused(f"{subject}: it exists and is declared differently ({text}).")
    return BackendUnavailable(f"{subject}: RabbitMQ closed the channel ({code} {text}).")


def of_connection(error: BaseException, server: str | None = None) -> BackendUnavailable:
    """Return the error of a connection (to `server`, `host:port`) that failed or was lost."""
    return BackendUnavailable(f"RabbitMQ{'' if server is None else f', {server}'}: {reason_of(error)}.")
