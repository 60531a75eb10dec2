"""Problem documents (RFC 9457), both directions."""

import json

from bridge.errors import BackendUnavailable, BridgeError, HeaderInvalid, OutcomeUnknown


def encode(error: BridgeError) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Write an error as headers and body; the code stands in `x-oms-error` too, for clients that read no JSON."""
    pairs = [(b"content-type", b"application/problem+json"), (b"x-oms-error", error.code.encode())]
    if error.retry_after is not None:
        pairs.append((b"retry-after", b"%d" % error.retry_after))
    if error.retry_safe:
        pairs.append((b"x-oms-retry-safe", b"true"))
    return pairs, json.dumps(members(error)).encode()


def members(error: BridgeError) -> dict[str, object]:
    """Return the document's members, as a batch's reply holds them one per message."""
    return {
        "type": f"urn:openmessaging-bridge:problem:{error.code}",
        "title": error.code.replace("-", " ").capitalize(),
        "status": error.status,
        "code": error.code,
        "detail": error.detail,
        "retrySafe": error.retry_safe,
    }


def decode(status: int, document: object) -> BridgeError:
    """Read a problem document back into the error tree; an unknown code becomes the class its status promises."""
    known = document if isinstance(document, dict) else {}
    code, detail = str(known.get("code", "")), str(known.get("detail", f"The bridge answered {status}."))
    for cls in _leaves(BridgeError):
        if cls.code == code:
            return cls(detail)
    return _of_status(status, detail, retry_safe=known.get("retrySafe") is True)


def _leaves(cls: type[BridgeError]) -> list[type[BridgeError]]:
    below = [leaf for sub in cls.__subclasses__() for leaf in _leaves(sub)]
    return below + ([cls] if "code" in vars(cls) else [])


def _of_status(status: int, detail: str, *, retry_safe: bool) -> BridgeError:
    if retry_safe:
        return BackendUnavailable(detail)
    return HeaderInvalid(detail) if status < 500 else OutcomeUnknown(detail)  # noqa: PLR2004
