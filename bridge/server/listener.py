"""Where a server listens: address and TLS."""

import socket
import ssl
from pathlib import Path
from typing import Literal, NamedTuple

from bridge.server.connection_limits import BACKLOG, Admission
from bridge.url_host import url_host

ServerKind = Literal["hypercorn", "granian"]

ALPN = ("h2", "http/1.1")

_PROBES = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""TCP probes: a connection is lost after 60 s without a sign of the client. TCP_USER_TIMEOUT would also end the
connection of a client that is alive and reads slowly (a zero window)."""


class Tls(NamedTuple):
    """PEM files. If `client_ca` is set, clients need a certificate of that authority."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


class Listener(NamedTuple):
    """Where to listen. Port 0 means any free one; `header_limit` bounds one request's header block, in bytes.

    Without `admission` all connections are accepted.
    """

    host: str
    port: int
    tls: Tls | None = None
    header_limit: int = 32768
    admission: Admission | None = None


def bind(listener: Listener) -> socket.socket:
    """Return a listening socket.

    Raises OSError, with a sentence that names the address, if it cannot be bound.
    """
    host, port = listener.host, listener.port
    v6 = ":" in host
    try:
        listening = socket.create_server(
            (host, port),
            family=socket.AF_INET6 if v6 else socket.AF_INET,
            backlog=BACKLOG,
            dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6(),
        )
    except OSError as error:
        address = f"{url_host(host)}:{port}"
        reason = (error.strerror or "").partition(" (while")[0]  # Python adds the address a second time
        raise OSError(error.errno, f"cannot listen on {address}: {reason}") from error
    # Accepted sockets inherit these (Linux). Without probes a stream would outlive a client that lost power.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        if hasattr(socket, name):  # not on every system
            listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return listening


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Return a context for TLS 1.2 and later that offers HTTP/2 and HTTP/1.1.

    Raises OSError, with a sentence that names the file, if one cannot be used.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(list(ALPN))
    try:
        context.load_cert_chain(tls.certificate, tls.key, _no_password)
    except OSError as error:  # ssl.SSLError is one
        raise OSError(f"cannot use {tls.certificate} with {tls.key}: {_reason(error)}") from error
    if tls.client_ca is not None:
        try:
            context.load_verify_locations(tls.client_ca)
        except OSError as error:
            raise OSError(f"cannot use {tls.client_ca}: {_reason(error)}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _no_password() -> str:
    """Refuse an encrypted key. Without this OpenSSL would ask for its password on the terminal, and wait."""
    raise OSError("the key is encrypted; give one without a password")


def _reason(error: OSError) -> str:
    """Return the reason without OpenSSL's error numbers."""
    if not isinstance(error, ssl.SSLError):
        return error.strerror or str(error)
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the key does not belong to the certificate"
    return f"PEM is expected ({error.reason or 'nothing in it can be read'})"
