"""The target of an HTTP/1.1 request and its host, and what is the same path. For both servers."""

from collections.abc import Iterable
from typing import Final

from bridge.errors import RequestMalformed

Pair = tuple[bytes, bytes]

_SCHEMES: Final = (b"http://", b"https://")
_UNRESERVED: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")


def normal_path(raw: bytes) -> str:
    """Return a path in which letters, digits, `-`, `.`, `_` and `~` are not percent-encoded.

    A path with and without this encoding is the same (RFC 3986, section 6.2.2.2). No other character is decoded: a
    proxy in front of the bridge may read `%2F` differently. Such a path matches no route, except in an id at its end,
    which the endpoint decodes. A path with a broken escape is returned unchanged.
    """
    if b"%" not in raw:
        return raw.decode("latin-1")
    first, *pieces = raw.split(b"%")
    decoded = [first]
    for piece in pieces:
        if len(piece) < 2 or piece[0] not in _HEX or piece[1] not in _HEX:  # noqa: PLR2004 - two digits
            return raw.decode("latin-1")
        code = int(piece[:2], 16)
        decoded.append(b"%c%b" % (code, piece[2:]) if code in _UNRESERVED else b"%" + piece)
    return b"".join(decoded).decode("latin-1")


def to_origin_form(method: bytes, target: bytes, headers: list[Pair]) -> tuple[bytes, list[Pair]]:
    """Return the target in origin form (`/path?query`), and the headers with the host of a target in absolute form.

    "A server MUST accept the absolute-form in requests", and "MUST ignore the received Host header field" then
    (RFC 9112, section 3.2.2). Any other target is returned unchanged.
    """
    scheme = target[:8].lower()
    start = next((len(each) for each in _SCHEMES if scheme.startswith(each)), 0)
    if not start:
        return target, headers
    rest = target[start:]
    authority = rest.partition(b"/")[0].partition(b"?")[0]
    at = rest[len(authority) :]
    if not at.startswith(b"/"):
        at = b"*" if method == b"OPTIONS" and not at else b"/" + at
    return at, [(b"host", authority), *(pair for pair in headers if pair[0] != b"host")]


def host_refusal(headers: Iterable[Pair]) -> RequestMalformed | None:
    """Return the error for a request of HTTP/1.1 that has not one host; None: it has one."""
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) == 1 and hosts[0]:
        return None
    return RequestMalformed("host: a request of HTTP/1.1 has exactly one host, which is not empty.")
