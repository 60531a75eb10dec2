"""Why there is no connection to RabbitMQ, for a person."""

import socket
import ssl
from typing import Final

from pika import exceptions as pika


class ClosedInTLS(pika.IncompatibleProtocolError):  # type: ignore[misc] # pika has no types
    """TLS was agreed upon, and then the connection ended: under TLS 1.3 certificates are looked at only then.

    What the broker says about that is often overtaken by the end itself.
    """


_NO_ACCESS: Final = {403, 530}
"""Reply codes of a connection that is closed while it is opened: ACCESS_REFUSED, NOT_ALLOWED."""
_WORDS: Final = (
    (pika.ProbableAuthenticationError, "it does not accept this user and password"),
    (pika.AuthenticationError, "it offers no way to log in that the bridge knows"),
    (
        ClosedInTLS,
        "it does not accept the bridge's certificate, or wants one (certificate= and key=), or does not speak AMQP",
    ),
    (pika.IncompatibleProtocolError, "it does not speak AMQP 0-9-1 on this port, or wants TLS (amqps://)"),
    (pika.AMQPHeartbeatTimeout, "it has given no sign of life for too long"),
)


def reason_of(error: BaseException) -> str:
    """Return it in words that follow "RabbitMQ: "."""
    if isinstance(error.__cause__, ssl.SSLError):  # what pika makes of it depends on when it came
        return _of_tls(error.__cause__)
    code = error.reply_code if isinstance(error, pika.ConnectionClosedByBroker) else None
    if isinstance(error, pika.ProbableAccessDeniedError) or code in _NO_ACCESS:
        return "there is no such virtual host, or this user has no access to it"
    for kind, words in _WORDS:
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
        return f"the name of its host leads nowhere ({error.strerror})"
    if isinstance(error, OSError) and error.errno is None:  # asyncio's, of a name with several addresses
        return "none of the addresses of its host answers"
    return f"the connection was lost ({error})" if isinstance(error, pika.StreamLostError) else str(error)


def _of_tls(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not one to trust ({error.verify_message}); ca= names whom to trust"
    reason = error.reason or str(error)
    if reason == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS on this port (amqp://)"
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return f"it does not accept the bridge's certificate, or wants one: certificate= and key= ({reason})"
    return f"TLS failed ({reason})"
