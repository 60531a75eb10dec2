"""What lay on a channel that was closed, and comes again on the next one: known by its message id. Pure."""

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

W = TypeVar("W")
"""Whatever waits for acknowledgements."""


class Item(Generic[W]):
    """One message of a partition, from its arrival until the broker is known to have forgotten it."""

    __slots__ = ("attempts", "early", "identity", "position", "settled", "tag", "waiters")

    def __init__(self, tag: int, *, early: bool = False) -> None:
        self.tag = tag
        """0: its channel was closed, and it has not come again."""
        self.early = early
        """Whether it comes from the partition's history."""
        self.attempts: int | None = None
        """As it came again; None: to be worked out when it is fetched."""
        self.identity = ""
        """Its message id, once it was looked up; empty: it is no message."""
        self.position = -1
        """-1: it was not fetched."""
        self.settled = False
        self.waiters: list[W] = []
        """Who waits until the broker has forgotten it."""


class Expected(Generic[W]):
    """Messages by their ids; several may share one."""

    def __init__(self, items: Iterable[Item[W]]) -> None:
        self._items: dict[str, deque[Item[W]]] = {}
        for item in items:
            if item.identity:
                self._items.setdefault(item.identity, deque()).append(item)

    def __bool__(self) -> bool:
        return bool(self._items)

    def take(self, identity: str) -> Item[W] | None:
        """Return what has come again: of those that share an id rather an unsettled one, for none may be lost."""
        items = self._items.get(identity)
        if items is None:
            return None
        item = next((item for item in items if not item.settled), items[0])
        items.remove(item)
        if not items:
            del self._items[identity]
        return item

    def clear(self) -> list[Item[W]]:
        """Expect nothing more; returns what has not come."""
        left = [item for items in self._items.values() for item in items]
        self._items = {}
        return left
