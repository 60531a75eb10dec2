"""`GET /v1/push`: many messages on one response."""

import asyncio
import logging
import secrets
from collections.abc import Iterable
from typing import Final

from bridge.engine.consumer import CREDIT, Consumer, Leased, Terms
from bridge.engine.engine import Engine
from bridge.errors import BridgeError, HeaderInvalid
from bridge.http.asked import read_asked, read_group
from bridge.http.exchange import NO_STORE, Pair, Reply, Request, Write
from bridge.http.limits import Limits
from bridge.http.resume import Event, Tail, Tails
from bridge.wire import compression, parameters
from bridge.wire.headers import VERSION
from bridge.wire.streams import End, Events, Framing, Line, framing_for

CREDIT_MAX: Final = 1000
PIECE: Final = 64 << 10
"""Bytes that are sent at once when there are as many."""
PART: Final = 2 * PIECE
"""Bytes that a reader must take within `timeouts.stall`, or it stands still; most pieces are one part."""

_log = logging.getLogger("bridge.http")


class Push:
    """The endpoint of the path."""

    def __init__(self, engine: Engine, limits: Limits) -> None:
        self._engine = engine
        self._limits = limits
        self._tails = Tails()

    async def stream(self, request: Request) -> Reply:
        """Push messages as they come; acknowledges the receipts it brings along first."""
        headers = request.headers
        asked = read_asked(request)
        name = read_group(asked)
        if "requestid" in asked:
            raise HeaderInvalid("x-oms-requestid repeats a pull; a stream cannot be repeated.")
        terms = Terms(
            self._limits.lease_of(asked),
            ack=parameters.flag(asked, "ack"),
            credit=parameters.positive(asked, "credit", CREDIT, CREDIT_MAX),
            limit=parameters.positive(asked, "maxmessages", None),
            silence=parameters.number(asked, "waitmills", 0) if "waitmills" in asked else None,
        )
        # 128 random bits occur in no message
        framing = framing_for(headers.plain.get(b"accept"), secrets.token_hex(16).encode("ascii"))
        if receipts := parameters.receipts(asked):
            await self._engine.ack(receipts, name)
        consumer = await self._engine.consume(name, terms)
        tail, missed = None, list[Event]()
        if isinstance(framing, Events):
            last = headers.plain.get(b"last-event-id", b"")
            tail, missed = self._tails.open(name, last, self._engine.clock.wall())
        stream = _Stream(consumer, framing, tail, missed, self._limits)
        head: list[Pair] = [(b"x-oms-version", VERSION), (b"content-type", framing.content_type), NO_STORE]
        return Reply(200, head, flow=stream.run, undo=consumer.close)


class _Stream:
    """One stream: takes, writes, ends."""

    def __init__(
        self, consumer: Consumer, framing: Framing, tail: Tail | None, missed: list[Event], limits: Limits
    ) -> None:
        self._consumer = consumer
        self._framing = framing
        self._tail = tail
        self._missed = missed
        self._limits = limits

    async def run(self, write: Write) -> None:
        """See `Reply.flow`."""

        async def put(piece: bytes) -> None:
            for at in range(0, len(piece) or 1, PART):  # a large message read slowly is read all the same
                async with asyncio.timeout(self._limits.stall / 1000):
                    await write(piece[at : at + PART])
            # While its reader keeps up nothing here waits: 20,000 messages held everybody else up for 250 ms, now 4 ms.
            await asyncio.sleep(0)

        if self._tail is not None:
            self._tail.task = asyncio.current_task()
        try:
            await self._run(put)
        except TimeoutError:
            _log.warning("a push stream ends: its reader stands still", extra={"ms": self._limits.stall})
            raise asyncio.CancelledError from None  # breaks the answer off, and is no failure of the bridge
        finally:
            if self._tail is not None and self._tail.task is asyncio.current_task():
                self._tail.task = None
            self._consumer.close()

    async def _run(self, put: Write) -> None:
        consumer = self._consumer
        await put(self._framing.opening)
        try:
            await self._send(self._missed, put)
            self._missed = []
            while leased := await consumer.take():
                await self._send([self._event(each) for each in leased], put)
            await consumer.settle_up()
            end = End(consumer.why)
        except BridgeError as error:
            end = End(error.code, error.detail)
        await put(self._framing.end(end))

    def _event(self, leased: Leased) -> Event:
        line = Line(leased.message, leased.receipt, leased.lease_until)
        return Event("", line) if self._tail is None else self._tail.add(line)

    async def _send(self, events: Iterable[Event], put: Write) -> None:
        """Send messages, inflating each when its turn comes: 64 of them may be 256 MiB."""
        pieces: list[bytes] = []
        size = 0
        for event_id, line in events:
            if line.message.compression is not None:
                line = line._replace(message=compression.unpacked(line.message, self._limits.body))  # noqa: PLW2901
            pieces.append(self._framing.message(line, event_id))
            size += len(pieces[-1])
            if size >= PIECE:
                await put(b"".join(pieces))
                pieces, size = [], 0
        if pieces:
            await put(b"".join(pieces))
