"""The requests in flight, whichever server brought them."""

import asyncio
import logging
from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send

from bridge.errors import Draining
from bridge.wire import problem

logger = logging.getLogger(__name__)

REFUSAL, REASON = problem.encode(Draining("The bridge is stopping and takes no more requests."))
"""The 503 to a request that came after the stop: what the doors say, for a server that cannot refuse it itself."""

LAST_WORDS = 1.0
"""Seconds a cancelled task gets to clean up. After that it is left behind: stopping must end."""


class Requests:
    """An ASGI application that knows which of its requests are still being answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.tasks: set[asyncio.Task[None]] = set()
        self.refusing = False  # new ones are answered 503: for a server that cannot refuse them itself

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; a failure is logged here and not raised."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine that runs has a task
        if self.refusing:
            await send({"type": "http.response.start", "status": 503, "headers": REFUSAL})
            await send({"type": "http.response.body", "body": REASON})
            return
        self.tasks.add(task)
        try:
            await self._app(scope, receive, send)
        except Exception:
            logger.exception("the application failed")
        except asyncio.CancelledError:
            pass  # the grace is over; the servers would log it as a failure
        finally:
            self.tasks.discard(task)


async def finish(tasks: Collection[asyncio.Task[None]], grace: float) -> None:
    """Wait until `tasks` is empty, for `grace` seconds at most.

    The collection is read again and again: a task may start another.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + grace
    while tasks and (left := deadline - loop.time()) > 0:
        await asyncio.wait(list(tasks), timeout=left, return_when=asyncio.FIRST_COMPLETED)


async def cancel(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel `tasks` and wait for them, for `LAST_WORDS` seconds at most."""
    late = list(tasks)
    for task in late:
        task.cancel()
    if late:
        await asyncio.wait(late, timeout=LAST_WORDS)
