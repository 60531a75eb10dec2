"""Connects to endpoints: resolves a name once, checks every address, and dials one that passed."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Final, TypeVar

import certifi
from aiohappyeyeballs import AddrInfoType, start_connection

from bridge.callbacks.address_policy import AddressPolicy, IPAddress
from bridge.callbacks.allowed_targets import Target
from bridge.callbacks.connection import describe_cause
from bridge.callbacks.retry_policy import NoResponse, RequestBlocked

_NEXT_ADDRESS: Final = 0.25
"""Seconds after which the next address is dialled as well (RFC 8305)."""

P = TypeVar("P", bound=asyncio.Protocol)


class Dialer:
    """The only part of the bridge that connects to a host named by a client."""

    def __init__(self, addresses: AddressPolicy, ca: Path | None = None) -> None:
        self._addresses = addresses
        self._tls = _tls_context(ca)

    async def connect(self, target: Target, create_protocol: Callable[[], P]) -> P:
        """Connect to the host of a URL, with TLS if its scheme is https. Raises `RequestBlocked` and `NoResponse`."""
        host, port = target.host, target.port
        try:
            addresses = [host] if _parse_address(host) else await self.resolve(host, port)
        except OSError as error:
            raise NoResponse(f"the name {host} does not resolve ({describe_cause(error)})") from None
        tls, name = (self._tls, host) if target.scheme == "https" else (None, None)
        try:
            sock = await start_connection(
                [_address_info(address, port) for address in addresses],
                happy_eyeballs_delay=_NEXT_ADDRESS,
                socket_factory=self._create_socket,
            )
            try:
                _, protocol = await asyncio.get_running_loop().create_connection(
                    create_protocol,
                    sock=sock,
                    ssl=tls,
                    server_hostname=name,
                )
            except BaseException:
                sock.close()
                raise
        except OSError as error:
            raise NoResponse(f"no connection to {target.authority} ({describe_cause(error)})") from None
        return protocol

    def literal_refusal(self, host: str) -> str | None:
        """Return why a host that is an address must not be dialled; None if it may be, or if the host is a name."""
        address = _parse_address(host)
        return None if address is None else self._addresses.refusal(address)

    async def resolve(self, host: str, port: int) -> list[str]:
        """Return the addresses of a name. Raises `RequestBlocked` if any of them is forbidden, and `OSError`."""
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(ip_address(sockaddr[0]) for *_, sockaddr in found))
        if not addresses:
            raise OSError(errno.ENODATA, "no address")
        for address in addresses:  # one forbidden address refuses the name: its owner cannot be trusted
            if reason := self._addresses.refusal(address):
                raise RequestBlocked(f"{host} is not dialled: {reason}")
        return [str(address) for address in addresses]

    def _create_socket(self, info: AddrInfoType) -> socket.socket:
        """Check the address that is about to be dialled once more, however it was found."""
        family, kind, protocol, _, sockaddr = info
        address = _parse_address(str(sockaddr[0]))
        reason = "no address" if address is None else self._addresses.refusal(address)
        if reason:  # an OSError: after any other exception aiohappyeyeballs fails with an IndexError
            raise PermissionError(errno.EACCES, f"{sockaddr[0]} is not dialled: {reason}")
        return socket.socket(family, kind, protocol)


def _parse_address(host: str) -> IPAddress | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _address_info(address: str, port: int) -> AddrInfoType:
    if ":" in address:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port)


def _tls_context(ca: Path | None) -> ssl.SSLContext:
    """Trust the authorities of `ca`, a PEM file, or else certifi's; environment variables have no influence.

    `ssl.create_default_context` would use SSL_CERT_FILE, SSL_CERT_DIR and SSLKEYLOGFILE.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificate and name, TLS 1.2 or newer
    context.load_verify_locations(ca or certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context
