"""The ceiling: an ASGI application that reads the body and answers 200, on the bridge's own server and loop.

A push stream it answers with the bytes that it was given for it before. `python bare.py hypercorn|granian` prints its
URL and serves until SIGTERM.
"""

import asyncio
import signal
import sys
from importlib.util import find_spec
from typing import Final
from urllib.parse import parse_qs

from starlette.types import Receive, Scope, Send

from bridge.server import Listener, Server, serve

PIECE: Final = 64 << 10
"""Bytes of a stream that are sent at once, as the bridge does."""


class Bare:
    """Knows nothing but a recording."""

    def __init__(self) -> None:
        self._recording = b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read everything, say nothing; but `POST /v1/push` keeps the body, and GET sends it `repeat` times."""
        chunks: list[bytes] = []
        more = True
        while more:
            event = await receive()
            chunks.append(event.get("body", b""))
            more = event.get("more_body", False)
        if scope["path"] == "/v1/push":
            if scope["method"] == "GET":
                await self._play(int(parse_qs(scope["query_string"])[b"repeat"][0]), send)
                return
            self._recording = b"".join(chunks)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def _play(self, repeat: int, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(repeat):
            for start in range(0, len(self._recording), PIECE):
                piece = self._recording[start : start + PIECE]
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def main(kind: Server) -> None:
    """Serve on a free port until told to stop."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    def ready(port: int) -> None:
        print(f"ready at http://127.0.0.1:{port}", flush=True)

    await serve(kind, Bare(), Listener("127.0.0.1", 0), stop=stop, grace=1, ready=ready)


if __name__ == "__main__":
    server: Server = "granian" if sys.argv[1] == "granian" else "hypercorn"
    if find_spec("uvloop") is not None:  # as bridge/cli.py chooses
        import uvloop

        uvloop.run(main(server))
    else:
        asyncio.run(main(server))
