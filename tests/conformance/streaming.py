"""Push streams: opened and read frame by frame, on a connection where other requests can go, too."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from .conversation import PATIENCE, QUIET, Conversation
from .frames import Answer, Frames, Pairs

LINES: Final = "application/x-ndjson"
EVENTS: Final = "text/event-stream"
PARTS: Final = "multipart/mixed"


@dataclass(frozen=True)
class Pushed:
    """One message as it was pushed."""

    body: bytes
    count: int
    receipt: str
    """Empty: it is settled."""
    item: dict[str, Any]


class Push:
    """One push stream of lines. Its methods wait as long as they must."""

    def __init__(self, talk: Conversation, frames: Frames, pairs: Pairs, params: dict[str, object]) -> None:
        named = {"version": "1.0.0", "source": talk.destination, "consumerid": talk.group, "ack": "true"} | params
        headers = [(f"x-oms-{name}".encode(), str(value).encode()) for name, value in named.items()]
        self.frames = frames
        self.number = frames.request("GET", "/v1/push", [*headers, *pairs], b"")
        self._at = 0

    async def head(self) -> Answer:
        """Return the head of the answer, which comes at once."""
        return await asyncio.to_thread(self.frames.headers_of, self.number)

    async def take(self) -> Pushed:
        """Return the next message, which must come."""
        item = await asyncio.to_thread(self._next)
        assert "end" not in item, item
        count = item["extensionHeader"]["deliveryCount"]
        return Pushed(base64.b64decode(item["data"]), count, item.get("receipt", ""), item)

    async def take_all(self, count: int) -> list[Pushed]:
        """Return so many messages, acknowledging none."""
        return [await self.take() for _ in range(count)]

    async def nothing(self, wait: int = QUIET) -> None:
        """Make sure that nothing comes and that the stream stays open."""
        assert await asyncio.to_thread(self.frames.grows, self.number, self._at, wait / 1000) is False

    async def end(self) -> dict[str, Any]:
        """Return the end, which must be the next that comes, with nothing behind it."""
        item = await asyncio.to_thread(self._next)
        assert "end" in item, item
        answer = await self.answer()
        assert (answer.ended, len(answer.body)) == ("complete", self._at)
        return item

    async def answer(self) -> Answer:
        """Return everything, once it is over."""
        return await asyncio.to_thread(self.frames.answer, self.number, PATIENCE / 1000)

    async def settle(self, how: str, *receipts: str, **params: object) -> None:
        """Send ack, nack or extend on the same connection."""
        named = {"version": "1.0.0", "receipt": ",".join(receipts)} | params
        pairs = [(f"x-oms-{name}".encode(), str(value).encode()) for name, value in named.items()]
        answer = await asyncio.to_thread(self.frames.ask, "POST", f"/v1/{how}", pairs)
        assert answer.status == 204, answer

    def _next(self) -> dict[str, Any]:
        while True:
            line, end, _ = self.frames.body_of(self.number)[self._at :].partition(b"\n")
            if end:
                self._at += len(line) + 1
                item: dict[str, Any] = json.loads(line)
                return item
            size = self._at + len(line)
            assert self.frames.grows(self.number, size, PATIENCE / 1000), f"{line!r} and nothing more"


@asynccontextmanager
async def pushing(
    talk: Conversation, accept: str = LINES, *more: tuple[bytes, bytes], window: int | None = None, **params: object
) -> AsyncIterator[Push]:
    """Open a stream for the group of a conversation on its own connection, which is closed at the end."""
    with connected(talk, window) as frames:
        yield Push(talk, frames, [(b"accept", accept.encode()), *more], params)


@contextmanager
def connected(talk: Conversation, window: int | None = None) -> Iterator[Frames]:
    """Open a connection for several streams."""
    with Frames(str(talk.http.base_url), window=window) as frames:
        yield frames
