"""`Last-Event-ID`: a browser that lost its stream says which event it saw last, and misses nothing that it was sent.

Without acknowledgement what was sent is settled, so the last messages of each stream are kept here to be sent once
more; under acknowledgement they come again by themselves. In both cases the stream that is continued ends at once: the
bridge may still believe it alive.
"""

import asyncio
import re
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, NamedTuple

from bridge.engine.engine import GroupName
from bridge.wire.streams import Line

TAILS: Final = 20_000
"""Streams that are remembered; the longest silent is forgotten first."""
MESSAGES: Final = 64
"""Messages kept for each."""
BYTES: Final = 16 << 20
"""Bytes of bodies kept for all of them together."""
_OVERHEAD: Final = 1024
"""Bytes that a message counts beside its body."""
_ID: Final = re.compile(rb"([0-9a-f]{16})-(\d{1,18})")


class Event(NamedTuple):
    """One message of a stream and the id that its event has, also when it is sent again."""

    id: str
    line: Line


class Tail:
    """The end of one stream, and of those that continue it: what was sent last."""

    def __init__(self, token: str, name: GroupName, grown: Callable[["Tail", int], None]) -> None:
        self.token = token
        self.name = name
        self.task: asyncio.Task[object] | None = None
        """What answers the stream."""
        self.sent: deque[tuple[int, Line]] = deque()
        self.forgotten = False
        self._grown = grown
        self._count = 0

    def add(self, line: Line) -> Event:
        """Note a message that is to be sent now."""
        self._count += 1
        if line.receipt is None and not self.forgotten:
            self.sent.append((self._count, line))
            gone = self.sent.popleft()[1] if len(self.sent) > MESSAGES else None
            self._grown(self, _size(line) - (_size(gone) if gone else 0))
        return self._event(self._count, line)

    def after(self, count: int, wall: int) -> list[Event]:
        """Return what was sent after that event and has not expired."""
        missed = [(at, line) for at, line in self.sent if at > count]
        return [
            self._event(at, line) for at, line in missed if line.message.expires is None or line.message.expires > wall
        ]

    def _event(self, count: int, line: Line) -> Event:
        return Event(f"{self.token}-{count}", line)


class Tails:
    """The ends of all streams of this process."""

    def __init__(self) -> None:
        self._tails: OrderedDict[str, Tail] = OrderedDict()
        self._bytes = 0

    def open(self, name: GroupName, last_event_id: bytes, wall: int) -> tuple[Tail, list[Event]]:
        """Begin a stream or go on with the one of that event; returns what it had sent in vain, too.

        An id that is not known is no error. The same id may come again: the answer to it may be lost as well.
        """
        asked = _ID.fullmatch(last_event_id)
        tail = self._tails.get(asked[1].decode("ascii")) if asked is not None else None
        if asked is None or tail is None or tail.name != name:
            tail = Tail(secrets.token_hex(8), name, self._grown)
            self._tails[tail.token] = tail
            if len(self._tails) > TAILS:
                self._forget(next(iter(self._tails.values())))
            return tail, []
        self._tails.move_to_end(tail.token)
        if tail.task is not None:
            tail.task.cancel()
        return tail, tail.after(int(asked[2]), wall)

    def _grown(self, tail: Tail, size: int) -> None:
        self._tails.move_to_end(tail.token)
        self._bytes += size
        while self._bytes > BYTES:
            self._forget(next(iter(self._tails.values())))

    def _forget(self, tail: Tail) -> None:
        """Let go of a stream, which may go on: without this it would keep 64 bodies that nobody counts."""
        del self._tails[tail.token]
        self._bytes -= sum(_size(line) for _, line in tail.sent)
        tail.sent.clear()
        tail.forgotten = True


def _size(line: Line) -> int:
    return _OVERHEAD + len(line.message.body)
