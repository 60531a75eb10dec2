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
| `["whole", offset, [entries]]` | these entries come to the same as all up to this offset |

The stream drops its oldest entries. Who begins with an entry that is not its first knows everything from the next
`whole` on: it comes to that and the entries behind its offset.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from adapters.rabbitmq.topology.declarations import Layout

TRANSACTIONS: Final = b'["transactions"]'
_STORED: Final = 150
"""Bytes that an entry takes in the stream beside its text."""
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
        self._begun = False
        """Whether an entry has been read."""
        self._rest: list[tuple[int, Any]] | None = None
        """Entries that were read, with their offsets, while those before them are missing; None: none are."""
        self.grown = 0
        """Bytes of the stream, about, since a `whole` was read or made."""
        self.size = 0
        """Bytes of the last `whole` that was read; 0: there was none."""
        self.destinations: dict[str, Layout] = {}
        self.groups: dict[tuple[str, str], Group] = {}
        self._notes: dict[tuple[str | None, str], str] = {}
        """Of all instances, by instance and key."""
        self.purges: dict[tuple[str, str | None], int] = {}
        """By destination, and group or None; they stay when it is deleted."""
        self.moved: dict[tuple[str, str | None], int] = {}
        """The last of these purges that was not broken off."""
        self.transactions = False
        self.deleted: list[str] = []
        """Destinations that were deleted since this list was last emptied."""

    @property
    def notes(self) -> dict[str, str]:
        """Notes of the instance."""
        return {key: value for (instance, key), value in self._notes.items() if instance == self._instance}

    @property
    def complete(self) -> bool:
        """Whether no entry is missing."""
        return self._rest is None

    def give_up(self) -> None:
        """Count what has been read as complete: the stream has no `whole` for what is missing."""
        self._rest = None

    def read(self, offset: int, body: bytes) -> bool:
        """Take in the next entry and its offset in the stream; False if it is none."""
        if not self._begun and offset:
            self._rest = []
        self._begun = True
        self.grown += len(body) + _STORED
        try:
            entry = json.loads(body)
        except ValueError:
            return False
        match entry:
            case ["whole", int(last), [*entries]]:
                self.grown, self.size = 0, len(body)
                if self._rest is not None and last < offset:
                    self._begin_with(last, entries)
                return True
        if self._rest is not None:
            self._rest.append((offset, entry))
        return self._take(entry)

    def snapshot(self, offset: int) -> bytes:
        """Return a `whole` entry of everything up to `offset`, which was read last."""
        self.grown = 0
        begun_groups = (begun(*pair) for pair, group in self.groups.items() for _ in range(group.begun))
        entries = b",".join((*self._entries(self._notes), *begun_groups))
        return b'["whole",%d,[%s]]' % (offset, entries)

    def _begin_with(self, last: int, entries: list[Any]) -> None:
        for known in (self.destinations, self.groups, self._notes, self.purges, self.moved):
            known.clear()
        self.transactions = False
        later = [entry for offset, entry in self._rest or () if offset > last]
        self._rest = None
        for entry in (*entries, *later):
            self._take(entry)

    def _take(self, entry: Any) -> bool:  # noqa: ANN401 - whatever the JSON holds
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
                self._note(instance, key, value)
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
        other._notes.update(self._notes)
        other.purges.update(self.purges)
        other.moved.update(self.moved)
        other.transactions = self.transactions
        return other

    def whole(self) -> list[bytes]:
        """Return entries that come to the same, with the notes of the instance: each bridge writes its own."""
        return self._entries({(self._instance, key): value for key, value in self.notes.items()})

    def _entries(self, notes: Mapping[tuple[str | None, str], str]) -> list[bytes]:
        return [
            *(destination(name, layout) for name, layout in self.destinations.items()),
            *(ready(*pair, group.history) for pair, group in self.groups.items() if group.ready),
            *(note(*instance_and_key, value) for instance_and_key, value in notes.items()),
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
                if (drained_of := self.groups.get((name, group))) is not None:
                    left = tuple(number for number in drained_of.history if number != partition)
                    self.groups[name, group] = drained_of._replace(history=left)
            case ["deleted", str(name), str(group)]:
                self.groups.pop((name, group), None)
            case _:
                return False
        return True

    def _note(self, instance: str | None, key: str, value: str | None) -> None:
        if value is None:
            self._notes.pop((instance, key), None)
        else:
            self._notes[instance, key] = value


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
