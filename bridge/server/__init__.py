"""The HTTP servers, Hypercorn and Granian, behind one function."""

import asyncio
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final

from starlette.types import ASGIApp

from bridge.server.choice import ChosenServer, ServerSetting, choose_server
from bridge.server.listener import Listener, ServerKind, Tls, tls_context

_MODULES: Final[Mapping[ServerKind, str]] = {
    "hypercorn": "bridge.server.hypercorn.accept",
    "granian": "bridge.server.granian",
}
"""Only one of them is imported: Hypercorn and what it needs take 5 MiB."""

__all__ = [
    "ChosenServer",
    "Listener",
    "ServerKind",
    "ServerSetting",
    "Tls",
    "choose_server",
    "serve",
    "tls_context",
]


async def serve(  # noqa: PLR0913 - most are passed by name
    kind: ServerKind,
    app: ASGIApp,
    listener: Listener,
    *,
    stop: asyncio.Event,
    grace: float,
    ready: Callable[[int], None],
) -> None:
    """Serve `app` on the running event loop until `stop` is set, then return.

    One port serves HTTP/1.1 and HTTP/2 (prior knowledge, or ALPN under TLS). There is no lifespan, no WebSocket, and no
    signal handler. `ready` is called once, with the actual port, when connections are accepted. After `stop`, requests
    in flight have `grace` seconds; then they are cancelled and answered 504, and the call returns within two seconds.

    Raises OSError if the address or a TLS file cannot be used, and RuntimeError if the server of that kind is not
    installed or has another version than the one that this package was written for.
    """
    module = import_module(_MODULES[kind])
    await module.serve(app, listener, stop=stop, grace=grace, ready=ready)
