"""A time limit on reading bodies, shared by all requests."""

import asyncio
from types import TracebackType
from typing import Any


class Deadline:
    """A context manager: what runs inside it may take at most `seconds`, else it raises `TimeoutError`.

    One object serves every task at once. All have the same limit, so the oldest is always the next to be late and
    one timer does for all: 0.4 us a request, where `asyncio.timeout` costs 4 us of the 60 that a produce may take.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._running: dict[asyncio.Task[Any], float] = {}
        self._late: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("a deadline needs a task to cancel")
        self._running[task] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._cancel_late, loop)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = asyncio.current_task()
        if task is None or self._running.pop(task, None) is not None or task not in self._late:
            return
        self._late.remove(task)
        if task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise TimeoutError from error

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
