"""Why a request is not allowed, as metrics and the audit log name it."""

from enum import StrEnum


class Reason(StrEnum):
    """The reasons of denials. A label of a metric: a released one never changes."""

    MISSING = "token-missing"
    MALFORMED = "token-malformed"
    OVERSIZED = "token-oversized"
    UNKNOWN = "token-unknown"
    ISSUER = "issuer-unknown"
    ALGORITHM = "algorithm-not-allowed"
    KEY = "key-unknown"
    SIGNATURE = "signature-wrong"
    AUDIENCE = "audience-wrong"
    EXPIRED = "token-expired"
    EARLY = "token-not-valid-yet"
    REVOKED = "revoked"
    RULES = "not-permitted"
    RECEIPT = "receipt-of-another"
    OWNER = "owned-by-another"


class TokenRefused(Exception):
    """A token does not show who the client is. The text is a part of a sentence, and repeats nothing of the token."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason
