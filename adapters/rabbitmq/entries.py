"""What the book says: entries of JSON, and what they come to. Pure.

| entry | |
|---|---|
| `["destination", d, partitions, log_bytes]` | the first of a destination counts |
| `["begun", d, g]` | a bridge begins to set a group up |
| `["ready", d, g, [partitions with history]]` | it has; the last counts |
| `["drained", d, g, partition]` | this partition's history is read |
| `["note", instance, key, value]` | the last of an instance and key counts; `null` drops it |
| `["read"]` | nothing: whoever wrote it wants to know how far it has read |
"""

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from adapters.rabbitmq.topology import Layout

READ: Final = b'["read"]'
_PARTITIONS_MAX: Final = 1 << 20


class Group(NamedTuple):
    """How far the set-up of a group is."""

    begun: int = 0
    """How many bridges have begun it since it was last ready."""
    ready: bool = False
    history: tuple[int, ...] = ()
    """Partitions that have a queue with what the log held when the group came."""


class Contents:
    """What all entries so far come to, for one instance."""

    def __init__(self, instance: str | None) -> None:
        self._instance = instance
        self.destinations: dict[str, Layout] = {}
        self.groups: dict[tuple[str, str], Group] = {}
        self.notes: dict[str, str] = {}

    def read(self, body: bytes) -> bool:
        """Take in one more entry; False if it is none."""
        try:
            entry = json.loads(body)
        except ValueError:
            return False
        match entry:
            case ["destination", str(name), int(partitions), int(log_bytes)] if 0 < partitions <= _PARTITIONS_MAX:
                self.destinations.setdefault(name, Layout(partitions, max(0, log_bytes)))
            case ["begun", str(name), str(group)]:
                known = self.groups.get((name, group), Group())
                self.groups[name, group] = known._replace(begun=known.begun + 1)
            case ["ready", str(name), str(group), [*history]] if all(isinstance(number, int) for number in history):
                self.groups[name, group] = Group(0, ready=True, history=tuple(history))
            case ["drained", str(name), str(group), int(partition)]:
                known = self.groups.get((name, group), Group())
                left = tuple(number for number in known.history if number != partition)
                self.groups[name, group] = known._replace(history=left)
            case ["note", (str() | None) as instance, str(key), (str() | None) as value]:
                if instance == self._instance:
                    self._note(key, value)
            case ["read"]:
                pass
            case _:
                return False
        return True

    def anew(self) -> "Contents":
        """Return what is known for another book, in which others may have been first to claim destinations."""
        other = Contents(self._instance)
        other.groups.update(self.groups)
        other.notes.update(self.notes)
        return other

    def whole(self) -> list[bytes]:
        """Return entries that come to the same."""
        return [
            *(destination(name, layout) for name, layout in self.destinations.items()),
            *(ready(*pair, group.history) for pair, group in self.groups.items() if group.ready),
            *(note(self._instance, key, value) for key, value in self.notes.items()),
        ]

    def _note(self, key: str, value: str | None) -> None:
        if value is None:
            self.notes.pop(key, None)
        else:
            self.notes[key] = value


def destination(name: str, layout: Layout) -> bytes:
    """Return the entry of a destination."""
    return json.dumps(["destination", name, *layout]).encode()


def begun(name: str, group: str) -> bytes:
    """Return the entry of a group whose set-up begins."""
    return json.dumps(["begun", name, group]).encode()


def ready(name: str, group: str, history: Sequence[int]) -> bytes:
    """Return the entry of a group that can be consumed."""
    return json.dumps(["ready", name, group, list(history)]).encode()


def drained(name: str, group: str, partition: int) -> bytes:
    """Return the entry of a partition whose history is read."""
    return json.dumps(["drained", name, group, partition]).encode()


def note(instance: str | None, key: str, value: str | None) -> bytes:
    """Return the entry of a note."""
    return json.dumps(["note", instance, key, value]).encode()
