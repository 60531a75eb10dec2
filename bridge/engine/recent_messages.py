"""The table of names: the first message of each name within a window, and what became of it."""

import asyncio
from collections import OrderedDict
from heapq import heapify, heappop, heappush
from typing import Final

from adapters.base import Stored
from bridge.engine.client_limits import INTERNAL, share_of
from bridge.engine.message_names import Name
from bridge.engine.produced import Outcome, Produced, WaitingMessage
from bridge.errors import IdempotencyMismatch

_ENTRY_BYTES: Final = 1100
"""Bytes of one entry besides the text of its names. Measured: 820 to 1060, and 500 more for a client's first."""
_CHARACTER: Final = 4
"""Bytes of a character at most, in a text that is not ASCII."""
_STALE_SIZES: Final = 1024
"""Sizes of clients that have changed since, and may wait to be removed, if they are not more than the clients."""


class FirstMessage:
    """The first message of a name, and what became of it."""

    __slots__ = ("body_hash", "client", "names", "outcome", "passed", "since", "size")

    def __init__(self, names: tuple[Name, ...], body_hash: int, since: int, client: str = INTERNAL) -> None:
        self.names = names
        """None of them equals another."""
        self.body_hash = body_hash
        self.since = since
        """Monotonic time, ms."""
        self.client = client
        """In whose share it counts."""
        size = _ENTRY_BYTES
        for _, destination, source, text in names:
            size += len(destination) + _size(text) + (0 if source is None else _size(source))
        self.size = size
        self.outcome: Produced | WaitingMessage | None = None
        """None: it is not passed to the backend yet, or was refused."""
        self.passed: asyncio.Event | None = None
        """Set when it is passed to the backend or refused; None: no caller waits for that."""


class _ClientEntries:
    """The entries of one client, the oldest first."""

    __slots__ = ("bytes", "limit", "messages")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self.messages: OrderedDict[FirstMessage, None] = OrderedDict()

    @property
    def oldest(self) -> FirstMessage:
        return next(iter(self.messages))


class RecentMessages:
    """Remembers messages for `window` ms, in at most `max_bytes` of memory, of which a client has a share.

    A client above its share loses its oldest entries. Above `max_bytes`, the client that has the most bytes does.

    Pure: no clock. The monotonic time, ms, is `mono`.
    """

    def __init__(self, window: int, max_bytes: int, percent: int) -> None:
        """`percent`: the share of one client; see `share_of`."""
        self._window = window
        self._max_bytes = max_bytes
        self._percent = percent
        self._first: OrderedDict[Name, FirstMessage] = OrderedDict()
        """The oldest first."""
        self._clients: dict[str, _ClientEntries] = {}
        self._sizes: list[tuple[int, str]] = []
        """Negative bytes and client, of each client at least once with no fewer bytes than it has now; a heap."""
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._first)

    def find(self, names: tuple[Name, ...], body: bytes, mono: int) -> FirstMessage | None:
        """Return the first message of one of the names. Raises `IdempotencyMismatch` if it had another body."""
        self._forget_old(mono)
        for name in names:
            if (first := self._first.get(name)) is None:
                continue
            if first.body_hash != hash(body):
                kind, destination = name[:2]
                raise IdempotencyMismatch(
                    f"{destination}: a message with this {kind} and another body was produced within the last"
                    f" {self._window} ms."
                )
            return first
        return None

    def claim(self, names: tuple[Name, ...], body: bytes, client: str, mono: int) -> FirstMessage:
        """Remember a message whose names `find` has not found. After that comes `note`."""
        first = FirstMessage(names, hash(body), mono, client)
        self._add(first)
        return first

    def restore(self, first: FirstMessage) -> None:
        """Remember a message that was stored before a restart. Call it in the order of storing."""
        if not any(name in self._first for name in first.names):
            self._add(first)

    def note(self, first: FirstMessage, outcome: Outcome | None) -> None:
        """Note what became of a message that was claimed; None: it was not passed to the backend.

        What is not stored is forgotten: the next one of its name is the first.
        """
        if outcome is None or isinstance(outcome, Exception):
            self._forget(first)
            return
        first.outcome = outcome
        _wake(first)
        if isinstance(outcome, WaitingMessage):
            outcome.future.add_done_callback(lambda future: self._on_done(first, future))

    def _add(self, first: FirstMessage) -> None:
        own = self._clients.get(first.client)
        if own is None:
            own = self._clients[first.client] = _ClientEntries(share_of(first.client, self._max_bytes, self._percent))
        for name in first.names:
            self._first[name] = first
        own.messages[first] = None
        own.bytes += first.size
        self._bytes += first.size
        while own.bytes > own.limit and len(own.messages) > 1:
            self._forget(own.oldest)
        self._note_size(first.client, own)
        while self._bytes > self._max_bytes:
            if (oldest := self._largest().oldest) is first:
                oldest = next(iter(self._first.values()))
            if oldest is first:
                break  # one always fits
            self._forget(oldest)

    def _note_size(self, client: str, own: _ClientEntries) -> None:
        heappush(self._sizes, (-own.bytes, client))
        if len(self._sizes) > 2 * len(self._clients) + _STALE_SIZES:
            self._sizes = [(-each.bytes, name) for name, each in self._clients.items()]
            heapify(self._sizes)

    def _largest(self) -> _ClientEntries:
        """Return the entries of the client that has the most bytes. There is at least one."""
        while True:
            size, client = self._sizes[0]
            own = self._clients.get(client)
            if own is not None and own.bytes == -size:
                return own
            heappop(self._sizes)
            if own is not None:
                heappush(self._sizes, (-own.bytes, client))

    def _forget_old(self, mono: int) -> None:
        while self._first and (oldest := next(iter(self._first.values()))).since <= mono - self._window:
            self._forget(oldest)

    def _forget(self, first: FirstMessage) -> None:
        """Forget an entry. Harmless if it is forgotten already, also if another has its names by now."""
        if self._first.get(first.names[0]) is first:
            for name in first.names:
                del self._first[name]
            self._bytes -= first.size
            own = self._clients[first.client]
            own.bytes -= first.size
            del own.messages[first]
            if not own.messages:
                del self._clients[first.client]
        _wake(first)

    def _on_done(self, first: FirstMessage, future: asyncio.Future[Stored]) -> None:
        if future.cancelled() or future.exception() is not None:
            self._forget(first)


def _size(text: str) -> int:
    return len(text) if text.isascii() else _CHARACTER * len(text)


def _wake(first: FirstMessage) -> None:
    if first.passed is not None:
        first.passed.set()
