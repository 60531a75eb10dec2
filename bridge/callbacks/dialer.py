"""From a name to a connection: resolve once, judge every address, dial one of those judged."""

import asyncio
import errno
import socket
import ssl
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import certifi
from aiohttp import AddrInfoType, TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult

from bridge.callbacks.addresses import Address, Addresses
from bridge.callbacks.answer import Refused
from bridge.callbacks.connection import Connection

IDLE_SECONDS: Final = 4.0
"""How long a connection waits for its next POST: less than the 5 s after which Node and uvicorn close theirs."""


class Dialer(AbstractResolver):
    """The one place of the bridge that connects to what a client named."""

    def __init__(self, addresses: Addresses, ca: Path | None = None) -> None:
        self._addresses = addresses
        self._tls = _tls(ca)

    def connector(self) -> TCPConnector:
        """Return aiohttp's pool of connections, all of them dialled by this. Only where a loop runs."""
        connector = TCPConnector(
            resolver=self,
            socket_factory=self._socket,
            ssl=self._tls,
            use_dns_cache=False,
            keepalive_timeout=IDLE_SECONDS,
            limit=0,  # Egress has its own places
        )
        connector._factory = partial(Connection, set())  # type: ignore[assignment]  # noqa: SLF001 - no public way in 3.14.5
        return connector

    def judge(self, host: str) -> None:
        """Raise `Refused` for an address that is forbidden: aiohttp resolves names only. A name passes."""
        if (address := _address(host)) is not None:
            self._judge(host, address)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a name. Raises `Refused` when any of them is forbidden, and `OSError`."""
        found = await asyncio.get_running_loop().getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(ip_address(sockaddr[0]) for *_, sockaddr in found))
        if not addresses:
            raise OSError(errno.ENODATA, "no address")
        for address in addresses:  # one forbidden address refuses the name: who controls it cannot be trusted
            self._judge(host, address)
        return [
            ResolveResult(hostname=host, host=str(address), port=port, family=family, proto=0, flags=0)
            for address in addresses
        ]

    async def close(self) -> None:
        """Nothing is kept."""

    def _judge(self, host: str, address: Address) -> None:
        if reason := self._addresses.verdict(address):
            raise Refused(f"{host} is not dialled: {reason}")

    def _socket(self, info: AddrInfoType) -> socket.socket:
        """Judge once more the very address that is about to be dialled, whatever aiohttp made of host and name."""
        family, kind, protocol, _, sockaddr = info
        address = _address(str(sockaddr[0]))
        reason = "no address" if address is None else self._addresses.verdict(address)
        if reason:  # an OSError, for aiohappyeyeballs fails with IndexError where every attempt raised something else
            raise PermissionError(errno.EACCES, f"{sockaddr[0]} is not dialled: {reason}")
        return socket.socket(family, kind, protocol)


def _address(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _tls(ca: Path | None) -> ssl.SSLContext:
    """Trust `ca`, a PEM file, or else certifi's authorities; the environment has no say in it.

    `ssl.create_default_context` would obey SSL_CERT_FILE, SSL_CERT_DIR and SSLKEYLOGFILE.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificate and name, TLS 1.2 or newer
    context.load_verify_locations(ca or certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context
