"""Calls that several callers wait for together."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeVar

from bridge.errors import BridgeError

K = TypeVar("K")
R = TypeVar("R")


class SharedCalls(Generic[K, R]):
    """Runs one call for a key at a time: callers that ask meanwhile get its result."""

    def __init__(self) -> None:
        self._running: dict[K, asyncio.Task[R]] = {}

    def running(self, key: K) -> asyncio.Task[R] | None:
        """Return the call that runs for a key."""
        return self._running.get(key)

    def start(self, key: K, call: Callable[[], Coroutine[Any, Any, R]]) -> asyncio.Task[R]:
        """Return the running call, or a new one."""
        task = self._running.get(key)
        if task is None or task.done():
            task = self._running[key] = asyncio.create_task(call())
            task.add_done_callback(partial(self._done, key))
        return task

    async def run(self, key: K, call: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Return the result of the running call, or of a new one. Raises what the call raises.

        The call goes on if a caller no longer waits.
        """
        return await asyncio.shield(self.start(key, call))

    async def close(self, patience: float = 0) -> None:
        """Cancel all calls that have not ended after so many seconds."""
        if patience and self._running:
            await asyncio.wait(self._running.values(), timeout=patience)
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _done(self, key: K, task: asyncio.Task[R]) -> None:
        if self._running.get(key) is task:
            del self._running[key]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, BridgeError):
            raise error
