"""Which hosts and origins may speak to the data port.

A sidecar listens on loopback, where every web page that the machine's user opens can send requests too: a page may
rebind its own name to 127.0.0.1 (so the Host is checked) or simply post across origins (so the Origin is).
"""

from collections.abc import Collection
from functools import lru_cache
from ipaddress import ip_address

from bridge.errors import Forbidden
from bridge.http.exchange import Pair
from bridge.wire.text import printable


class Guard:
    """`hosts` beside loopback and IP addresses, `*` for any; `origins` as browsers send them."""

    def __init__(self, hosts: Collection[str], origins: Collection[str]) -> None:
        self._any_host = "*" in hosts
        self._hosts = frozenset((*hosts, "localhost"))
        self._origins = frozenset(origins)
        self._host_allowed = lru_cache(maxsize=256)(self._is_host_allowed)

    def check(self, host: bytes | None, origin: bytes | None) -> list[Pair]:
        """Raise `Forbidden`, or return what the reply must say to a page of another origin."""
        if host is not None and not self._host_allowed(host):
            raise Forbidden(f"host: {printable(host)} is not served; name it under http.hosts in the settings.")
        if origin is None or origin.partition(b"://")[2] == host:
            return []
        if origin.decode("latin-1").lower() not in self._origins:
            raise Forbidden(f"origin: {printable(origin)} may not call; name it under http.origins in the settings.")
        return [
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", b"*"),
            (b"vary", b"origin"),
        ]

    def preflight(self, host: bytes | None, origin: bytes | None) -> list[Pair]:
        """Answer a browser's question before it sends. Raises `Forbidden`."""
        return [
            *self.check(host, origin),
            (b"access-control-allow-methods", b"GET, POST"),
            (b"access-control-allow-headers", b"*"),
            (b"access-control-max-age", b"600"),
        ]

    def _is_host_allowed(self, host: bytes) -> bool:
        if self._any_host:
            return True
        name = host.decode("latin-1").lower()
        if name.startswith("["):
            name = name[1:].partition("]")[0]
        elif name.count(":") <= 1:
            name = name.partition(":")[0]
        if name in self._hosts:
            return True
        try:
            ip_address(name)  # an address cannot be rebound: only names are looked up
        except ValueError:
            return False
        return True
