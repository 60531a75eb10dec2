"""The circuit breaker: so that a dead endpoint costs nothing.

A pure state machine: mono times in ms and chances come in.
"""

from typing import Final

from bridge.callbacks.schedule import backoff

THRESHOLD: Final = 10
"""Failures in a row that open the circuit, whatever they say: where everything is answered 404, as where nothing is
answered, the backlog must not go through its deliveries and into the dead letters at full speed."""
COOLDOWN_CAP: Final = 300_000
"""Longest time between two probes, ms."""


class Breaker:
    """Closed: deliver. Open until a time. Then half open: one delivery probes, and closes it or opens it for longer."""

    def __init__(self) -> None:
        self.until = 0
        """When the next probe may go out, mono, while it is not closed."""
        self._failures = 0
        self._openings = 0

    @property
    def closed(self) -> bool:
        """Whether nothing speaks against the endpoint; else at most one delivery at a time, and none before `until`."""
        return not self._openings

    def succeed(self) -> None:
        """Note an answer that took the message; a late one too: the endpoint lives."""
        self._failures = self._openings = self.until = 0

    def fail(self, mono: int, chance: float) -> None:
        """Note a failure. Late ones, of deliveries that began before it opened, change nothing while it is open."""
        if self.closed:
            self._failures += 1
            if self._failures < THRESHOLD:
                return
        elif mono < self.until:
            return
        self._openings += 1
        self.until = mono + backoff(self._openings, COOLDOWN_CAP, chance)
