"""`Last-Event-ID`: after a reconnect, a browser names the last event it has seen and gets the later ones again.

Without acknowledgement, a sent message is settled; the last messages of each stream are therefore kept here. With
acknowledgement, the group redelivers them. In both cases the earlier stream of the same browser is closed at once: the
bridge may not have noticed yet that it is disconnected.
"""

import asyncio
import re
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, NamedTuple

from bridge.engine.names import SubscriptionKey
from bridge.wire.push_framing import StreamMessage

STREAMS_MAX: Final = 20_000
"""Streams with a buffer; the one without a message for the longest time is dropped first."""
MESSAGES_MAX: Final = 64
"""Messages kept for each stream."""
BYTES_MAX: Final = 16 << 20
"""Bytes of messages kept for all streams together."""
_OVERHEAD: Final = 1024
"""Bytes that a message counts in addition."""
_EVENT_ID: Final = re.compile(rb"([0-9a-f]{16})-(\d{1,18})")


class Event(NamedTuple):
    """One message of a stream and its event id, which stays the same when the message is sent again."""

    id: str
    message: StreamMessage


class ReplayBuffer:
    """The last messages of one stream, and of the streams that continue it after a reconnect."""

    def __init__(self, token: str, key: SubscriptionKey, on_growth: Callable[["ReplayBuffer", int], None]) -> None:
        self.token = token
        self.key = key
        self.task: asyncio.Task[object] | None = None
        """The task that sends the stream."""
        self.sent: deque[tuple[int, StreamMessage]] = deque()
        self.dropped = False
        self._on_growth = on_growth
        self._count = 0

    def add(self, message: StreamMessage) -> Event:
        """Return the event of a message that is about to be sent, and keep it unless it must be acknowledged."""
        self._count += 1
        if message.receipt is None and not self.dropped:
            self.sent.append((self._count, message))
            removed = self.sent.popleft()[1] if len(self.sent) > MESSAGES_MAX else None
            self._on_growth(self, _size(message) - (_size(removed) if removed else 0))
        return self._event(self._count, message)

    def after(self, count: int, now: int) -> list[Event]:
        """Return the kept messages after that event, except expired ones. `now`: ms since 1970."""
        return [
            self._event(number, each)
            for number, each in self.sent
            if number > count and (each.message.expires is None or each.message.expires > now)
        ]

    def _event(self, count: int, message: StreamMessage) -> Event:
        return Event(f"{self.token}-{count}", message)


class ReplayBuffers:
    """The replay buffers of all streams of this process."""

    def __init__(self) -> None:
        self._buffers: OrderedDict[str, ReplayBuffer] = OrderedDict()
        self._bytes = 0

    def open(self, key: SubscriptionKey, last_event_id: bytes, now: int) -> tuple[ReplayBuffer, list[Event]]:
        """Return the buffer of a new or continued stream, and the events to send again.

        An unknown id starts a new stream. A client may send the same id several times: a reply can be lost, too.
        """
        match = _EVENT_ID.fullmatch(last_event_id)
        buffer = self._buffers.get(match[1].decode("ascii")) if match is not None else None
        if match is None or buffer is None or buffer.key != key:
            buffer = ReplayBuffer(secrets.token_hex(8), key, self._on_growth)
            self._buffers[buffer.token] = buffer
            if len(self._buffers) > STREAMS_MAX:
                self._drop(next(iter(self._buffers.values())))
            return buffer, []
        self._buffers.move_to_end(buffer.token)
        if buffer.task is not None:
            buffer.task.cancel()
        return buffer, buffer.after(int(match[2]), now)

    def _on_growth(self, buffer: ReplayBuffer, size: int) -> None:
        self._buffers.move_to_end(buffer.token)
        self._bytes += size
        while self._bytes > BYTES_MAX:
            self._drop(next(iter(self._buffers.values())))

    def _drop(self, buffer: ReplayBuffer) -> None:
        """Empty and forget a buffer. Its stream may still be open; its later messages are not kept."""
        del self._buffers[buffer.token]
        self._bytes -= sum(_size(message) for _, message in buffer.sent)
        buffer.sent.clear()
        buffer.dropped = True


def _size(message: StreamMessage) -> int:
    return _OVERHEAD + message.message.size
