"""When a bridge tells the others, and when it decides."""

import asyncio
import random
from collections.abc import Callable
from typing import Final

_BEAT: Final = (0.8, 1.2)
"""Seconds between two messages to a bridge. With jitter: bridges that start together do not all speak at once."""
_TURN: Final = 0.05
"""Seconds from news to a decision: bridges that come or go together are one change, not several."""


class Turns:
    """Two timers for all groups."""

    def __init__(self, mute: Callable[[], bool], beat: Callable[[], None], decide: Callable[[str], None]) -> None:
        """While `mute`, nothing is decided: of what the others do not hear they would think otherwise."""
        self._mute = mute
        self._on_beat = beat
        self._decide = decide
        self._due: set[str] = set()
        self._turning: asyncio.TimerHandle | None = None
        self._beating: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to tell. Idempotent."""
        if self._beating is None:
            self._beat()

    def stop(self) -> None:
        """Tell and decide nothing more. Idempotent."""
        for timer in (self._turning, self._beating):
            if timer is not None:
                timer.cancel()

    def reconsider(self, group: str) -> None:
        """Let a group decide anew, soon, with all others that have to: what they then say is one message."""
        self._due.add(group)
        self._arm()

    def drop(self, group: str) -> None:
        """Let it decide nothing more."""
        self._due.discard(group)

    def _arm(self) -> None:
        if self._turning is None:
            self._turning = asyncio.get_running_loop().call_later(_TURN, self._turn)

    def _turn(self) -> None:
        self._turning = None
        if not self._mute():
            due, self._due = self._due, set()
            for group in due:
                self._decide(group)

    def _beat(self) -> None:
        pause = random.uniform(*_BEAT)  # noqa: S311 - no secret
        self._beating = asyncio.get_running_loop().call_later(pause, self._beat)
        self._on_beat()
        if self._due:
            self._arm()
