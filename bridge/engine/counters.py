"""The counters of the engine that metrics read. Pure."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, TypeVar


@dataclass(slots=True)
class Counters:
    """The engine's totals since the start, and its current numbers. `bridge/metrics.py` says what each one counts."""

    produced: int = 0
    duplicates: int = 0
    delivered: int = 0
    redelivered: int = 0
    settled: int = 0
    nacked: int = 0
    leases_ended: int = 0
    expired: int = 0
    dead_letters: int = 0
    dead_letter_failures: int = 0
    transactions_committed: int = 0
    transactions_rolled_back: int = 0
    transaction_checks: int = 0
    # current numbers
    in_flight: int = 0
    in_flight_bytes: int = 0
    waiting_pulls: int = 0


OTHER: Final = "other"
"""The label of all names beyond the bound, and of a destination that has this name."""

Name = TypeVar("Name", bound=Hashable)


@dataclass(slots=True)
class Counts:
    """What was counted under one label since the start."""

    stored: int = 0
    delivered: int = 0
    settled: int = 0


class LabelCounts(dict[Name, Counts]):
    """The counts of the first `limit` names; all later ones share those of `other`, so that no count ever falls."""

    def __init__(self, limit: int, other: Name) -> None:
        super().__init__({other: Counts()})
        self._limit = limit
        self._other = other

    def __missing__(self, name: Name) -> Counts:
        if len(self) > self._limit:
            return self[self._other]
        counts = self[name] = Counts()
        return counts

    def label(self, name: Name) -> Name:
        """Return the name that a name is counted under."""
        return name if name in self else self._other
