"""Time in the engine: its clocks, its own tasks, and waits for the backend's answers, each up to a timeout."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Protocol, TypeVar

from adapters.base import Stored
from bridge.errors import OutcomeUnknown


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


T = TypeVar("T")


class StoredWaits:
    """Waits for the backend's answers, each up to the same limit. So the oldest wait ends first: one timer is enough.

    `asyncio.wait` makes a timer for each, and asks the operating system whether the process is still the same.
    """

    def __init__(self, limit: int) -> None:
        """`limit`: ms."""
        self._seconds = limit / 1000
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ends: dict[asyncio.Future[None], float] = {}

    async def until_stored(self, futures: Iterable[asyncio.Future[Stored]]) -> None:
        """Wait for all futures together, so that a batch, too, is answered within one limit.

        A call that is cancelled cancels none of them: a client that disconnects must not withdraw a message that was
        sent to the backend.
        """
        pending = [each for each in futures if not each.done()]
        if not pending:
            return
        loop = self._loop = self._loop or asyncio.get_running_loop()
        answered: asyncio.Future[None] = loop.create_future()
        left = len(pending)

        def count(_: asyncio.Future[Stored]) -> None:
            nonlocal left
            left -= 1
            if not left and not answered.done():
                answered.set_result(None)

        for each in pending:
            each.add_done_callback(count)
        self._ends[answered] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._expire, loop)
        try:
            await answered
        finally:
            del self._ends[answered]

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, now = None, loop.time()
        for answered, end in self._ends.items():
            if end > now:
                self._timer = loop.call_at(end, self._expire, loop)
                break
            if not answered.done():
                answered.set_result(None)


def stored_result(future: asyncio.Future[Stored], limit: int) -> Stored:
    """Return where a message is stored. Raises `OutcomeUnknown` after `limit` ms, and the backend's errors."""
    if not future.done():
        future.add_done_callback(ignore_result)
        raise OutcomeUnknown(f"The backend has not answered for {limit} ms.")
    return future.result()


async def shielded(work: Coroutine[Any, Any, T] | asyncio.Future[T], limit: int) -> T:
    """Wait for work that a client that disconnects does not end. Raises `OutcomeUnknown` after `limit` ms."""
    future = asyncio.ensure_future(work)
    future.add_done_callback(ignore_result)
    if not future.done():
        await asyncio.wait((future,), timeout=limit / 1000)
    if not future.done():
        raise OutcomeUnknown(f"The backend has not answered for {limit} ms.")
    return future.result()


def confirmed(future: asyncio.Future[None], limit: int) -> asyncio.Future[None]:
    """Return a future of the backend's confirmation of a settlement, which raises `OutcomeUnknown` after `limit` ms.

    It is done at once if the backend has confirmed already. Cancelling it does not cancel `future`: a client that
    disconnects must not withdraw an acknowledgement that was sent.
    """
    if future.done() and not future.cancelled():
        return future
    loop = asyncio.get_running_loop()
    confirmation: asyncio.Future[None] = loop.create_future()

    def finish(done: asyncio.Future[None]) -> None:
        timer.cancel()
        if confirmation.done():
            ignore_result(done)
        elif done.cancelled():
            confirmation.set_exception(OutcomeUnknown("The backend has given up the acknowledgement; repeat it."))
        elif (error := done.exception()) is not None:
            confirmation.set_exception(error)
        else:
            confirmation.set_result(None)

    def give_up() -> None:
        if not confirmation.done():
            confirmation.set_exception(OutcomeUnknown("The backend has not confirmed the acknowledgement; repeat it."))

    timer = loop.call_later(limit / 1000, give_up)
    future.add_done_callback(finish)
    return confirmation


def error_of(done: asyncio.Future[Any]) -> BaseException | None:
    """Return why a future that is done has failed; None: it has not."""
    return asyncio.CancelledError() if done.cancelled() else done.exception()


def on_failure(future: asyncio.Future[None], action: Callable[[], None]) -> None:
    """Call `action` if the future fails or is cancelled, or has failed."""

    def check(done: asyncio.Future[None]) -> None:
        if done.cancelled() or done.exception() is not None:
            action()

    if future.done():
        check(future)
    else:
        future.add_done_callback(check)


def ignore_result(future: asyncio.Future[Any]) -> None:
    """Retrieve the error of a result that nothing waits for, so that asyncio does not log it."""
    if not future.cancelled():
        future.exception()
