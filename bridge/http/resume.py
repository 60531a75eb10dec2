"""`Last-Event-ID`: a browser that lost its stream says which event it saw last, and misses nothing that it was sent.

Without acknowledgement what was sent is settled, so the last messages of each stream are kept here to be sent once
more; under acknowledgement they come again by themselves. In both cases the stream that is continued ends at once: the
bridge may still believe it alive.
"""

import asyncio
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

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


class Tail:
    """The end of one stream: what was sent last."""

    def __init__(self, token: str, name: GroupName, grown: Callable[["Tail", int], None]) -> None:
        self.token = token
        self.name = name
        self.missed: list[Line] = []
        """What the stream that this one continues had sent in vain."""
        self.task: asyncio.Task[object] | None = None
        """What answers the stream."""
        self.sent: deque[tuple[int, Line]] = deque()
        self._grown = grown
        self._count = 0

    def add(self, line: Line) -> str:
        """Note a message that is sent now; returns its event's id."""
        self._count += 1
        if line.receipt is None:
            self.sent.append((self._count, line))
            gone = self.sent.popleft()[1] if len(self.sent) > MESSAGES else None
            self._grown(self, _size(line) - (_size(gone) if gone else 0))
        return f"{self.token}-{self._count}"


class Tails:
    """The ends of all streams of this process."""

    def __init__(self) -> None:
        self._tails: OrderedDict[str, Tail] = OrderedDict()
        self._bytes = 0

    def open(self, name: GroupName, last_event_id: bytes, wall: int) -> Tail:
        """Begin a stream, going on where the one of that event stopped; an id that is not known is no error."""
        tail = Tail(secrets.token_hex(8), name, self._grown)
        token, _, number = last_event_id.decode("latin-1").rpartition("-")
        before = self._tails.get(token)
        if before is not None and before.name == name and number.isdigit():
            self._forget(before)
            if before.task is not None:
                before.task.cancel()
            after = [line for count, line in before.sent if count > int(number)]
            tail.missed = [line for line in after if line.message.expires is None or line.message.expires > wall]
        self._tails[tail.token] = tail
        if len(self._tails) > TAILS:
            self._forget(next(iter(self._tails.values())))
        return tail

    def _grown(self, tail: Tail, size: int) -> None:
        if tail.token not in self._tails:
            return  # forgotten, or continued elsewhere
        self._tails.move_to_end(tail.token)
        self._bytes += size
        while self._bytes > BYTES:
            self._forget(next(iter(self._tails.values())))

    def _forget(self, tail: Tail) -> None:
        del self._tails[tail.token]
        self._bytes -= sum(_size(line) for _, line in tail.sent)


def _size(line: Line) -> int:
    return _OVERHEAD + len(line.message.body)
