"""kafka-python's exceptions as errors of the bridge, and the operator's sentence when no connection comes about."""

from typing import Final

from kafka import errors as kafka

from adapters.kafka import outcomes
from adapters.kafka.options import Options
from bridge.errors import BackendUnavailable, BridgeError

_NETWORK: Final[int] = kafka.NetworkExceptionError.errno
_SIGNS: Final = (
    (
        "certificate verify failed",
        "the bridge does not trust its certificate (ca=), or the certificate has another name.",
    ),
    ("CERTIFICATE_REQUIRED", "it requires a client certificate (certificate=, key=)."),
    (
        "Handshake failed",
        "the TLS handshake failed: the listener may have no TLS, or refuses the bridge's certificate.",
    ),
    ("Invalid frame", "it does not speak Kafka's protocol: it may expect TLS (tls=true)."),
    ("ECONNREFUSED", "the connection is refused: nothing listens there."),
    ("DNS", "the host name cannot be resolved."),
    ("timed out", "it does not answer."),
)
"""What stands in kafka-python's exceptions, and what it means."""
_REFUSALS: Final = (
    (kafka.SaslAuthenticationFailedError, "authentication failed: a wrong user, password or token."),
    (kafka.UnsupportedSaslMechanismError, "this listener does not offer the mechanism of the login."),
    (kafka.IllegalSaslStateError, "this listener accepts no login (mechanism=)."),
)
REFUSALS: Final = (*(kind for kind, _ in _REFUSALS), BridgeError)
"""Errors after which a retry at once fails too, and may lock the user out."""


def code_of(error: BaseException) -> int:
    """Return the protocol's code; that of a broken connection for everything that is the library's own."""
    if isinstance(error, kafka.BrokerResponseError) and error.errno is not None:
        return int(error.errno)
    return _NETWORK


def of_request(error: BaseException, what: str) -> BridgeError:
    """Why a request that stores no message failed; `what` it was about, for a person."""
    if isinstance(error, BridgeError):
        return error
    if isinstance(error, kafka.SaslAuthenticationFailedError):
        return BackendUnavailable(f"Kafka refuses the bridge's login: {error}.")
    if isinstance(error, kafka.BrokerResponseError) and error.errno is not None:
        return outcomes.of_request(error.errno, what)
    if isinstance(error, kafka.KafkaTimeoutError):
        return BackendUnavailable(f"{what}: Kafka has not answered in time.")
    if isinstance(error, (kafka.KafkaConnectionError, kafka.NodeNotReadyError, kafka.Cancelled)):
        return BackendUnavailable(f"{what}: there is no connection to Kafka.")
    return BackendUnavailable(f"{what}: {type(error).__name__} {error}.")


def no_connection(options: Options, reason: BaseException | None) -> BackendUnavailable:
    """Say what may be wrong when none of the servers could be used; `reason` is what the last try ended with."""
    security = options.security
    guess = _guess(reason, tls=security.tls, login=security.mechanism is not None)
    return BackendUnavailable(f"Kafka at {', '.join(options.servers)}: {guess}")


def _guess(reason: BaseException | None, *, tls: bool, login: bool) -> str:
    if reason is None:
        return "it does not answer."
    if isinstance(reason, BridgeError):
        return reason.detail
    if said := next((said for kind, said in _REFUSALS if isinstance(reason, kind)), None):
        return said
    text = str(reason)
    if "disconnected" in text:
        return f"it closes the connection at once: {_why_ended(tls=tls, login=login)}"
    return next((said for sign, said in _SIGNS if sign in text), f"the connection fails ({text}).")


def _why_ended(*, tls: bool, login: bool) -> str:
    """A broker closes silently if it expects a login or TLS, and often if a login is wrong."""
    if login:
        return "authentication failed (a wrong user or password), or its listener has another mechanism, or TLS."
    if tls:
        return "it may require a client certificate or a login."
    return "it may expect TLS (tls=true) or a login (mechanism=)."
