"""The ceilings: applications that read the body and answer 200, each on a server of the bridge and on uvloop.

`python bare.py hypercorn|granian|rsgi` prints its URL and serves until SIGTERM. The first two are ASGI, `rsgi` is
Granian's own interface. `POST /v1/push` stores its body as a recording, `GET /v1/push?repeat=N` streams it N times.
They do not use the bridge's code, so they stay the same from one revision of the bridge to the next.
"""

import asyncio
import logging
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final
from urllib.parse import parse_qs

import uvloop

PIECE: Final = 64 << 10
"""Bytes of a stream that are sent at once, as the bridge does."""
PUSH: Final = "/v1/push"

_recording = b""


def pieces(query: str) -> Iterator[bytes]:
    """Yield what a stream sends."""
    for _ in range(int(parse_qs(query)["repeat"][0])):
        for start in range(0, len(_recording), PIECE):
            yield _recording[start : start + PIECE]


async def asgi(
    scope: dict[str, Any], receive: Callable[..., Awaitable[Any]], send: Callable[..., Awaitable[None]]
) -> None:
    """Serve one request over ASGI."""
    global _recording  # noqa: PLW0603 - the application's only state
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        event = await receive()
        body += event.get("body", b"")
        more = event.get("more_body", False)
    if scope["path"] == PUSH and scope["method"] == "GET":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for piece in pieces(scope["query_string"].decode("ascii")):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    else:
        if scope["path"] == PUSH:
            _recording = body
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


async def rsgi(scope: Any, protocol: Any) -> None:  # noqa: ANN401 - Granian's
    """Serve one request over RSGI."""
    global _recording  # noqa: PLW0603 - the application's only state
    body = await protocol()
    if scope.path == PUSH and scope.method == "GET":
        transport = protocol.response_stream(200, [])
        for piece in pieces(scope.query_string):
            await transport.send_bytes(piece)
        return
    if scope.path == PUSH:
        _recording = body
    protocol.response_empty(200, [("content-length", "0")])


async def main(kind: str) -> None:
    """Serve on a free port until the process ends."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serving = asyncio.ensure_future(_hypercorn(port) if kind == "hypercorn" else _granian(kind, port))
    while not serving.done():
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            print(f"ready at http://127.0.0.1:{port}", flush=True)
            break
    await serving


async def _hypercorn(port: int) -> None:
    from hypercorn.asyncio import serve  # noqa: PLC0415 - one server in a process: its memory is measured
    from hypercorn.config import Config  # noqa: PLC0415

    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.keep_alive_max_requests = sys.maxsize
    config.errorlog = logging.getLogger("bare")
    await serve(asgi, config, shutdown_trigger=asyncio.Event().wait)  # type: ignore[arg-type]


async def _granian(kind: str, port: int) -> None:
    from granian.constants import Interfaces  # noqa: PLC0415
    from granian.server.embed import Server  # noqa: PLC0415

    target, interface = (rsgi, Interfaces.RSGI) if kind == "rsgi" else (asgi, Interfaces.ASGINL)
    await Server(target, port=port, interface=interface, websockets=False, log_enabled=False).serve()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
