"""An event loop that does not wait: it moves its own time to the next timer instead."""

import asyncio
import selectors
from collections.abc import Callable
from typing import Any, Final

START: Final = 1_700_000_000_000
"""Wall time at the loop's time 0, ms."""


class _Selector(selectors.DefaultSelector):  # type: ignore[misc, valid-type, unused-ignore]
    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> Any:  # noqa: ANN401 - the base class's type
        found = super().select(0)
        if not found:
            if timeout is None:
                raise RuntimeError("the test waits for something that will never come")
            self.loop.now += max(timeout, 0)
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs hours in milliseconds, in the same order every time."""

    def __init__(self) -> None:
        self.now = 1000.0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now


class LoopClock:
    """The engine's clocks, read from the loop; the wall clock can be set."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.offset = START

    def wall(self) -> int:
        return self.mono() + self.offset

    def mono(self) -> int:
        return round(self._loop.time() * 1000)


async def turns(count: int = 20) -> None:
    """Let everything happen that happens without time."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object], step: float = 0) -> None:
    """Let time pass in steps until something holds."""
    while not condition():  # noqa: ASYNC110 - the very turn counts, and the loop's time is virtual
        await asyncio.sleep(step)
