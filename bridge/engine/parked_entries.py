"""The size of a prefetch buffer, and the entries in it that are parked: their messages were dropped to save memory.

A parked entry keeps its place in the buffer. Before it can be ready its message is fetched again: it is missing until
there is space for it, then requested.
"""

from abc import abstractmethod
from collections.abc import Iterable
from itertools import chain

from bridge.engine.entries_and_receipts import Entry
from bridge.message import Message


class ParkedEntries:
    """Base of the prefetch buffer: counts its entries, and knows which of them lack their messages."""

    def __init__(self) -> None:
        self.size = 0
        """Entries in all places whose message is here or requested."""
        self.bytes = 0
        """Bytes of their messages."""
        self.parked = 0
        """All other entries."""
        self.requested: set[Entry] = set()
        """Entries whose messages are being fetched again."""
        self._missing: dict[Entry, None] = {}
        """Parked entries that would be ready, in the order in which they became so."""
        self._ahead: dict[Entry, None] = {}
        """Parked entries that follow one of those, or one that is ready."""
        self._without_message: set[Entry] = set()
        """Entries that are ready once their message is here: missing or requested."""

    @property
    def missing(self) -> int:
        """Number of parked entries whose messages are to be requested."""
        return len(self._missing) + len(self._ahead)

    def park(self, entries: Iterable[Entry], size: int, size_bytes: int, limit: int) -> bool:
        """Park entries in this order until `size` entries with `size_bytes` are left; at most `limit`.

        Returns whether any were parked.
        """
        before = self.parked
        for entry in entries:
            if self.parked - before >= limit or (self.size <= size and self.bytes <= size_bytes):
                break
            entry.park()
            self.size -= 1
            self.bytes -= entry.size
            self.parked += 1
        return self.parked > before

    def request(self, size: int, size_bytes: int, wall: int) -> list[Entry]:
        """Return the missing entries for which there is space up to `size` entries and `size_bytes`.

        They are counted from now on; call `restore`, `lost` or `request_failed` for each. Those that have expired are
        given to `drop_expired` instead.
        """
        while True:
            found: list[Entry] = []
            expired: list[Entry] = []
            for entry in chain(self._missing, self._ahead):
                if self.size >= size or self.bytes >= size_bytes:
                    break
                if entry.expires is not None and entry.expires <= wall:
                    expired.append(entry)
                    continue
                found.append(entry)
                self.parked -= 1
                self.size += 1
                self.bytes += entry.size
            for entry in found:
                self._missing.pop(entry, None)
                self._ahead.pop(entry, None)
            self.requested.update(found)
            for entry in expired:
                self.drop_expired(entry)
            if found or not expired:  # what followed the expired ones may be missing now
                return found

    def restore(self, entry: Entry, message: Message) -> None:
        """Take the message of a requested entry. Does nothing if its partition was revoked meanwhile."""
        if entry in self.requested:
            self.requested.remove(entry)
            entry.restore(message)
            if entry in self._without_message:
                self._without_message.remove(entry)
                self.make_ready(entry)

    def request_failed(self, entry: Entry) -> None:
        """Note that the message of a requested entry could not be fetched: it is missing again."""
        if entry in self.requested:
            self._uncount(entry)
            self.parked += 1
            (self._missing if entry in self._without_message else self._ahead)[entry] = None

    def lost(self, entry: Entry) -> bool:
        """Remove a requested entry whose message the backend has not kept.

        Returns whether it was here: its partition may be revoked meanwhile.
        """
        if entry not in self.requested:
            return False
        self._remove_parked(entry)
        return True

    @abstractmethod
    def make_ready(self, entry: Entry) -> None:
        """Make an entry ready that has its message."""

    @abstractmethod
    def drop_expired(self, entry: Entry) -> None:
        """Remove a missing entry that has expired."""

    @abstractmethod
    def remove(self, entry: Entry) -> None:
        """Remove an entry and make the next entry of its key ready."""

    @abstractmethod
    def remove_follower(self, entry: Entry) -> None:
        """Remove an entry that is queued behind its key."""

    def _remove_parked(self, entry: Entry) -> None:
        if entry in self._without_message:
            self._without_message.remove(entry)
            self.remove(entry)
        else:
            self.remove_follower(entry)

    def _miss(self, entry: Entry) -> None:
        """Request the message of an entry that would be ready."""
        self._without_message.add(entry)
        self._ahead.pop(entry, None)
        if entry not in self.requested:
            self._missing[entry] = None

    def _read_ahead(self, entries: Iterable[Entry]) -> None:
        """Request the messages of entries that are ready soon."""
        for entry in entries:
            if entry.parked and entry not in self.requested:
                self._ahead[entry] = None

    def _is_awaited(self, entry: Entry) -> bool:
        """Whether the message of a parked entry is requested, or will be when there is space."""
        return entry in self.requested or entry in self._ahead or entry in self._missing

    def _uncount(self, entry: Entry) -> None:
        """Count an entry no more."""
        if entry.parked and entry not in self.requested:
            self._missing.pop(entry, None)
            self._ahead.pop(entry, None)
            self.parked -= 1
        else:
            self.requested.discard(entry)
            self.size -= 1
            self.bytes -= entry.size

    def _forget_all(self) -> None:
        """Count nothing: the buffer is empty."""
        for place in (self.requested, self._missing, self._ahead, self._without_message):
            place.clear()
        self.size = self.bytes = self.parked = 0
