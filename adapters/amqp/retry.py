"""Repeats a request to the broker until it succeeds."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from bridge.errors import BridgeError

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
