"""Problem documents (RFC 9457), both directions."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from bridge.errors import BackendUnavailable, BridgeError, HeaderInvalid, OutcomeUnknown

CHALLENGE: Final = b"Webhook-Signature"
"""What a 401 demands, since RFC 9110 15.5.2 requires a challenge: a signature. It names no registered scheme."""


def error_classes(base: type[BridgeError] = BridgeError) -> list[type[BridgeError]]:
    """Return every error class that defines a code, in the order of `bridge.errors`.

    Classes without one, such as those that an adapter derives, appear in a problem document under the code that they
    inherit.
    """
    below = [cls for derived in base.__subclasses__() for cls in error_classes(derived)]
    return [*([base] if "code" in vars(base) else []), *below]


_BY_CODE: Final[Mapping[str, type[BridgeError]]] = {cls.code: cls for cls in error_classes()}


def encode(error: BridgeError) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Write an error as headers and body. `x-oms-error` repeats the code for clients that do not parse JSON."""
    pairs = [(b"content-type", b"application/problem+json"), (b"x-oms-error", error.code.encode())]
    if error.retry_after is not None:
        pairs.append((b"retry-after", b"%d" % error.retry_after))
    if error.status == HTTPStatus.UNAUTHORIZED:
        pairs.append((b"www-authenticate", CHALLENGE))
    if error.retry_safe:
        pairs.append((b"x-oms-retry-safe", b"true"))
    return pairs, json.dumps(members(error)).encode()


def members(error: BridgeError) -> dict[str, object]:
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


def decode(status: int, document: object) -> BridgeError:
    """Return the error that a problem document describes. For an unknown code, the class follows from the status."""
    known = document if isinstance(document, dict) else {}
    code, detail = str(known.get("code", "")), str(known.get("detail", f"The bridge answered {status}."))
    if code in _BY_CODE:
        return _BY_CODE[code](detail)
    if known.get("retrySafe") is True:
        return BackendUnavailable(detail)
    return HeaderInvalid(detail) if status < HTTPStatus.INTERNAL_SERVER_ERROR else OutcomeUnknown(detail)
