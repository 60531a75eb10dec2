"""All errors of the bridge, and their problem documents (RFC 9457). An error's code never changes.

An error's class says whether the message was stored. A client can distinguish three outcomes: stored (no error), not
stored (every 4xx, and 503 with `x-oms-retry-safe: true`), unknown (500, 504, or a broken connection).
"""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import ClassVar, Final, Self

OWNER_END: Final = "\x1f"
"""Separates, in the id by which a backend knows a transaction, its owner from the id that clients see.

Clients cannot send it, so no client can name the transaction of another owner.
"""


def visible_id(transaction: str) -> str:
    """Return the id of a transaction as clients see it: without its owner."""
    return transaction.rpartition(OWNER_END)[2]


class CannotStart(Exception):
    """The backend cannot start, and a retry cannot help. The text is for the operator, never for a client."""


def needs_extra(what: str, module: str | None, extra: str) -> CannotStart:
    """Return the error of what cannot start without a module of an extra that is not installed."""
    return CannotStart(f"{what} needs {module}: pip install 'openmessaging-bridge[{extra}]'.")


class BridgeError(Exception):
    """Base of every error that clients get.

    `detail` is for people: what is wrong, and what is allowed. `retry_after` is in seconds.
    """

    code: ClassVar[str]
    status: ClassVar[int]
    retry_safe: ClassVar[bool] = False
    extra: Mapping[str, str] = {}
    """More members of the problem document."""
    challenge: bytes | None = None
    """What a 401 demands, as RFC 9110 15.5.2 requires."""

    def __init__(self, detail: str, *, retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.retry_after = retry_after


class Rejected(BridgeError):
    """4xx: the request is invalid or not allowed. Nothing was stored."""


class NotStored(BridgeError):
    """503: nothing was stored, and the same request may succeed later."""

    status = 503
    retry_safe = True

    def __init__(self, detail: str, *, retry_after: int = 1) -> None:
        super().__init__(detail, retry_after=retry_after)


class OutcomeUnknown(BridgeError):
    """The message may or may not have been stored. A retry may store it twice."""

    code = "outcome-unknown"
    status = 504


class Internal(BridgeError):
    """A defect of the bridge. The outcome is unknown."""

    code = "internal"
    status = 500


class RequestMalformed(Rejected):
    """The bytes are no valid HTTP request, or two readers could disagree about where it ends."""

    code = "request-malformed"
    status = 400


class HeaderMissing(Rejected):
    """A required header is missing."""

    code = "header-missing"
    status = 400


class HeaderInvalid(Rejected):
    """The value of a header or parameter is not allowed."""

    code = "header-invalid"
    status = 400


class HeaderRepeated(Rejected):
    """An x-oms-* header was sent twice, or as a header and as a parameter with different values."""

    code = "header-repeated"
    status = 400


class VersionUnsupported(Rejected):
    """x-oms-version is not 1.x.y."""

    code = "version-unsupported"
    status = 400


class DestinationInvalid(Rejected):
    """The name of a destination or consumer id is not allowed."""

    code = "destination-invalid"
    status = 400


class PartitionUnknown(Rejected):
    """The destination does not have this partition."""

    code = "partition-unknown"
    status = 400


class BodyInvalid(Rejected):
    """The body does not match its headers: corrupt gzip, broken multipart, invalid JSON, a wrong length."""

    code = "body-invalid"
    status = 400


class ReceiptInvalid(Rejected):
    """The receipt was not issued by this bridge, or belongs to another group than the request names."""

    code = "receipt-invalid"
    status = 400


class SignatureInvalid(Rejected):
    """The destination takes only signed requests, and the signature is missing, wrong or too old."""

    code = "signature-invalid"
    status = 401
    challenge = b"Webhook-Signature"  # it names no registered scheme


class Unauthenticated(Rejected):
    """The request has no token, or its token does not show who the client is; `detail` says why."""

    code = "unauthenticated"
    status = 401
    challenge = b"Bearer"

    def __init__(self, detail: str, *, challenge: bytes = b"Bearer") -> None:
        super().__init__(detail)
        self.challenge = challenge


class NotPermitted(Rejected):
    """The rules do not let the client do this."""

    code = "not-permitted"
    status = 403


class Forbidden(Rejected):
    """The host or the origin of the request is not in the settings."""

    code = "forbidden"
    status = 403


class CallbackRefused(Rejected):
    """The settings do not allow this callback URL."""

    code = "callback-refused"
    status = 403


class Refused(Rejected):
    """The backend's permissions or rules do not allow the bridge to do this."""

    code = "backend-refused"
    status = 403


class NotFound(Rejected):
    """The path does not exist."""

    code = "not-found"
    status = 404


class DestinationUnknown(Rejected):
    """The destination does not exist and may not be created."""

    code = "destination-unknown"
    status = 404


class TransactionUnknown(Rejected):
    """No transaction of this id is open, and none ended lately."""

    code = "transaction-unknown"
    status = 404

    @classmethod
    def of(cls, name: str) -> Self:
        """Return the error for the id of a transaction."""
        return cls(f"No transaction {visible_id(name)[:300]!a} is open, and none ended lately.")


class MethodNotAllowed(Rejected):
    """The path exists, but not with this method."""

    code = "method-not-allowed"
    status = 405


class NotAcceptable(Rejected):
    """The client accepts none of the media types of a push stream."""

    code = "not-acceptable"
    status = 406


class RequestTimeout(Rejected):
    """The request's body did not arrive in time."""

    code = "request-timeout"
    status = 408


class TransactionEnded(Rejected):
    """The transaction has ended, and not as the request asks: `detail` says whether it was committed or rolled back."""

    code = "transaction-ended"
    status = 409

    @classmethod
    def of(cls, name: str, state: str) -> Self:
        """Return the error for a transaction that is `committed` or `rolled-back`."""
        return cls(f"The transaction {visible_id(name)[:300]!a} was {state.replace('-', ' ')}.")


class LeaseEnded(Rejected):
    """The lease of the receipt has ended: the message may be delivered again."""

    code = "lease-ended"
    status = 410


class BodyTooLarge(Rejected):
    """The body, or the inflated body, exceeds the limit."""

    code = "body-too-large"
    status = 413


class ContentTypeUnsupported(Rejected):
    """The content type is neither that of a single message nor that of a batch."""

    code = "content-type-unsupported"
    status = 415


class FieldUnsupported(Rejected):
    """`x-oms-require` names a field that this backend does not support."""

    code = "field-unsupported"
    status = 422


class IdempotencyMismatch(Rejected):
    """A message of this messageId or idempotency key was produced lately, with another body."""

    code = "idempotency-mismatch"
    status = 422


class QuotaExceeded(Rejected):
    """The destination's quota of messages per second is exceeded."""

    code = "quota-exceeded"
    status = 429


class LimitReached(Rejected):
    """The client address has its share of what all clients use together, such as destinations or waiting pulls."""

    code = "limit-reached"
    status = 429


class HeadersTooLarge(Rejected):
    """The header block exceeds the limit."""

    code = "headers-too-large"
    status = 431


class TooManyInFlight(NotStored):
    """The bridge has reached its limit of messages or bytes being published, or of waiting pulls."""

    code = "too-many-in-flight"


class BackendFull(NotStored):
    """The backend is full and has no messages that it may drop."""

    code = "backend-full"


class BackendUnavailable(NotStored):
    """The backend cannot be reached or has not started yet."""

    code = "backend-unavailable"


class IdentityUnavailable(NotStored):
    """The token cannot be checked yet: the keys of its issuer could not be fetched."""

    code = "identity-unavailable"


class Draining(NotStored):
    """The bridge is stopping."""

    code = "draining"


def error_classes(base: type[BridgeError] = BridgeError) -> list[type[BridgeError]]:
    """Return every error class that defines a code, in the order of this module.

    Classes without one, such as those that an adapter derives, appear in a problem document under the code that they
    inherit.
    """
    below = [cls for derived in base.__subclasses__() for cls in error_classes(derived)]
    return [*([base] if "code" in vars(base) else []), *below]


_BY_CODE: Final[Mapping[str, type[BridgeError]]] = {cls.code: cls for cls in error_classes()}


def encode_problem(error: BridgeError) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Write an error as headers and body. `x-oms-error` repeats the code for clients that do not parse JSON."""
    pairs = [(b"content-type", b"application/problem+json"), (b"x-oms-error", error.code.encode())]
    if error.retry_after is not None:
        pairs.append((b"retry-after", b"%d" % error.retry_after))
    if error.challenge is not None:
        pairs.append((b"www-authenticate", error.challenge))
    if error.retry_safe:
        pairs.append((b"x-oms-retry-safe", b"true"))
    return pairs, json.dumps(problem_members(error)).encode()


def problem_members(error: BridgeError) -> dict[str, object]:
    """Return the members of the document; the reply to a batch has one for each message that was not stored."""
    return {
        "type": f"urn:openmessaging-bridge:problem:{error.code}",
        "title": error.code.replace("-", " ").capitalize(),
        "status": error.status,
        "code": error.code,
        "detail": error.detail,
        "retrySafe": error.retry_safe,
        **error.extra,
    }


def decode_problem(status: int, document: object) -> BridgeError:
    """Return the error that a problem document describes. For an unknown code, the class follows from the status."""
    known = document if isinstance(document, dict) else {}
    code, detail = str(known.get("code", "")), str(known.get("detail", f"The bridge answered {status}."))
    if code in _BY_CODE:
        return _BY_CODE[code](detail)
    if known.get("retrySafe") is True:
        return BackendUnavailable(detail)
    return HeaderInvalid(detail) if status < HTTPStatus.INTERNAL_SERVER_ERROR else OutcomeUnknown(detail)
