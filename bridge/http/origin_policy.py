"""Which hosts and origins may use the data port.

Every web page that a user of the machine opens can reach a bridge on loopback. A page can rebind its own name to
127.0.0.1, so the `Host` header is checked. It can post across origins, so the `Origin` header is checked. It can also
take messages with a GET that has no `Origin`, such as that of an image, so `Sec-Fetch-Site` is checked. Browsers send
that header only to https and to loopback; for the others `check_taking` asks for a header that a page cannot send.
"""

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from bridge.errors import Forbidden
from bridge.http.request_and_reply import Pair
from bridge.wire.header_text import printable
from bridge.wire.headers import Headers

PULL: Final = "GET /v1/messages"
TAKING: Final = frozenset((PULL, "GET /v1/push"))
"""The routes whose GET settles or leases messages."""
LOG_INTERVAL: Final = 60.0
"""Seconds between two warnings about the same host or origin."""
LOGGED_MAX: Final = 20
"""Hosts and origins that are remembered for the interval; more are counted, but not logged."""

_OWN_SITES: Final = frozenset((b"same-origin", b"none"))
"""Values of `Sec-Fetch-Site` for a request of the bridge's own page, or of the user."""
_CROSS_SITE: Final = (
    "a web page of another origin has sent the request; to allow it, add the page's origin to the setting http.origins"
)
_NO_HEADER: Final = (
    "over plain http beyond loopback, taking messages needs an x-oms- header such as x-oms-version, because any web"
    " page can send a request without one"
)

_log = logging.getLogger("bridge.http")


class OriginPolicy:
    """`hosts`: allowed besides loopback and IP addresses, `*` allows any. `origins`: as browsers send them.

    `tls`: whether the data port speaks TLS. Every check raises `Forbidden`, and logs it.
    """

    def __init__(self, hosts: Collection[str], origins: Collection[str], *, tls: bool = False) -> None:
        self._any_host = "*" in hosts
        self._hosts = frozenset(host.removesuffix(".") for host in (*hosts, "localhost"))
        self._origins = frozenset(origins)
        self._tls = tls
        self._is_host_allowed = lru_cache(maxsize=256)(self._check_host)
        self._refusals = RefusalLog()

    def check(self, headers: Mapping[bytes, bytes]) -> list[Pair]:
        """Return the headers that a reply to a page of another origin needs. `headers`: the request's, not x-oms-."""
        host, origin, site = headers.get(b"host"), headers.get(b"origin"), headers.get(b"sec-fetch-site")
        if host is not None and not self._is_host_allowed(host):
            raise self._not_allowed("host", host, "http.hosts")
        is_own = site is None or site in _OWN_SITES
        if origin is None:
            if not is_own:
                raise self._refused("sec-fetch-site", site or b"", _CROSS_SITE)
            return []
        if is_own and origin.partition(b"://")[2] == host:
            return []
        if origin.decode("latin-1").lower() not in self._origins:
            raise self._not_allowed("origin", origin, "http.origins")
        return [
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", b"*"),
            (b"vary", b"origin"),
        ]

    def check_taking(self, headers: Headers) -> None:
        """Check a GET of `TAKING`, which has passed `check`: a web page must not have sent it without being asked.

        Without `sec-fetch-site` and `origin` a page may have sent it to plain http beyond loopback, unless it has an
        `x-oms-` header: a browser sends those only after a preflight.
        """
        plain = headers.plain
        if self._tls or b"sec-fetch-site" in plain or b"origin" in plain:
            return
        host = plain.get(b"host")
        if host is None or _is_loopback(host):  # a browser always sends a host
            return
        if not (headers.parameters or headers.fields or headers.properties):
            raise self._refused("host", host, _NO_HEADER)

    def preflight(self, headers: Mapping[bytes, bytes]) -> list[Pair]:
        """Return the headers of the reply to a browser's preflight request."""
        return [
            *self.check(headers),
            (b"access-control-allow-methods", b"GET, POST, PUT"),
            (b"access-control-allow-headers", b"*, authorization"),  # which `*` does not include
            (b"access-control-max-age", b"600"),
        ]

    def _not_allowed(self, header: str, value: bytes, setting: str) -> Forbidden:
        reason = f"its {header} is not allowed; to allow it, add it to the setting {setting}"
        self._refusals.add(header, printable(value), reason)
        return Forbidden(
            f"{header}: `{printable(value)}` is not allowed; to allow it, add it to the setting {setting}."
        )

    def _refused(self, header: str, value: bytes, reason: str) -> Forbidden:
        self._refusals.add(header, printable(value), reason)
        return Forbidden(f"{header}: `{printable(value)}`: {reason}.")

    def _check_host(self, host: bytes) -> bool:
        if self._any_host:
            return True
        name = _host_name(host)
        return name in self._hosts or _address(name) is not None  # an address cannot be rebound, only a name


def _host_name(host: bytes) -> str:
    """Return the name or address of a `Host` header, without port, brackets and the dot at its end.

    An empty text if what follows the name is not a port: a name before a user or password must not count as the host.
    """
    text = host.decode("latin-1").lower()
    if text.startswith("["):
        name, _, port = text[1:].partition("]")
    elif text.count(":") > 1:  # an IPv6 address without brackets
        return text
    else:
        name, colon, number = text.partition(":")
        port = colon + number
    if port and not (port[0] == ":" and (port[1:] + "0").isdecimal() and port.isascii()):
        return ""
    return name.removesuffix(".")  # a fully qualified name: the same host


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(name)
    except ValueError:
        return None


@lru_cache(maxsize=256)
def _is_loopback(host: bytes) -> bool:
    """Return whether browsers send `Sec-Fetch-Site` to this host over plain http (W3C Secure Contexts 3.1)."""
    name = _host_name(host)
    address = _address(name)
    return name == "localhost" or name.endswith(".localhost") or (address is not None and address.is_loopback)


class RefusalLog:
    """Warns of refused hosts and origins: once in `LOG_INTERVAL` seconds for each, in bounded memory."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()
        """The time of the last warning and the refusals since then, by header and value; the oldest warning first."""
        self._not_remembered = 0

    def add(self, header: str, value: str, reason: str) -> None:
        """Count a refusal, and log it unless the same value was logged within the interval."""
        now, key = self._clock(), (header, value)
        logged_at, suppressed = self._logged.get(key, (-math.inf, 0))
        if now - logged_at < LOG_INTERVAL:
            self._logged[key] = (logged_at, suppressed + 1)
            return
        if key not in self._logged and len(self._logged) >= LOGGED_MAX:
            oldest, (oldest_at, oldest_suppressed) = next(iter(self._logged.items()))
            if now - oldest_at < LOG_INTERVAL:
                self._not_remembered += 1
                return
            del self._logged[oldest]
            self._not_remembered += oldest_suppressed
        self._logged[key] = (now, 0)
        self._logged.move_to_end(key)
        extra: dict[str, object] = {header: value}
        if suppressed:
            extra["suppressed"] = suppressed
        if self._not_remembered:
            extra["suppressed_others"], self._not_remembered = self._not_remembered, 0
        _log.warning("refused a request: %s", reason, extra=extra)
