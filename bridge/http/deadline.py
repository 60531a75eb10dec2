"""A time limit on reading bodies, shared by all requests."""

import asyncio
from types import TracebackType
from typing import Any


class Deadline:
    """Hands out context managers: what runs inside one may take at most `seconds`, else it raises `TimeoutError`.

    All have the same limit, so the oldest is always the next to be late and one timer does for all: 0.4 us a request,
    where `asyncio.timeout` costs 4 us of the 60 that a produce may take.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._running: dict[Watch, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self) -> "Watch":
        """Return a context manager for the current task."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("a deadline needs a task to cancel")
        watch = Watch(task, self._running)
        self._running[watch] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._cancel_late, loop)
        return watch

    def _cancel_late(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        late = []
        for watch, until in self._running.items():
            if until > now:
                self._timer = loop.call_at(until, self._cancel_late, loop)
                break
            late.append(watch)
        for watch in late:
            del self._running[watch]
            watch.task.cancel()


class Watch:
    """One piece of work under a deadline. It is late once it is no longer among those that run."""

    __slots__ = ("_running", "task")

    def __init__(self, task: asyncio.Task[Any], running: "dict[Watch, float]") -> None:
        self.task = task
        self._running = running

    def __enter__(self) -> None:
        """Watched since it was handed out."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._running.pop(self, None) is None and self.task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise TimeoutError from error
