"""When open transactions are checked back, and when they are rolled back. Pure: the time is an argument."""

from enum import StrEnum
from heapq import heapify, heappop, heappush
from typing import Final

CHECKS_MAX: Final = 10
"""Number of checks without a decision after which a transaction is rolled back."""
_FIRST_PAUSE: Final = 5_000
"""Milliseconds between the first two checks; the pause doubles after each."""
_LONGEST_PAUSE: Final = 60_000
_ENDED_MAX: Final = 1000
"""Entries of ended transactions that wait for their time, if they are not more than those of open ones."""


class Decision(StrEnum):
    """What the producer answers to a check."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"


class TransactionDeadlines:
    """The open transactions by the time of their next check. All times in ms since 1970."""

    def __init__(self) -> None:
        self._checks: dict[str, int] = {}
        """How often each transaction was checked without a decision."""
        self._due: list[tuple[int, str]] = []
        """A heap; it also has entries of transactions that have ended."""

    def __len__(self) -> int:
        return len(self._due)

    def add(self, name: str, deadline: int) -> None:
        """Add an open transaction; does nothing if it was added before."""
        if name not in self._checks:
            self._checks[name] = 0
            heappush(self._due, (deadline, name))

    def remove(self, name: str) -> None:
        """Remove a transaction that has ended. Harmless if it is not there."""
        if self._checks.pop(name, None) is not None and len(self._due) > 2 * len(self._checks) + _ENDED_MAX:
            self._due = [entry for entry in self._due if entry[1] in self._checks]
            heapify(self._due)

    def take_due(self, now: int) -> list[str]:
        """Return the transactions whose time has come. After each comes `remove`, `postpone` or `undecided`."""
        found: list[str] = []
        while self._due and self._due[0][0] <= now:
            _, name = heappop(self._due)
            if name in self._checks:
                found.append(name)
        return found

    def undecided(self, name: str, now: int) -> bool:
        """Plan the next check after one without a decision. False: there were enough."""
        checks = self._checks.get(name, 0) + 1
        if checks >= CHECKS_MAX:
            return False
        self._checks[name] = checks
        heappush(self._due, (now + min(_FIRST_PAUSE << (checks - 1), _LONGEST_PAUSE), name))
        return True

    def postpone(self, name: str, now: int) -> None:
        """Try again later: the backend could not end the transaction."""
        if name in self._checks:
            heappush(self._due, (now + _FIRST_PAUSE, name))
