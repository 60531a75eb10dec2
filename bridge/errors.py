"""The one tree of errors. A class is a promise about what became of the message; its code never changes.

Three outcomes a client can tell apart: stored (no error), not stored (every 4xx, and 503 with
`x-oms-retry-safe: true`), unknown (504, or a broken connection).
"""

from typing import ClassVar


class CannotStart(Exception):
    """The backend cannot start and waiting will not mend it: one sentence for the operator, never for a client."""


class BridgeError(Exception):
    """Base of everything this project raises on purpose.

    `detail` is one sentence for a person: what was wrong and what is allowed. `retry_after` is seconds.
    """

    code: ClassVar[str]
    status: ClassVar[int]
    retry_safe: ClassVar[bool] = False

    def __init__(self, detail: str, *, retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.retry_after = retry_after


class Rejected(BridgeError):
    """4xx: the request cannot be honoured as it is. Nothing was stored."""


class NotStored(BridgeError):
    """503: nothing was stored and the same request may succeed later."""

    status = 503
    retry_safe = True

    def __init__(self, detail: str, *, retry_after: int = 1) -> None:
        super().__init__(detail, retry_after=retry_after)


class OutcomeUnknown(BridgeError):
    """504: the message may or may not have been stored. A retry may store it twice."""

    code = "outcome-unknown"
    status = 504


class Internal(BridgeError):
    """500: a defect of the bridge. The outcome is unknown."""

    code = "internal"
    status = 500


class HeaderMissing(Rejected):
    """A header that the request cannot do without is absent."""

    code = "header-missing"
    status = 400


class HeaderInvalid(Rejected):
    """A header or parameter holds something that its type does not allow."""

    code = "header-invalid"
    status = 400


class HeaderRepeated(Rejected):
    """An x-oms-* header came twice, or as a header and as a parameter with different values."""

    code = "header-repeated"
    status = 400


class VersionUnsupported(Rejected):
    """x-oms-version is not 1.x.y."""

    code = "version-unsupported"
    status = 400


class DestinationInvalid(Rejected):
    """A destination or consumer id that no backend could hold."""

    code = "destination-invalid"
    status = 400


class PartitionUnknown(Rejected):
    """The destination has no such partition."""

    code = "partition-unknown"
    status = 400


class BodyInvalid(Rejected):
    """The body is not what its headers say: corrupt gzip, broken multipart, JSON that is none, a length that lies."""

    code = "body-invalid"
    status = 400


class ReceiptInvalid(Rejected):
    """The receipt was not issued by this bridge, or belongs to another group than the one named."""

    code = "receipt-invalid"
    status = 400


class Forbidden(Rejected):
    """A host or an origin that the settings do not name."""

    code = "forbidden"
    status = 403


class CallbackRefused(Rejected):
    """A callback URL that the settings do not allow."""

    code = "callback-refused"
    status = 403


class Refused(Rejected):
    """The backend's own permissions or rules do not let the bridge do this."""

    code = "backend-refused"
    status = 403


class NotFound(Rejected):
    """No such path."""

    code = "not-found"
    status = 404


class DestinationUnknown(Rejected):
    """The destination does not exist and may not be created."""

    code = "destination-unknown"
    status = 404


class MethodNotAllowed(Rejected):
    """The path exists; the method does not."""

    code = "method-not-allowed"
    status = 405


class NotAcceptable(Rejected):
    """The client accepts none of the framings of a push stream."""

    code = "not-acceptable"
    status = 406


class RequestTimeout(Rejected):
    """The request's body did not arrive in time."""

    code = "request-timeout"
    status = 408


class LeaseEnded(Rejected):
    """The receipt's lease has ended: the message may be delivered again."""

    code = "lease-ended"
    status = 410


class BodyTooLarge(Rejected):
    """The body, or what it inflates to, exceeds the limit."""

    code = "body-too-large"
    status = 413


class ContentTypeUnsupported(Rejected):
    """Neither a single message nor a batch form that the bridge reads."""

    code = "content-type-unsupported"
    status = 415


class FieldUnsupported(Rejected):
    """`x-oms-require` names a field that cannot be honoured here."""

    code = "field-unsupported"
    status = 422


class QuotaExceeded(Rejected):
    """The destination's quota of messages per second is used up."""

    code = "quota-exceeded"
    status = 429


class HeadersTooLarge(Rejected):
    """The header block exceeds the limit."""

    code = "headers-too-large"
    status = 431


class TooManyInFlight(NotStored):
    """The bridge is already publishing as many messages, or as many bytes, as it may."""

    code = "too-many-in-flight"


class BackendFull(NotStored):
    """The backend has no room and nothing that it may drop."""

    code = "backend-full"


class BackendUnavailable(NotStored):
    """The backend cannot be reached or has not started yet."""

    code = "backend-unavailable"


class Draining(NotStored):
    """The bridge is stopping; another one will answer."""

    code = "draining"
