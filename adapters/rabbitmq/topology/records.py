"""The entries of the catalogue, and the state that they add up to. Pure.

| entry | meaning |
|---|---|
| `["destination", d, partitions, log_bytes]` | a destination is created; its first entry counts |
| `["begun", d, g]` | a bridge begins to set a group up |
| `["ready", d, g, [partitions with history]]` | the group is set up; the last entry counts |
| `["drained", d, g, partition]` | the history of this partition has been consumed |
| `["deleted", d]` | the destination and its groups are deleted; its next `destination` entry is the first again |
| `["deleted", d, g]` | the group is deleted |
| `["purged", d, g, n]` | the destination (g: `null`) or the group is purged for the n-th time; the highest n counts |
| `["moved", d, g, n]` | messages delayed before the n-th purge are dropped when due; the highest n counts |
| `["floor", n]` | what is created from now on counts its purges from n: so often was something purged that is deleted |
| `["note", instance, key, value]` | metadata: the last entry of an instance and key counts; `null` deletes it |
| `["transactions"]` | the stream of transactions has been declared |
| `["read"]` | nothing: its writer reads up to it |
| `["whole", offset, [entries]]` | a snapshot: these entries add up to the same as all up to this offset |

The stream drops its oldest entries. A reader that misses the first entries has the whole state after the next snapshot:
that is the snapshot's entries, and then those behind the snapshot's offset.
"""

import json
from typing import Any, Final, Literal, NamedTuple

from adapters.rabbitmq.topology.declarations import Layout

Kind = Literal[
    "destination",
    "begun",
    "ready",
    "drained",
    "deleted",
    "purged",
    "moved",
    "floor",
    "note",
    "transactions",
    "read",
]
GROWING: Final = frozenset({"destination", "begun"})
"""Kinds of entries that make the next snapshot larger by a destination or a group."""
_RECORD_BYTES: Final = 150
"""Bytes that an entry takes in the stream beside its text."""
_PARTITIONS_MAX: Final = 1 << 20


class Group(NamedTuple):
    """The set-up of a group."""

    begun: int = 0
    """Number of bridges that have begun it since it was last ready."""
    ready: bool = False
    history: tuple[int, ...] = ()
    """Partitions that have a queue with a copy of the log."""


class Contents:
    """The state that all entries so far add up to, for one instance."""

    def __init__(self, instance: str | None) -> None:
        self._instance = instance
        self._begun = False
        """Whether an entry has been read."""
        self._incomplete: list[tuple[int, Any]] | None = None
        """While earlier entries are missing: the entries that were read, with their offsets. None: none are missing."""
        self.bytes_since_snapshot = 0
        """Of the stream, about."""
        self.snapshot_bytes = 0
        """Size of the last snapshot that was read; 0: there was none."""
        self.destinations: dict[str, Layout] = {}
        self.groups: dict[tuple[str, str], Group] = {}
        self._metadata: dict[tuple[str | None, str], str] = {}
        """Of all instances, by instance and key."""
        self.purges: dict[tuple[str, str | None], int] = {}
        """Number of purges by destination, and group or None."""
        self.moved: dict[tuple[str, str | None], int] = {}
        """The number of the last purge that was finished."""
        self.floor = 0
        """The highest number of purges of what was deleted. What is created again counts from there: messages that
        were delayed before have a lower number, and may be due only in months."""
        self._has_shrunk = False
        """Whether something was deleted since the size of a snapshot was known."""
        self.transactions = False
        """Whether the stream of transactions has been declared."""
        self.deleted: list[str] = []
        """Destinations that were deleted since this list was last emptied."""

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the instance."""
        return {key: value for (instance, key), value in self._metadata.items() if instance == self._instance}

    @property
    def complete(self) -> bool:
        """Whether no entry is missing."""
        return self._incomplete is None

    def group(self, destination: str, group: str) -> Group:
        """Return the set-up of a group."""
        return self.groups.get((destination, group), Group())

    def groups_of(self, destination: str) -> list[str]:
        """Return the groups of a destination, ready or not."""
        return [group for name, group in self.groups if name == destination]

    def accept_incomplete(self) -> None:
        """Count the entries that were read as complete: the stream has no snapshot."""
        self._incomplete = None

    def read(self, offset: int, body: bytes) -> bool:
        """Add the next entry, at its offset in the stream; False if it is not valid."""
        if not self._begun and offset:
            self._incomplete = []
        self._begun = True
        self.bytes_since_snapshot += len(body) + _RECORD_BYTES
        try:
            entry = json.loads(body)
        except (ValueError, RecursionError):
            return False
        match entry:
            case ["whole", int(last), [*entries]]:
                self.bytes_since_snapshot, self.snapshot_bytes, self._has_shrunk = 0, len(body), False
                if self._incomplete is not None and last < offset:
                    self._restore(last, entries)
                return True
        if self._incomplete is not None:
            self._incomplete.append((offset, entry))
        return self._add(entry)

    def exceeds(self, limit: int) -> bool:
        """Whether a snapshot has more than `limit` bytes: by the last one, and counted again after deletions."""
        if self._has_shrunk and self.snapshot_bytes > limit:
            self.snapshot_bytes, self._has_shrunk = sum(len(entry) + 1 for entry in self._entries()), False
        return self.snapshot_bytes > limit

    def snapshot(self, offset: int) -> bytes:
        """Return a snapshot of all entries up to `offset`, which was read last."""
        self.bytes_since_snapshot = 0
        return b'["whole",%d,[%s]]' % (offset, b",".join(self._entries()))

    def missing_in(self, other: "Contents") -> list[tuple[bytes, None]]:
        """See `State`. With the metadata of the instance: each bridge writes its own."""
        missing = Contents(self._instance)
        missing.destinations = {
            name: each for name, each in self.destinations.items() if name not in other.destinations
        }
        missing.groups = {
            pair: group
            for pair, group in self.groups.items()
            if (group.ready, group.begun) > ((known := other.group(*pair)).ready, known.begun)
        }
        missing._metadata = {
            (self._instance, key): value for key, value in self.metadata.items() if key not in other.metadata
        }
        missing.purges = {pair: count for pair, count in self.purges.items() if count > other.purges.get(pair, 0)}
        missing.moved = {pair: count for pair, count in self.moved.items() if count > other.moved.get(pair, 0)}
        missing.floor = self.floor if self.floor > other.floor else 0
        missing.transactions = self.transactions and not other.transactions
        return [(entry, None) for entry in missing._entries()]

    def take_over(self, earlier: "Contents") -> None:
        """See `State`: every bridge knows all of it."""

    def _entries(self) -> list[bytes]:
        """Return entries that add up to the same."""
        return [
            # before what they are of, which would otherwise count from the floor
            *(encode("purged", *pair, count) for pair, count in self.purges.items()),
            *(encode("moved", *pair, count) for pair, count in self.moved.items()),
            *(encode("destination", name, *layout) for name, layout in self.destinations.items()),
            *(encode("ready", *pair, group.history) for pair, group in self.groups.items() if group.ready),
            *(encode("begun", *pair) for pair, group in self.groups.items() for _ in range(group.begun)),
            *(encode("note", *instance_and_key, value) for instance_and_key, value in self._metadata.items()),
            *([encode("floor", self.floor)] if self.floor else []),
            *([encode("transactions")] if self.transactions else []),
        ]

    def _restore(self, last: int, entries: list[Any]) -> None:
        for state in (self.destinations, self.groups, self._metadata, self.purges, self.moved):
            state.clear()
        self.transactions, self.floor = False, 0
        later = [entry for offset, entry in self._incomplete or () if offset > last]
        self._incomplete = None
        for entry in (*entries, *later):
            self._add(entry)

    def _add(self, entry: Any) -> bool:  # noqa: ANN401 - any JSON
        match entry:
            case ["destination", str(name), int(partitions), int(log_bytes)] if 0 < partitions <= _PARTITIONS_MAX:
                if name not in self.destinations:
                    self.destinations[name] = Layout(partitions, max(0, log_bytes))
                    self._count_from_floor(name, None)
            case ["deleted", str(name)]:
                self._delete(name)
            case ["note", (str() | None) as instance, str(key), None]:
                self._metadata.pop((instance, key), None)
            case ["note", (str() | None) as instance, str(key), str(value)]:
                self._metadata[instance, key] = value
            case ["transactions"]:
                self.transactions = True
            case ["read"]:
                pass
            case _:
                return self._add_to_group(entry)
        return True

    def _add_to_group(self, entry: Any) -> bool:  # noqa: ANN401 - any JSON
        match entry:
            case ["begun", str(name), str(group)]:
                self._count_from_floor(name, group)
                state = self.group(name, group)
                self.groups[name, group] = state._replace(begun=state.begun + 1)
            case ["ready", str(name), str(group), [*history]] if all(isinstance(number, int) for number in history):
                self._count_from_floor(name, group)
                self.groups[name, group] = Group(0, ready=True, history=tuple(history))
            case ["drained", str(name), str(group), int(partition)]:
                if (drained := self.groups.get((name, group))) is not None:
                    left = tuple(number for number in drained.history if number != partition)
                    self.groups[name, group] = drained._replace(history=left)
            case ["deleted", str(name), str(group)]:
                self.groups.pop((name, group), None)
                self._forget_purges(name, group)
            case _:
                return self._add_purges(entry)
        return True

    def _add_purges(self, entry: Any) -> bool:  # noqa: ANN401 - any JSON
        match entry:
            case [("purged" | "moved") as kind, str(name), (str() | None) as group, int(count)]:
                counts = self.purges if kind == "purged" else self.moved
                counts[name, group] = max(count, counts.get((name, group), 0))
            case ["floor", int(count)]:
                self.floor = max(self.floor, count)
            case _:
                return False
        return True

    def _delete(self, name: str) -> None:
        """Delete a destination and its groups."""
        for pair in [pair for pair in self.groups if pair[0] == name]:
            del self.groups[pair]
        for each in [group for of, group in self.purges if of == name and group is not None]:
            self._forget_purges(name, each)
        if self.destinations.pop(name, None) is not None:  # otherwise it is an exchange of others, and stays
            self._forget_purges(name, None)
        self.deleted.append(name)

    def _count_from_floor(self, name: str, group: str | None) -> None:
        """Have a new destination, or a new group of it, count its purges from the floor."""
        if group is None:
            first = self.floor
        elif (name, group) in self.groups:
            return
        else:
            first = self.floor - self.purges.get((name, None), 0)  # the number of a group is the sum of both
        if first > 0:
            for counts in (self.purges, self.moved):
                counts[name, group] = max(first, counts.get((name, group), 0))

    def _forget_purges(self, name: str, group: str | None) -> None:
        """Forget the purges of what is deleted; what was delayed for it must not reach what is created again."""
        self._has_shrunk = True
        self.moved.pop((name, group), None)
        if count := self.purges.pop((name, group), 0):
            of_destination = 0 if group is None else self.purges.get((name, None), 0)
            self.floor = max(self.floor, count + of_destination)


def encode(kind: Kind, *fields: object) -> bytes:
    """Return an entry of the table above."""
    return json.dumps([kind, *fields]).encode()
