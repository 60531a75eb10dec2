"""Whether a TCP connection is still open in both directions, as the kernel says (`sock_diag` of Linux)."""

import errno
import socket
import struct
from contextlib import suppress
from functools import lru_cache
from typing import Final

_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_F_REQUEST: Final = 1
_NLMSG_ERROR: Final = 2
_ESTABLISHED: Final = 1
_LISTEN: Final = 10
_ANY: Final = 0xFFFFFFFF

_HEADER: Final = struct.Struct("=IHHII")
"""`nlmsghdr`: length, type, flags, sequence, sender."""
_REQUEST: Final = struct.Struct("=BBBxI")
"""Of `inet_diag_req_v2`: address family, protocol, extensions, states."""
_INTERFACE: Final = struct.pack("=III", 0, _ANY, _ANY)
"""Any interface, without a cookie."""

_WILDCARDS: Final = frozenset(("0.0.0.0", "::"))  # noqa: S104 - a comparison
"""Granian names the address that it listens on, which may be none of a connection."""

Address = tuple[str, str | int]


class TcpStates:
    """Asks the kernel for the states of connections: 10 us each, whatever their number."""

    def __init__(self) -> None:
        self._netlink: socket.socket | None = None
        with suppress(OSError, AttributeError):  # another system, or a sandbox
            self._netlink = socket.socket(
                socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG
            )
            self._netlink.connect((0, 0))

    def is_open(self, local: Address, remote: Address) -> bool:
        """Return False if the remote side has closed the connection, or its sending half. True: not, or not known."""
        if self._netlink is None:
            return True
        is_guessed = local[0] in _WILDCARDS
        try:
            if is_guessed:
                local = _address_towards(str(remote[0])), local[1]
            self._netlink.send(_encode(local, remote))
            reply = self._netlink.recv(8192)
        except OSError:
            return True
        kind = _HEADER.unpack_from(reply)[1]
        if kind == _NLMSG_ERROR:
            code: int = struct.unpack_from("=i", reply, _HEADER.size)[0]
            return is_guessed or code != -errno.ENOENT
        state = reply[_HEADER.size + 1]  # that of the listening socket, if the guess is wrong
        return kind != _SOCK_DIAG_BY_FAMILY or state == _ESTABLISHED or (is_guessed and state == _LISTEN)

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
