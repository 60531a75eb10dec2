"""The ceiling: an ASGI application that reads the body and answers 200, on the bridge's own server and loop.

`python bare.py hypercorn|granian` prints its URL and serves until SIGTERM.
"""

import asyncio
import signal
import sys
from importlib.util import find_spec

from starlette.types import Receive, Scope, Send

from bridge.server import Listener, Server, serve


async def answer(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 - ASGI's three
    """Read everything, say nothing."""
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


async def main(kind: Server) -> None:
    """Serve on a free port until told to stop."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    def ready(port: int) -> None:
        print(f"ready at http://127.0.0.1:{port}", flush=True)

    await serve(kind, answer, Listener("127.0.0.1", 0), stop=stop, grace=1, ready=ready)


if __name__ == "__main__":
    server: Server = "granian" if sys.argv[1] == "granian" else "hypercorn"
    if find_spec("uvloop") is not None:  # as bridge/cli.py chooses
        import uvloop

        uvloop.run(main(server))
    else:
        asyncio.run(main(server))
