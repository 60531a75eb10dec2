"""What the catalogue says: entries of JSON, and what they come to. Pure.

| entry | |
|---|---|
| `["destination", d, partitions, log_bytes]` | the first of a destination counts |
| `["begun", d, g]` | a bridge begins to set a group up |
| `["ready", d, g, [partitions with history]]` | it has; the last counts |
| `["drained", d, g, partition]` | this partition's history is read |
| `["deleted", d]` | the destination and its groups are deleted; the next `destination` entry is the first again |
| `["deleted", d, g]` | the group is deleted |
| `["purged", d, g, n]` | the destination (g: `null`) or the group is purged for the n-th time; the highest counts |
| `["moved", d, g, n]` | what was delayed before the n-th purge is dropped when it is due; the highest counts |
| `["note", instance, key, value]` | the last of an instance and key counts; `null` drops it |
| `["transactions"]` | the stream of transactions has been declared |
| `["read"]` | nothing: its writer reads up to it |
"""

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from adapters.rabbitmq.topology.declarations import Layout

TRANSACTIONS: Final = b'["transactions"]'
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
        self.purges: dict[tuple[str, str | None], int] = {}
        """By destination, and group or None; they stay when it is deleted."""
        self.moved: dict[tuple[str, str | None], int] = {}
        """The last of these purges that was not broken off."""
        self.transactions = False
        self.deleted: list[str] = []
        """Destinations that were deleted since this list was last emptied."""

    def read(self, body: bytes) -> bool:
        """Take in one more entry; False if it is none."""
        try:
            entry = json.loads(body)
        except ValueError:
            return False
        match entry:
            case ["destination", str(name), int(partitions), int(log_bytes)] if 0 < partitions <= _PARTITIONS_MAX:
                self.destinations.setdefault(name, Layout(partitions, max(0, log_bytes)))
            case ["deleted", str(name)]:
                self.destinations.pop(name, None)
                for pair in [pair for pair in self.groups if pair[0] == name]:
                    del self.groups[pair]
                self.deleted.append(name)
            case [("purged" | "moved") as what, str(name), (str() | None) as group, int(count)]:
                counts = self.purges if what == "purged" else self.moved
                counts[name, group] = max(count, counts.get((name, group), 0))
            case ["note", (str() | None) as instance, str(key), (str() | None) as value]:
                if instance == self._instance:
                    self._note(key, value)
            case ["transactions"]:
                self.transactions = True
            case ["read"]:
                pass
            case _:
                return self._read_group(entry)
        return True

    def anew(self) -> "Contents":
        """Return what is known for another catalogue, in which others may have been first to claim destinations."""
        other = Contents(self._instance)
        other.groups.update(self.groups)
        other.notes.update(self.notes)
        other.purges.update(self.purges)
        other.moved.update(self.moved)
        other.transactions = self.transactions
        return other

    def whole(self) -> list[bytes]:
        """Return entries that come to the same."""
        return [
            *(destination(name, layout) for name, layout in self.destinations.items()),
            *(ready(*pair, group.history) for pair, group in self.groups.items() if group.ready),
            *(note(self._instance, key, value) for key, value in self.notes.items()),
            *(purged(*pair, count) for pair, count in self.purges.items()),
            *(moved(*pair, count) for pair, count in self.moved.items()),
            *([TRANSACTIONS] if self.transactions else []),
        ]

    def _read_group(self, entry: Any) -> bool:  # noqa: ANN401 - whatever the JSON holds
        match entry:
            case ["begun", str(name), str(group)]:
                known = self.groups.get((name, group), Group())
                self.groups[name, group] = known._replace(begun=known.begun + 1)
            case ["ready", str(name), str(group), [*history]] if all(isinstance(number, int) for number in history):
                self.groups[name, group] = Group(0, ready=True, history=tuple(history))
            case ["drained", str(name), str(group), int(partition)]:
                known = self.groups.get((name, group), Group())
                left = tuple(number for number in known.history if number != partition)
                self.groups[name, group] = known._replace(history=left)
            case ["deleted", str(name), str(group)]:
                self.groups.pop((name, group), None)
            case _:
                return False
        return True

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


def deleted(name: str, group: str | None) -> bytes:
    """Return the entry of a destination, or of one group, that is deleted."""
    return json.dumps(["deleted", name] if group is None else ["deleted", name, group]).encode()


def purged(name: str, group: str | None, count: int) -> bytes:
    """Return the entry of a destination, or of one group, that is purged for the `count`-th time."""
    return json.dumps(["purged", name, group, count]).encode()


def moved(name: str, group: str | None, count: int) -> bytes:
    """Return the entry of a purge that has moved the bindings of all earlier numbers."""
    return json.dumps(["moved", name, group, count]).encode()


def note(instance: str | None, key: str, value: str | None) -> bytes:
    """Return the entry of a note."""
    return json.dumps(["note", instance, key, value]).encode()
