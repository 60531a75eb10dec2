"""Where a server listens: address, TLS, and the limits both servers share."""

import socket
import ssl
from pathlib import Path
from typing import Literal, NamedTuple

Server = Literal["hypercorn", "granian"]

BACKLOG = 1024
"""Connections the kernel holds while the event loop is busy."""

MAX_STREAMS = 128
"""Requests one HTTP/2 connection may have open at a time."""

KEEP_ALIVE = 75.0
"""Seconds after which an idle connection is closed: longer than the pools of common clients keep one."""

PING = 30.0
"""Seconds between pings of an HTTP/2 client. Granian counts from the last frame, Hypercorn from the last ping."""

PONG = 20.0
"""Seconds an HTTP/2 client has to answer a ping: one that does not is gone, and so is its connection."""

ALPN = ("h2", "http/1.1")

_PROBES = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""A peer that has been silent for 60 s is gone. Not TCP_USER_TIMEOUT: that also ends a slow reader, alive behind its
zero window."""


class Tls(NamedTuple):
    """PEM files. With `client_ca` set, a client without a certificate of that authority is refused."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


class Listener(NamedTuple):
    """Where to listen. Port 0 means any free one; `header_limit` bounds one request's header block, in bytes."""

    host: str
    port: int
    tls: Tls | None = None
    header_limit: int = 32768


def bind(listener: Listener) -> socket.socket:
    """Return a listening socket.

    Raises OSError with a sentence that names the address when it cannot be had.
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
        address = f"[{host}]:{port}" if v6 else f"{host}:{port}"
        raise OSError(error.errno, f"cannot listen on {address}: {error.strerror}") from error
    # Accepted sockets inherit these (Linux). Without the probes a stream whose client lost power is kept for ever.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        if hasattr(socket, name):  # not on every system
            listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return listening


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Return the context of TLS 1.2 and later with both protocols.

    Raises OSError, naming the files, when they cannot be used.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(list(ALPN))
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except OSError as error:  # ssl.SSLError is one
        raise OSError(error.errno, f"cannot use {tls.certificate} with {tls.key}: {error.strerror}") from error
    if tls.client_ca is not None:
        try:
            context.load_verify_locations(tls.client_ca)
        except OSError as error:
            raise OSError(error.errno, f"cannot use {tls.client_ca}: {error.strerror}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context
