"""`GET /v1/push`: many messages on one response.

`Last-Event-ID`: after a reconnect, a browser names the last event it has seen and gets the later ones again. Without
acknowledgement, a sent message is settled; the last messages of each stream are therefore kept here. With
acknowledgement, the group redelivers them. In both cases the earlier stream of the same browser is closed at once: the
bridge may not have noticed yet that it is disconnected.
"""

import asyncio
import re
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import repeat
from typing import Final, NamedTuple

from bridge.engine.client_limits import client_of
from bridge.engine.destination_names import SubscriptionKey
from bridge.engine.engine import Engine
from bridge.engine.push_consumer import CREDIT_MAX, ConsumerOptions, Leased, PushConsumer
from bridge.errors import BridgeError, HeaderInvalid
from bridge.http.heartbeat import UNBUFFERED, Heartbeat
from bridge.http.params import (
    flag,
    number,
    parse_lease,
    parse_params,
    parse_receipts,
    parse_subscription,
    positive,
)
from bridge.http.request_and_reply import (
    NO_STORE,
    OMS_VERSION,
    Limits,
    Reply,
    Request,
    Write,
)
from bridge.http.until_lost import UntilLost
from bridge.identity.caller import Caller
from bridge.identity.rules import Operation
from bridge.long_work import Slicer
from bridge.wire import gzip_body
from bridge.wire.stream_framings import (
    Events,
    EventStreamFraming,
    Framing,
    Sent,
    StreamEnd,
    StreamMessage,
    choose_framing,
)

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

    def __init__(
        self,
        token: str,
        key: SubscriptionKey,
        on_growth: Callable[["ReplayBuffer", int], None],
        principal: str | None = None,
    ) -> None:
        self.token = token
        self.key = key
        self.principal = principal
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

    def open(
        self, key: SubscriptionKey, last_event_id: bytes, now: int, principal: str | None = None
    ) -> tuple[ReplayBuffer, list[Event]]:
        """Return the buffer of a new or continued stream, and the events to send again.

        Only the same principal continues a stream. An unknown id starts a new stream. A client may send the same id
        several times: a reply can be lost, too.
        """
        match = _EVENT_ID.fullmatch(last_event_id)
        buffer = self._buffers.get(match[1].decode("ascii")) if match is not None else None
        if match is None or buffer is None or (buffer.key, buffer.principal) != (key, principal):
            buffer = ReplayBuffer(secrets.token_hex(8), key, self._on_growth, principal)
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


CHUNK: Final = 64 << 10
"""Messages are sent together once they have this many bytes: 64 messages of 1 KiB, all that are taken at once.
A write costs Granian as much as 5 messages."""


class PushEndpoint:
    """Opens push streams."""

    def __init__(self, engine: Engine, limits: Limits, slicer: Slicer) -> None:
        self._engine = engine
        self._limits = limits
        self._slicer = slicer
        self._replay_buffers = ReplayBuffers()

    async def stream(self, request: Request) -> Reply:
        """Return a stream of the group's messages. Acknowledges the receipts of the request first."""
        headers = request.headers
        params = parse_params(request.headers.parameters, request.query, request.route)
        key, caller = parse_subscription(params), request.caller
        if caller is not None:
            caller.check(Operation.CONSUME, *key)
        if "requestid" in params:
            raise HeaderInvalid("x-oms-requestid is for a pull: a push stream cannot be repeated.")
        options = ConsumerOptions(
            parse_lease(params, self._limits),
            ack=flag(params, "ack"),
            credit=positive(params, "credit", None, CREDIT_MAX),
            limit=positive(params, "maxmessages", None),
            silence=number(params, "waitmills", 0) if "waitmills" in params else None,
        )
        # A boundary of 128 random bits occurs in no message.
        framing = choose_framing(headers.plain.get(b"accept"), secrets.token_hex(16).encode("ascii"))
        if receipts := parse_receipts(params):
            await self._engine.leases.ack(receipts if caller is None else caller.unbind(receipts), key)
        consumer = await request.cancel_on_disconnect(self._engine.consume(key, options, client_of(request.peer)))
        buffer, missed = None, list[Event]()
        if isinstance(framing, EventStreamFraming):
            last_event_id = headers.plain.get(b"last-event-id", b"")
            principal = None if caller is None else caller.identity.principal
            buffer, missed = self._replay_buffers.open(key, last_event_id, self._engine.clock.wall(), principal)
        writer = _StreamWriter(
            consumer, framing, buffer, missed, limits=self._limits, slicer=self._slicer, caller=caller
        )
        reply_headers = [OMS_VERSION, (b"content-type", framing.content_type), NO_STORE, UNBUFFERED]
        return Reply(200, reply_headers, stream=writer.run, cleanup=consumer.close)


class _StreamWriter:
    """One open stream: takes messages from its consumer and writes them until the consumer or the client ends it."""

    def __init__(  # noqa: PLR0913 - all that one stream needs
        self,
        consumer: PushConsumer,
        framing: Framing,
        buffer: ReplayBuffer | None,
        missed: list[Event],
        *,
        limits: Limits,
        slicer: Slicer,
        caller: Caller | None,
    ) -> None:
        self._consumer = consumer
        self._caller = caller
        self._until_lost = UntilLost(caller)
        self._framing = framing
        self._buffer = buffer
        self._missed = missed
        self._limits = limits
        self._slicer = slicer

    async def run(self, write: Write) -> None:
        """See `Reply.stream`."""
        heartbeat = Heartbeat(write, self._framing.heartbeat)

        async def send(chunk: bytes) -> None:
            await heartbeat.write(chunk)
            # For a fast reader nothing above waits: 20,000 messages blocked other requests for 250 ms, now for 4 ms.
            await asyncio.sleep(0)

        if self._buffer is not None:
            self._buffer.task = asyncio.current_task()
        try:
            await self._until_lost.stream(self._run(send))
        finally:
            heartbeat.close()
            if self._buffer is not None and self._buffer.task is asyncio.current_task():
                self._buffer.task = None
            self._consumer.close()

    async def _run(self, send: Write) -> None:
        consumer = self._consumer
        await send(self._framing.opening)
        try:
            await self._send_messages(self._missed, send)
            self._missed = []
            while leased := await self._until_lost.wait(consumer.take()):
                await self._send_messages(self._events(self._bound(leased)), send)
            await self._until_lost.wait(consumer.settle_up())
            end = StreamEnd(consumer.end_reason)
        except BridgeError as error:
            end = StreamEnd(error.code, error.detail)
        await send(self._framing.end(end))

    def _bound(self, leased: list[Leased]) -> list[Leased]:
        """Return messages whose receipts only this principal can use."""
        if (caller := self._caller) is None:
            return leased
        return [each if each.receipt is None else each._replace(receipt=caller.bind(each.receipt)) for each in leased]

    def _events(self, leased: list[Leased]) -> Events:
        if self._buffer is None:
            return zip(repeat(""), leased)
        return [self._buffer.add(StreamMessage(*each[:3])) for each in leased]

    async def _send_messages(self, events: Events, send: Write) -> None:
        """Encode and send messages. Inflates one body at a time: 64 of them may be 256 MiB."""
        chunk: list[tuple[str, Sent]] = []
        size = 0
        for event in events:
            event_id, message = event
            if message.message.compression is not None:
                inflated = await self._slicer.run_alone(gzip_body.inflate_message(message.message, self._limits.body))
                event = event_id, StreamMessage(inflated, message.receipt, message.lease_until)  # noqa: PLW2901
            chunk.append(event)
            size += event[1].message.size
            if size >= CHUNK:
                await send(self._framing.messages(chunk))
                chunk, size = [], 0
        if chunk:
            await send(self._framing.messages(chunk))
