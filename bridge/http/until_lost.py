"""Waits that end when the client loses its token or a permission: a parked pull, an open stream."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from bridge.errors import BridgeError
from bridge.identity.caller import Caller

T = TypeVar("T")


class UntilLost:
    """Ends the waits of one request. `caller` None: never."""

    def __init__(self, caller: Caller | None) -> None:
        self._caller = caller
        self._error: BridgeError | None = None
        self._waiting: asyncio.Task[Any] | None = None
        self._streaming: asyncio.Task[Any] | None = None
        self._is_cut = False

    async def run(self, work: Coroutine[object, object, T]) -> T:
        """Wait for work. Raises why the caller may not go on, also if it has lost it before."""
        if self._caller is None:
            return await work
        with self._caller.watching(self.end):
            return await self.wait(work)

    async def stream(self, work: Coroutine[object, object, T]) -> T:
        """Write a stream, which uses `wait` wherever it waits for anything but its client.

        Raises `TimeoutError` if its client does not read, so that it cannot be told why the stream ends.
        """
        if self._caller is None:
            return await work
        self._streaming = asyncio.current_task()
        with self._caller.watching(self.end):
            try:
                return await work
            except asyncio.CancelledError:
                if not self._is_cut:
                    raise
                uncancel()
                raise TimeoutError from None

    async def wait(self, work: Coroutine[object, object, T]) -> T:
        """Wait for work of `stream`. Raises as `run`."""
        if self._caller is None:
            return await work
        if self._error is not None:
            work.close()
            raise self._error
        self._waiting = asyncio.current_task()
        try:
            return await work
        except asyncio.CancelledError:
            if self._error is None or self._waiting is not None:  # the client has disconnected
                raise
            uncancel()
            raise self._error from None
        finally:
            self._waiting = None

    def end(self, error: BridgeError) -> None:
        """End the wait that goes on now, or the next one; a stream that has none when this is called again is cut."""
        is_second, self._error = self._error is not None, error
        if (waiting := self._waiting) is not None:
            self._waiting = None
            waiting.cancel()
        elif is_second and self._streaming is not None and not self._is_cut:
            self._is_cut = True
            self._streaming.cancel()


def uncancel() -> None:
    """Clear the cancellation of this task: it continues."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
