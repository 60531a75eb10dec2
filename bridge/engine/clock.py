"""The engine's clocks, wall time and monotonic time, and its own tasks beside the requests."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Final, Protocol


class Clock(Protocol):
    """The engine's two clocks, both in whole milliseconds. Tests pass their own."""

    def wall(self) -> int:
        """Return wall time, ms since 1970 UTC: for due and expiry times, which other hosts have set."""
        ...

    def mono(self) -> int:
        """Return monotonic time, ms since an arbitrary moment; it never jumps: for leases and redelivery pauses."""
        ...


class SystemClock:
    """The machine's clocks."""

    def wall(self) -> int:
        """Return ms since 1970 UTC."""
        return time.time_ns() // 1_000_000

    def mono(self) -> int:
        """Return ms of `CLOCK_MONOTONIC`."""
        return time.monotonic_ns() // 1_000_000


_RESTART: Final = 1.0
"""Seconds before a task that has failed begins again."""

_log = logging.getLogger("bridge.engine")


class BackgroundTasks:
    """Runs work beside the requests, until it returns or `close` is called."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        """Run `work` until it returns; an exception is logged, and the work begins again."""
        task = asyncio.get_running_loop().create_task(_supervise(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancel every task, and wait for their end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _supervise(work: Callable[[], Coroutine[object, object, None]]) -> None:
    while True:
        try:
            return await work()
        except Exception:  # noqa: BLE001 - without the task, idle groups stay open, or the backend is not started
            _log.exception("internal error: a task of the engine failed and begins again")
            await asyncio.sleep(_RESTART)
