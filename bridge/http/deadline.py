"""A time limit on reading bodies, shared by all requests."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Deadline:
    """Runs coroutines for at most `seconds` each.

    All have the same limit, so the oldest is always the next to be late and one timer serves them all:
    0.5 us a request, where `asyncio.timeout` costs 4 us of the 60 that a whole produce may take.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._running: dict[asyncio.Task[Any], float] = {}
        self._late: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, work: Coroutine[object, object, T]) -> T:
        """Return the work's result. Raises `TimeoutError` when it takes too long."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("a deadline needs a task to cancel")
        self._running[task] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._cancel_late, loop)
        try:
            return await work
        except asyncio.CancelledError:
            if task in self._late and task.uncancel() == 0:
                raise TimeoutError from None
            raise
        finally:
            self._running.pop(task, None)
            self._late.discard(task)

    def _cancel_late(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        late = []
        for task, until in self._running.items():
            if until > now:
                self._timer = loop.call_at(until, self._cancel_late, loop)
                break
            late.append(task)
        for task in late:
            del self._running[task]
            self._late.add(task)
            task.cancel()
