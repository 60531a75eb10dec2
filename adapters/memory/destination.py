"""One destination: its partitions, its groups, and who waits for its next message."""

from collections.abc import Callable
from typing import Final

from adapters.memory.group import StoredGroup
from adapters.memory.partition import Partition

_EMPTY_FOR: Final = 3_600_000
"""Milliseconds after which a destination without messages, groups and traffic is forgotten."""


class Destination:
    """One destination with its partitions and its groups."""

    __slots__ = ("delayed", "groups", "idle_since", "listeners", "name", "number", "partitions", "removed", "reserved")

    def __init__(self, name: str, number: int, partitions: int) -> None:
        self.name = name
        self.number = number
        self.partitions = [Partition(number) for number in range(partitions)]
        self.groups: dict[str, StoredGroup] = {}
        self.delayed = 0
        """Number of messages that wait until they are due."""
        self.listeners: dict[str, Callable[[], None]] = {}
        """By group: called at the next append."""
        self.removed = False
        """Whether it was deleted or forgotten; a write that waits for the journal may still refer to it."""
        self.idle_since: int | None = None
        """Since when it is known to be without messages, groups and traffic, ms since 1970. None: it is in use."""
        self.reserved = 0
        """The offsets that were in use when `idle_since` was checked."""

    def check_idle(self, now: int) -> bool:
        """Return whether nothing was stored and no group existed for `_EMPTY_FOR`; call it regularly."""
        reserved = sum(partition.reserved for partition in self.partitions)
        if self.groups or self.delayed or reserved != self.reserved or any(map(len, self.partitions)):
            self.idle_since, self.reserved = None, reserved
            return False
        if self.idle_since is None or self.idle_since > now:
            self.idle_since = now
        return now - self.idle_since >= _EMPTY_FOR

    def notify(self) -> None:
        """Call the listeners, once each."""
        listeners = list(self.listeners.values())
        self.listeners.clear()
        for listener in listeners:
            listener()
