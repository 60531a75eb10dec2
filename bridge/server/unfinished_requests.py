"""Unfinished requests, of both servers: they are answered when the application cannot, and cancelled at the end."""

import asyncio
import logging
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Final, Protocol, runtime_checkable

from starlette.types import ASGIApp, Receive, Scope, Send

from bridge.errors import BridgeError, Draining, Internal, OutcomeUnknown, RequestMalformed, encode_problem


@runtime_checkable
class NotesRefusals(Protocol):
    """Optional capability of an ASGI application: it counts the requests that the server refuses without calling it."""

    def refused(self, error: BridgeError, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Count a refusal. Returns what its response needs so that a web page of an allowed origin can read it.

        `headers`: those of the request.
        """
        ...


READS_REPLY: Final = "openmessaging_bridge.reads_reply"
"""An extension of the scope: a function that returns False if the client will not get the reply.

Hyper, below Granian, drops a connection of HTTP/1.1 whose client has closed its sending side, with its replies.
"""

logger = logging.getLogger(__name__)

Pair = tuple[bytes, bytes]
CLEANUP_TIMEOUT = 1.0
"""Seconds that cancelled tasks may take to clean up. The server stops without those that take longer."""


class UnfinishedRequests:
    """An ASGI application that keeps its unfinished requests and responds when `app` cannot.

    A response that has not begun becomes a problem document: 503 when `refusing`, 504 if the request is cancelled at
    the end of the grace period, 500 if `app` raises an exception.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._loop = asyncio.get_running_loop()
        self.tasks: set[asyncio.Task[None]] = set()
        self.refusing = False
        """Whether to answer new requests with 503. With Hypercorn, connections refuse them."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; a failure is logged here and not raised."""
        task = asyncio.current_task(self._loop)  # without an argument it is a system call
        assert task is not None  # noqa: S101 - a coroutine that runs has a task
        if self.refusing:
            await self.respond(scope, send, Draining("The bridge is stopping and accepts no more requests."))
            return
        self.tasks.add(task)
        try:
            await self._app(scope, receive, send)
        except Exception:
            logger.exception("the application failed")
            await self.respond(scope, send, Internal("Internal error in the bridge; its log has the details."))
        except asyncio.CancelledError:
            error = OutcomeUnknown("The bridge stopped before it had the result of the request.")
            await self.respond(scope, send, error)
        finally:
            self.tasks.discard(task)

    def encode(self, error: BridgeError, requested: Iterable[Pair]) -> tuple[list[Pair], bytes]:
        """Return the headers and the body of a problem document that the server itself sends.

        `requested`: the headers of the request; empty if they could not be read.
        """
        headers, body = encode_problem(error)
        if isinstance(self._app, NotesRefusals):
            headers = [*headers, *self._app.refused(error, requested)]
        return [*headers, (b"cache-control", b"no-store"), (b"content-length", b"%d" % len(body))], body

    async def respond(self, scope: Scope, send: Send, error: BridgeError) -> None:
        """Send a problem document, unless the response has begun."""
        headers, body = self.encode(error, scope["headers"])
        if isinstance(error, RequestMalformed) and scope["http_version"] != "2":  # where it ends is uncertain
            headers.append((b"connection", b"close"))
        with suppress(Exception):  # both servers raise an exception if the response has begun
            await send({"type": "http.response.start", "status": error.status, "headers": headers})
            await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


async def finish(tasks: Collection[asyncio.Task[None]], grace: float) -> None:
    """Wait until `tasks` is empty, for `grace` seconds at most. Tasks that are added meanwhile count."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + grace
    while tasks and (left := deadline - loop.time()) > 0:
        await asyncio.wait(list(tasks), timeout=left, return_when=asyncio.FIRST_COMPLETED)


async def cancel(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel `tasks` and wait for them, for `CLEANUP_TIMEOUT` seconds at most."""
    cancelled = list(tasks)
    for task in cancelled:
        task.cancel()
    if cancelled:
        await asyncio.wait(cancelled, timeout=CLEANUP_TIMEOUT)
