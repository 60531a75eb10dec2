"""Time limits of requests: for a body to arrive, and for a client to read a part of its response."""

import asyncio
from types import TracebackType
from typing import Any


class Deadline:
    """A time limit in seconds, shared by all requests of an endpoint: the oldest always ends first.

    So one timer is enough for all. `asyncio.timeout` for each took a tenth of a produce.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        """Asked for once: each question to asyncio is a system call."""
        self._timer: asyncio.TimerHandle | None = None
        self.ends: dict[_Limit, float] = {}

    def start(self) -> "_Limit":
        """Return a context manager that raises `TimeoutError` in the current task when the time is over."""
        loop = self._loop or asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("a deadline needs a task to cancel")
        limit = _Limit(task, self)
        self.ends[limit] = loop.time() + self._seconds
        if self._timer is None:
            self._loop = loop
            self._timer = loop.call_later(self._seconds, self._expire, loop)
        return limit

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        late = []
        for limit, end in self.ends.items():
            if end > now:
                self._timer = loop.call_at(end, self._expire, loop)
                break
            late.append(limit)
        for limit in late:
            del self.ends[limit]
            limit.task.cancel()


class _Limit:
    """One use of a `Deadline`. Its time runs since `Deadline.start`."""

    __slots__ = ("_deadline", "task")

    def __init__(self, task: asyncio.Task[Any], deadline: Deadline) -> None:
        self.task = task
        self._deadline = deadline

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_over = self._deadline.ends.pop(self, None) is None
        if is_over and self.task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise TimeoutError from error
