"""A delete or purge that is broken off at each of its steps, and repeated, whatever the backend."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import time_ns
from typing import Final

from bridge.errors import DestinationUnknown
from tests.conformance.conversation import Conversation

_DELAY: Final = 30_000
"""Milliseconds: a message that comes earlier, on a slow machine, is deleted with its destination."""
_LATER: Final = 2_000
_AT_ONCE: Final = 8
"""Bridges that change destinations at the same time."""


class Broken(Exception):
    """The bridge ends at this step."""


class Steps:
    """Counts the requests of a change, and breaks it off when they are used up."""

    def __init__(self, limit: int | None = None) -> None:
        """Without a limit it is never broken off."""
        self._limit = limit
        self.taken = 0

    def take(self) -> None:
        """Count one more. Raises `Broken`, from then on at each call."""
        if self.taken == self._limit:
            raise Broken
        self.taken += 1


Change = Callable[[str, Steps], Awaitable[None]]
"""Deletes or purges a destination as a separate bridge, which is broken off by the steps."""


async def check_each_step(talk: Conversation, change: Change) -> None:
    """After a change was broken off at any step and repeated, no message that was delayed before it comes."""
    first = talk.destination
    unbroken = [first, f"{first}-unbroken"]
    for destination in unbroken:  # the first one also creates what all destinations share
        await _produce(talk, destination, b"old", due=_wall() + _DELAY)
        await change(destination, whole := Steps())
    assert whole.taken
    due = _wall() + _DELAY
    cases = {f"{first}-{limit}": Steps(limit) for limit in range(whole.taken)}
    for destination in cases:
        await _produce(talk, destination, b"old", due=due)
    free = asyncio.Semaphore(_AT_ONCE)
    await asyncio.gather(*(_broken_off_and_repeated(free, change, *case) for case in cases.items()))
    due = max(due, _wall()) + _LATER
    for destination in (*unbroken, *cases):
        await _produce(talk, destination, b"new", due=due)
    for talk.destination in (*unbroken, *cases):
        assert (await talk.take(waitmills=60_000)).body == b"new", talk.destination


async def _broken_off_and_repeated(free: asyncio.Semaphore, change: Change, destination: str, steps: Steps) -> None:
    async with free:
        try:
            await change(destination, steps)
        except Broken:
            with suppress(DestinationUnknown):  # nothing was left to be done
                await change(destination, Steps())
        else:
            raise AssertionError(f"{destination}: not broken off")


async def _produce(talk: Conversation, destination: str, body: bytes, due: int) -> None:
    await talk.produce(body, destination=destination, messagekey="key", delaytime=max(1, due - _wall()))


def _wall() -> int:
    return time_ns() // 1_000_000
