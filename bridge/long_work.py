"""Long work in steps, and a slicer that runs it so that the event loop answers other requests in between.

A codec writes long work as a generator that yields after each step, without clock and event loop. Its caller runs all
steps at once, or gives them to the `Slicer`.
"""

import asyncio
import time
from collections.abc import Callable, Generator
from typing import Final, TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work that yields after each step, of a few milliseconds at most, and returns its result."""


def run_at_once(steps: Steps[T]) -> T:
    """Run all steps and return the result; raises what they raise."""
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            result: T = finished.value
            return result


SLICE: Final = 0.005
"""Seconds of one slice. It ends with the step that runs then, so it may last a step longer."""

PAUSE: Final = 8
"""Iterations of the event loop between two slices. An answer takes several, and would wait for a slice in each."""


class Slicer:
    """Runs the long work of all requests: a slice in every few iterations of the event loop, of each work in rotation.

    If each request ran its own slices, 20 large batches would run 20 slices between two of those iterations.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock` returns seconds."""
        self._clock = clock
        self._running = asyncio.Lock()
        self._alone = asyncio.Lock()

    async def run(self, steps: Steps[T]) -> T:
        """Run all steps and return the result; raises what they raise. Work of one slice waits for no iteration."""
        while True:
            async with self._running:
                end = self._clock() + SLICE
                try:
                    next(steps)
                    while self._clock() < end:
                        next(steps)
                except StopIteration as finished:
                    result: T = finished.value
                    return result
                # While this waits, the event loop serves all connections; the lock then goes to the next in the queue.
                for _ in range(PAUSE):
                    await asyncio.sleep(0)

    async def run_alone(self, steps: Steps[T]) -> T:
        """Run steps that hold much memory until they end, one such work at a time: 512 pulls half inflated 234 MiB."""
        async with self._alone:
            return await self.run(steps)
