"""Errors of the bridge for Kafka's error codes and for kafka-python's exceptions: not stored, unknown, rejected.

The codes are the protocol's, for any client.
"""

from typing import Final

from kafka import errors as kafka

from adapters.kafka.options import Options, Security
from bridge.errors import (
    BackendUnavailable,
    BodyTooLarge,
    BridgeError,
    DestinationInvalid,
    DestinationUnknown,
    OutcomeUnknown,
    Refused,
)

UNKNOWN_TOPIC: Final = 3
INVALID_TOPIC: Final = 17

_TOO_LARGE: Final = frozenset({10, 18})
"""MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE."""

_FORBIDDEN: Final = {
    29: "the topic",  # TOPIC_AUTHORIZATION_FAILED
    30: "the group",
    31: "the cluster",
    53: "the transactional id",
    65: "the delegation token",
}
"""*_AUTHORIZATION_FAILED, and the thing that it is about."""

_AGAINST_RULES: Final = {
    21: "its brokers do not know these acks",  # INVALID_REQUIRED_ACKS
    32: "the time of the message is too far from the brokers' clocks",  # INVALID_TIMESTAMP
    37: "the brokers do not allow this number of partitions",  # INVALID_PARTITIONS
    40: "the brokers do not know a setting of the topic",  # INVALID_CONFIG
    43: "its message format is too old",  # UNSUPPORTED_FOR_MESSAGE_FORMAT
    44: "a policy of the cluster forbids it",  # POLICY_VIOLATION
    73: "the brokers do not allow topics to be deleted",  # TOPIC_DELETION_DISABLED
    76: "the brokers do not know this compression",  # UNSUPPORTED_COMPRESSION_TYPE
    87: "the topic does not accept such records (a compacted topic needs a key)",  # INVALID_RECORD
}

_OF_RECORD: Final = frozenset({32, 87})
"""Of these, the reasons for which a topic refuses one record and accepts others."""
OF_BATCH: Final = _TOO_LARGE | _OF_RECORD
"""A batch that is refused so may have records that the topic accepts in another batch."""

_TRANSIENT: Final = {
    2: "a batch was damaged on its way",  # CORRUPT_MESSAGE
    5: "a partition has no leader now",  # LEADER_NOT_AVAILABLE
    6: "the leader of a partition has just changed",  # NOT_LEADER_OR_FOLLOWER
    8: "a broker is not available",  # BROKER_NOT_AVAILABLE
    9: "a replica is not available",  # REPLICA_NOT_AVAILABLE
    14: "a coordinator is just starting",  # COORDINATOR_LOAD_IN_PROGRESS
    15: "no coordinator is available",  # COORDINATOR_NOT_AVAILABLE
    16: "a coordinator has just moved",  # NOT_COORDINATOR
    19: "fewer replicas are in sync than the topic requires",  # NOT_ENOUGH_REPLICAS
    38: "there are fewer brokers than requested replicas",  # INVALID_REPLICATION_FACTOR
    23: "native members use an assignor other than cooperative-sticky",  # INCONSISTENT_GROUP…
    41: "the controller has just changed",  # NOT_CONTROLLER
    60: "a partition is being moved",  # REASSIGNMENT_IN_PROGRESS
    72: "a broker lacks the listener",  # LISTENER_NOT_FOUND
    74: "the leader of a partition has just changed",  # FENCED_LEADER_EPOCH
    75: "the leader of a partition has just changed",  # UNKNOWN_LEADER_EPOCH
    89: "the cluster's quota is used up",  # THROTTLING_QUOTA_EXCEEDED
    100: "a topic has just been recreated",  # UNKNOWN_TOPIC_ID
    103: "a topic has just been recreated",  # INCONSISTENT_TOPIC_ID
}
"""The broker answered before it wrote anything, and the same may succeed later."""

CERTAIN: Final = frozenset({UNKNOWN_TOPIC, INVALID_TOPIC, *_TRANSIENT, *_TOO_LARGE, *_FORBIDDEN, *_AGAINST_RULES})
"""A produce request that was answered so has stored nothing."""

_DOUBTFUL: Final = {
    7: "the replicas did not confirm in time",  # REQUEST_TIMED_OUT
    13: "the connection was lost",  # NETWORK_EXCEPTION
    20: "fewer replicas have it than the topic requires",  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
    45: "an earlier message of this producer is missing",  # OUT_OF_ORDER_SEQUENCE_NUMBER
    47: "this producer was replaced by another",  # INVALID_PRODUCER_EPOCH
    56: "a disk of the broker failed",  # KAFKA_STORAGE_ERROR
    59: "the broker does not know this producer any more",  # UNKNOWN_PRODUCER_ID
    90: "this producer was replaced by another",  # PRODUCER_FENCED
}


class InstanceTaken(BackendUnavailable):
    """Another bridge has joined the group with the same `instance`, so this one is no member of it any more."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}: another bridge has joined with the same instance (?instance= must be different for each bridge)."
        )


class LoginRefused(BackendUnavailable):
    """No server could be used, because of the login or a certificate: that lasts until somebody changes one."""


class TopicRemoved(BackendUnavailable):
    """The topic existed a moment ago. Nothing was stored; its next use looks for it again."""


class RecordRefused(Refused):
    """The topic refuses this record, and accepts others."""


def of_produce(code: int, topic: str) -> BridgeError:
    """Return the error of a record whose produce request was answered with this code the first time it was sent."""
    if code == UNKNOWN_TOPIC:
        return TopicRemoved(f"{topic}: the topic, or this partition of it, has just been deleted.")
    if code in _TOO_LARGE:
        return BodyTooLarge(f"{topic}: Kafka does not accept messages this large (max.message.bytes of the topic).")
    if code in _OF_RECORD:
        return RecordRefused(of_code(code, topic).detail)
    if code in CERTAIN:
        return of_code(code, topic)
    reason = _DOUBTFUL.get(code, f"error {code}")
    return OutcomeUnknown(f"{topic}: Kafka does not say whether it stored the message: {reason}.")


def of_code(code: int, what: str) -> BridgeError:
    """Return the error of a request that stores no message; `what` it was about, for a person."""
    if code == UNKNOWN_TOPIC:
        return DestinationUnknown(f"{what}: there is no such topic or partition.")
    if code == INVALID_TOPIC:
        return DestinationInvalid(f"{what}: Kafka does not allow this name, or has one that differs only in . and _.")
    if code in _FORBIDDEN:
        return Refused(f"{what}: the bridge's user has no permission for {_FORBIDDEN[code]} (Kafka's ACLs).")
    if code in _AGAINST_RULES:
        return Refused(f"{what}: Kafka refuses it: {_AGAINST_RULES[code]}.")
    reason = _TRANSIENT.get(code) or _DOUBTFUL.get(code) or f"error {code}"
    return BackendUnavailable(f"{what}: {reason}.")


_NETWORK: Final[int] = kafka.NetworkExceptionError.errno
_CERTIFICATES: Final = ("certificate verify failed", "CERTIFICATE_REQUIRED")
_SIGNS: Final = {
    "certificate verify failed": (
        "the bridge does not trust its certificate (ca=), or the certificate has another name."
    ),
    "CERTIFICATE_REQUIRED": "it requires a client certificate (certificate=, key=).",
    "Handshake failed": "the TLS handshake failed: the listener may have no TLS, or refuses the bridge's certificate.",
    "Invalid frame": "it does not speak Kafka's protocol: it may expect TLS (tls=true).",
    "ECONNREFUSED": "the connection is refused: nothing listens there.",
    "DNS": "the host name cannot be resolved.",
    "timed out": "it does not answer.",
}
"""Parts of the texts of kafka-python's exceptions, and their meaning."""
_REFUSALS: Final = {
    kafka.SaslAuthenticationFailedError: "authentication failed: a wrong user, password or token.",
    kafka.UnsupportedSaslMechanismError: "this listener does not offer the mechanism of the login.",
    kafka.IllegalSaslStateError: "this listener accepts no login (mechanism=).",
}
REFUSALS: Final = (*_REFUSALS, BridgeError)
"""Errors after which a retry at once fails too, and may lock the user out."""


def code_of(error: BaseException) -> int:
    """Return the protocol's code; that of a broken connection for the library's own exceptions."""
    if isinstance(error, kafka.BrokerResponseError) and error.errno is not None:
        return int(error.errno)
    return _NETWORK


def of_exception(error: BaseException, what: str) -> BridgeError:
    """Return the error for an exception of a request that stores no message; `what` it was about, for a person."""
    if isinstance(error, BridgeError):
        return error
    if isinstance(error, kafka.SaslAuthenticationFailedError):
        return BackendUnavailable(f"Kafka refuses the bridge's login: {error}.")
    if isinstance(error, kafka.BrokerResponseError) and error.errno is not None:
        return of_code(error.errno, what)
    if isinstance(error, kafka.KafkaTimeoutError):
        return BackendUnavailable(f"{what}: Kafka has not answered in time.")
    if isinstance(error, (kafka.KafkaConnectionError, kafka.NodeNotReadyError, kafka.Cancelled)):
        return BackendUnavailable(f"{what}: there is no connection to Kafka.")
    return BackendUnavailable(f"{what}: {type(error).__name__} {error}.")


def no_connection(options: Options, reason: BaseException | None) -> BackendUnavailable:
    """Return the error if none of the servers could be used; `reason`: the exception of the last attempt."""
    is_refused = isinstance(reason, REFUSALS[:-1]) or any(sign in str(reason) for sign in _CERTIFICATES)
    kind = LoginRefused if is_refused else BackendUnavailable
    return kind(f"Kafka at {', '.join(options.servers)}: {_guess(reason, options.security)}")


def _guess(reason: BaseException | None, security: Security) -> str:
    if reason is None:
        return "it does not answer."
    if isinstance(reason, BridgeError):
        return reason.detail
    if said := next((said for kind, said in _REFUSALS.items() if isinstance(reason, kind)), None):
        return said
    text = str(reason)
    if "disconnected" not in text:
        return next((said for sign, said in _SIGNS.items() if sign in text), f"the connection fails ({text}).")
    # A broker closes silently if it expects a login or TLS, and often if a login is wrong.
    cause = "it may expect TLS (tls=true) or a login (mechanism=)."
    if security.mechanism is not None:
        cause = "authentication failed (a wrong user or password), or its listener has another mechanism, or TLS."
    elif security.tls:
        cause = "it may require a client certificate or a login."
    return f"it closes the connection at once: {cause}"
