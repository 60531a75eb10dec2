"""Many messages, one after the other: what `Client.push` hands out."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import Enum
from typing import NamedTuple, Protocol, Self

from bridge.client.acks import BATCH, Acks
from bridge.client.answers import Delivery
from bridge.client.connection import Connection
from bridge.client.renewal import renewing
from bridge.client.stream import Stream
from bridge.wire.streams import Line


class Settler(Protocol):
    """What a `Client` does with receipts."""

    async def ack(self, *receipts: str) -> None:
        """Settle for good."""
        ...

    async def nack(self, *receipts: str, delay_ms: int) -> None:
        """Give back; ready again after `delay_ms`."""
        ...

    async def extend(self, *receipts: str, lease_ms: int) -> None:
        """Let the leases last `lease_ms` from now."""
        ...


class Settling(Enum):
    """When a message is acknowledged."""

    AFTER = "when the next one is asked for"
    BEFORE = "before it is handed out"
    BY_HAND = "by whoever it was handed to"


class Terms(NamedTuple):
    """On which terms messages are received; see `Client.push`."""

    source: str
    group: str
    settling: Settling
    lease_ms: int
    credit: int | None
    max_messages: int | None
    wait_ms: int | None

    def asked(self) -> dict[str, str]:
        """Return what each stream is asked for, without the number of messages: that goes down."""
        asked = {"source": self.source, "consumerid": self.group, "ack": "true", "leasemills": str(self.lease_ms)}
        optional = {"credit": self.credit, "waitmills": self.wait_ms}
        return asked | {name: str(value) for name, value in optional.items() if value is not None}


@asynccontextmanager
async def receiving(settler: Settler, connect: Callable[[], Connection], terms: Terms) -> AsyncIterator["Messages"]:
    """Receive messages while the block lives."""
    news = asyncio.Event()
    async with (
        Stream(connect, terms.asked(), terms.max_messages, news) as stream,
        Acks(settler.ack, news) as acks,
    ):
        messages = Messages(settler, stream, acks, terms.settling)
        async with renewing(settler.extend, messages.unsettled, terms.lease_ms):
            yield messages
            messages.handled()  # not reached when the block is left by an exception


class Messages:
    """An asynchronous iterator of deliveries; see `Client.push`."""

    def __init__(self, settler: Settler, stream: Stream, acks: Acks, settling: Settling) -> None:
        self._settler = settler
        self._stream = stream
        self._acks = acks
        self._settling = settling
        self._settled: deque[Line] = deque()
        self._in_hand: tuple[asyncio.Event, str] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        self.handled()
        await asyncio.sleep(0)  # 30 us, or a handler that never waits would hold up its acknowledgements
        while True:
            self._acks.check()
            if self._settled:
                return _delivery(self._settled.popleft(), None)
            if (line := self._stream.pop()) is not None:
                if self._settling is not Settling.BEFORE:
                    return self._hand_out(line)
                await self._settle_with_all_behind(line)
            elif self._stream.over():
                raise StopAsyncIteration
            else:
                await self._stream.wait()

    async def nack(self, delivery: Delivery, *, delay_ms: int = 0) -> None:
        """Give a message back instead of acknowledging it; ready again after `delay_ms`.

        Raises `LeaseEnded` when it has gone back already, and `ValueError` when nothing was leased.
        """
        if delivery.receipt is None:
            raise ValueError("Under ack=False a message is settled before it is handed out.")
        if self._in_hand is not None and self._in_hand[1] == delivery.receipt:
            self._in_hand = None
        await self._settler.nack(delivery.receipt, delay_ms=delay_ms)

    def handled(self) -> None:
        """Acknowledge the message in hand."""
        if self._in_hand is not None:
            self._acks.add(*self._in_hand)
            self._in_hand = None

    def unsettled(self) -> list[str]:
        """Return the receipts of the messages whose leases are ours to renew."""
        in_hand = [] if self._in_hand is None else [self._in_hand[1]]
        return in_hand + self._stream.waiting()

    def _hand_out(self, line: Line) -> Delivery:
        if self._settling is Settling.AFTER and line.receipt is not None:
            self._in_hand = (self._stream.ended, line.receipt)
        return _delivery(line, line.receipt)

    async def _settle_with_all_behind(self, first: Line) -> None:
        """Acknowledge all that has come in one request. What comes too late is dropped: "at most once"."""
        ended, lines = self._stream.ended, [first]
        while len(lines) < BATCH and (line := self._stream.pop()) is not None:
            lines.append(line)
        if await self._acks.settle(ended, [line.receipt for line in lines if line.receipt is not None]):
            self._settled += lines


def _delivery(line: Line, receipt: str | None) -> Delivery:
    lease_until = None if receipt is None else line.lease_until
    return Delivery(line.message, receipt, lease_until, line.message.delivery_count or 1)
