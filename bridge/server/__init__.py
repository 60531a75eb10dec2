"""The web servers: Hypercorn made safe, and Granian, behind one function."""

import asyncio
from collections.abc import Callable

from starlette.types import ASGIApp

from bridge.server import granian, hypercorn
from bridge.server.listener import Listener, Server, Tls

__all__ = ["Listener", "Server", "Tls", "serve"]


async def serve(  # noqa: PLR0913 - all but two by name
    kind: Server,
    app: ASGIApp,
    listener: Listener,
    *,
    stop: asyncio.Event,
    grace: float,
    ready: Callable[[int], None],
) -> None:
    """Serve `app` on the running event loop until `stop` is set, then return.

    Speaks HTTP/1.1 and HTTP/2 (prior knowledge, or ALPN under TLS) on one port: no lifespan, no WebSocket, no signal
    handlers. `ready` is called once, with the actual port, when connections are accepted. After `stop`, requests in
    flight are answered for `grace` seconds at most, then cancelled; it returns within two seconds after that.

    Raises OSError if the address or a TLS file cannot be used, RuntimeError if the server of that kind is missing or
    of a version this code was not written for.
    """
    run = hypercorn.serve if kind == "hypercorn" else granian.serve
    await run(app, listener, stop=stop, grace=grace, ready=ready)
