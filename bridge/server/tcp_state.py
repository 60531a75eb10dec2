"""Whether a TCP connection is still open in both directions, as the kernel says (`sock_diag` of Linux)."""

import errno
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from typing import Final

_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_F_REQUEST: Final = 1
_NLMSG_ERROR: Final = 2
_ESTABLISHED: Final = 1
_LISTEN: Final = 10
_NONE: Final = -1
"""There is neither such a connection nor a listening socket."""
_UNKNOWN: Final = -2
_ANY: Final = 0xFFFFFFFF

_HEADER: Final = struct.Struct("=IHHII")
"""`nlmsghdr`: length, type, flags, sequence, sender."""
_REQUEST: Final = struct.Struct("=BBBxI")
"""Of `inet_diag_req_v2`: address family, protocol, extensions, states."""
_INTERFACE: Final = struct.pack("=III", 0, _ANY, _ANY)
"""Any interface, without a cookie."""

_ALL: Final = frozenset(("0.0.0.0", "::"))  # noqa: S104 - a comparison
_HOSTS: Final = 1024
"""Clients that are remembered."""

Address = tuple[str, str | int]


class TcpStates:
    """Asks the kernel for the states of connections: 10 us each, whatever their number."""

    def __init__(self) -> None:
        self._found: set[str] = set()
        """Hosts of clients whose connections were found by the address that this host sends to them from."""
        self._netlink: socket.socket | None = None
        with suppress(OSError, AttributeError):  # another system, or a sandbox
            self._netlink = socket.socket(
                socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG
            )
            self._netlink.connect((0, 0))

    def watch(self, listening: Address, remote: Address) -> Callable[[], bool]:
        """Return what `is_open` says of a connection that is open now, accepted where `listening` says.

        A server that listens on all addresses does not say to which of them a client connected. It is taken to be the
        one that this host sends to the client from, once a connection of that client was found so.
        """
        if listening[0] not in _ALL:
            return partial(self.is_open, listening, remote)
        host = str(remote[0])
        try:
            local = _address_towards(host), listening[1]
        except OSError:
            return _unknown
        if host not in self._found:
            if self._state(local, remote) in {_NONE, _LISTEN}:
                return _unknown
            if len(self._found) >= _HOSTS:
                self._found.clear()
            self._found.add(host)
        return partial(self.is_open, local, remote)

    def is_open(self, local: Address, remote: Address) -> bool:
        """Return False if the remote side has closed the connection, or its sending half. True: not, or not known."""
        return self._state(local, remote) in {_ESTABLISHED, _UNKNOWN}

    def _state(self, local: Address, remote: Address) -> int:
        """Return the kernel's number of the state; that of a listening socket if there is no such connection."""
        if self._netlink is None:
            return _UNKNOWN
        try:
            self._netlink.send(_encode(local, remote))
            reply = self._netlink.recv(8192)
        except OSError:
            return _UNKNOWN
        kind = _HEADER.unpack_from(reply)[1]
        if kind == _NLMSG_ERROR:
            code: int = struct.unpack_from("=i", reply, _HEADER.size)[0]
            return _NONE if code == -errno.ENOENT else _UNKNOWN
        return reply[_HEADER.size + 1] if kind == _SOCK_DIAG_BY_FAMILY else _UNKNOWN

    def close(self) -> None:
        """Close the socket."""
        if self._netlink is not None:
            self._netlink.close()
            self._netlink = None


@lru_cache(maxsize=1024)
def _address_towards(host: str) -> str:
    """Return the address from which this host sends to another. Nothing is sent."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 1))
        return str(probe.getsockname()[0])


def _unknown() -> bool:
    return True


def _encode(local: Address, remote: Address) -> bytes:
    family = socket.AF_INET6 if ":" in remote[0] else socket.AF_INET
    addresses = [socket.inet_pton(family, host).ljust(16, b"\0") for host, _ in (local, remote)]
    body = b"".join(
        (
            _REQUEST.pack(family, socket.IPPROTO_TCP, 0, _ANY),
            struct.pack("!HH", int(local[1]), int(remote[1])),
            *addresses,
            _INTERFACE,
        )
    )
    return _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0) + body
