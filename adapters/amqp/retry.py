"""Requests to the broker that are repeated until they succeed, or limited in time."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from adapters.amqp.settings import REQUEST_TIMEOUT
from bridge.errors import BackendUnavailable, BridgeError

_PAUSES: Final = (0.1, 1.0)
"""Seconds between two calls: the first pause and the longest. Without a connection, a call fails at once, so the
longest pause is how late it succeeds after an outage."""

R = TypeVar("R")


async def retry(call: Callable[[], Awaitable[R]], failed: Callable[[BridgeError], object]) -> R:
    """Call until it succeeds; `failed` gets each `BridgeError`, and may raise it. Each pause is twice the last."""
    pause, longest = _PAUSES
    while True:
        try:
            return await call()
        except BridgeError as error:
            failed(error)
        # jitter: bridges that lost the same broker do not ask at the same time
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
        pause = min(pause * 2, longest)


async def within_timeout(awaited: Awaitable[R], failure: str) -> R:
    """Wait for the broker. Raises `BackendUnavailable` with the text `failure` after `REQUEST_TIMEOUT`."""
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT / 1000):
            return await awaited
    except TimeoutError:
        raise BackendUnavailable(failure) from None
