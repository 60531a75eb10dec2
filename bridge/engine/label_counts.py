"""Counts by destination and by group, with a bound on the names that metrics show. Pure."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

OTHER: Final = "other"
"""The label of all names beyond the bound, and of a destination that has this name."""

Name = TypeVar("Name", bound=Hashable)


@dataclass(slots=True)
class Counts:
    """What was counted under one label since the start."""

    stored: int = 0
    delivered: int = 0
    settled: int = 0


class LabelCounts(Generic[Name]):
    """The counts of the first `limit` names; all later ones share those of `other`, so that no count ever falls."""

    def __init__(self, limit: int, other: Name) -> None:
        self._limit = limit
        self._counts = {other: Counts()}
        self._other = other

    def of(self, name: Name) -> Counts:
        """Return the counts of a name."""
        return self._counts.get(name) or self._add(name)

    def label(self, name: Name) -> Name:
        """Return the name that a name is counted under."""
        return name if name in self._counts else self._other

    def items(self) -> Iterable[tuple[Name, Counts]]:
        """Return every label and its counts."""
        return self._counts.items()

    def _add(self, name: Name) -> Counts:
        if len(self._counts) > self._limit:
            return self._counts[self._other]
        counts = self._counts[name] = Counts()
        return counts
