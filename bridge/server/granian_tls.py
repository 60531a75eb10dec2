"""Whether Granian can serve with TLS files: it aborts the process if it cannot use one that OpenSSL can.

`python -m bridge.server.granian_tls CERTIFICATE KEY [CLIENT_CA]` serves for one handshake and ends with status 0 if
that succeeds.
"""

import asyncio
import resource
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Final

from starlette.types import Receive, Scope, Send

from bridge.server.granian import serve
from bridge.server.listener import Listener, Tls

SECONDS: Final = 30.0
"""For the handshake in the other process, which takes 0.3 s."""


def check(tls: Tls) -> None:
    """Try a handshake in another process. Raises RuntimeError if it fails."""
    files = [str(file) for file in tls if file is not None]
    program = [sys.executable, "-P", "-m", "bridge.server.granian_tls", *files]
    try:
        done = subprocess.run(program, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"Granian did not answer a TLS handshake within {SECONDS:.0f} s") from None
    if done.returncode != 0:
        raise RuntimeError(f"Granian cannot serve TLS with {' and '.join(files)}")


async def _try(tls: Tls) -> None:
    stop = asyncio.Event()
    listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(
        serve(_refuse, Listener("127.0.0.1", 0, tls), stop=stop, grace=0, ready=listening.set_result)
    )
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # only whether Granian can use its key
    _, writer = await asyncio.open_connection("127.0.0.1", await listening, ssl=context)
    writer.close()
    stop.set()
    await serving


async def _refuse(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise NotImplementedError


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a process that aborts would leave a file
    certificate, key, *client_ca = map(Path, sys.argv[1:])
    asyncio.run(_try(Tls(certificate, key, *client_ca)))
