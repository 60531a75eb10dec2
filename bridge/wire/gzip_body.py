"""gzip bodies of requests and responses: inflated up to a limit, and sent as gzip only to clients that accept it."""

from collections.abc import Iterator
from typing import Final

from bridge.errors import BodyInvalid, BodyTooLarge, BridgeError, ContentTypeUnsupported
from bridge.inflate import NotGzip, inflate_in_pieces
from bridge.long_work import Steps
from bridge.message import Message
from bridge.wire.header_text import printable

GZIP: Final = "gzip"


def inflate(body: bytes, limit: int) -> Iterator[bytes]:
    """Yield the content of a gzip body of one or several members, in pieces.

    Raises `BodyInvalid` when it is corrupt, `BodyTooLarge` when the content has more than `limit` bytes.
    """
    size = 0
    try:
        for piece in inflate_in_pieces(body, limit):
            size += len(piece)
            yield piece
    except NotGzip as error:
        raise BodyInvalid(f"x-oms-h-compression (or content-encoding): {error}.") from None
    if size > limit:
        raise BodyTooLarge(f"x-oms-h-compression (or content-encoding): the body inflates to more than {limit} bytes.")


def inflate_message(message: Message, limit: int) -> Steps[Message]:
    """Return the message with its body inflated, for a consumer that does not accept gzip."""
    if message.compression is None:
        return message
    pieces: list[bytes] = []
    try:
        for piece in inflate(message.body, limit):
            pieces.append(piece)
            yield
    except BridgeError:
        return message  # a broker's own client has written something else than it declares: sent unchanged
    return message._replace(compression=None, body=b"".join(pieces))


def is_gzip(content_encoding: bytes | None) -> bool:
    """Whether HTTP's `content-encoding` is gzip. Raises `ContentTypeUnsupported` for another coding, or for several.

    "A recipient SHOULD consider `x-gzip` to be equivalent to `gzip`" (RFC 9110, section 8.4.1.3); `identity` is none.
    """
    if content_encoding is None:
        return False
    listed = (coding.strip(b" \t") for coding in content_encoding.lower().split(b","))
    codings = [coding for coding in listed if coding not in (b"", b"identity")]
    if codings and codings not in ([b"gzip"], [b"x-gzip"]):
        raise ContentTypeUnsupported(f"content-encoding must be gzip, not {printable(content_encoding)}.")
    return bool(codings)


def accepts_gzip(accept_encoding: bytes) -> bool:
    """Whether an `accept-encoding` header names gzip (RFC 9110 12.5.3). `*` or no header do not count."""
    for item in accept_encoding.lower().split(b","):
        coding, _, weight = item.partition(b";")
        if coding.strip() in (b"gzip", b"x-gzip"):
            return weight.replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000")
    return False
