"""Retries that store nothing again: a message that its client names is stored once within a window.

A client names a message by its messageId, by an idempotency key, or by both. The first message of a name in a
destination goes to the producer; until the window ends, others of the name get its result.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from operator import attrgetter
from typing import Final, Protocol
from uuid import UUID, uuid5

from adapters.base import Replayable, Replayed, Stored
from bridge.continuation import Continuation
from bridge.engine.clock import Clock
from bridge.engine.counters import Counters
from bridge.engine.produce_batch_and_results import Produced, WaitingMessage
from bridge.errors import BridgeError, IdempotencyMismatch, OutcomeUnknown
from bridge.message import Field, Message

Name = tuple[str, str]
"""A destination, and the messageId, for a CloudEvent with its source, or, behind `_KEY`, the idempotency key."""
Result = Produced | BridgeError

_KEY: Final = "\0"
"""Before an idempotency key, so that it equals no messageId: no header contains NUL."""
_SOURCE: Final = "\0\0"
"""Between a messageId and the source of a CloudEvent."""
_KEYS: Final = UUID("9d5f0f1c-6a3e-5f0e-8a54-7d1a8a1f6c0b")
"""The namespace of the messageIds that are made from idempotency keys."""
_READ_AT_ONCE: Final = 500
"""Messages that are read from a log in one step after a restart."""
_READ_BYTES: Final = 4 << 20
"""Bytes of bodies that are read in one step then."""
_ENTRY_BYTES: Final = 900
"""Bytes of one entry besides its names."""


class FirstMessage:
    """The first message of a name, and what became of it."""

    __slots__ = ("body_hash", "names", "outcome", "passed", "since", "size")

    def __init__(self, names: tuple[Name, ...], body_hash: int, since: int) -> None:
        self.names = names
        self.body_hash = body_hash
        self.since = since
        self.size = _ENTRY_BYTES + sum(len(destination) + len(text) for destination, text in names)
        self.outcome: Produced | WaitingMessage | None = None
        """None: it is not passed to the backend yet, or was refused."""
        self.passed: asyncio.Event | None = None
        """Set when it is passed to the backend or refused; None: no caller waits for that."""


class RecentMessages:
    """Remembers messages for `window` ms, in at most `max_bytes` of memory; the oldest are forgotten first.

    Pure: no clock. The monotonic time, ms, is `mono`.
    """

    def __init__(self, window: int, max_bytes: int) -> None:
        self._window = window
        self._max_bytes = max_bytes
        self._first: OrderedDict[Name, FirstMessage] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._first)

    def claim(self, message: Message, key: str | None, mono: int) -> FirstMessage | None:
        """Return the first message of the name; None: there was none, and now it is this one.

        After that comes `passed` or `refused`. `message` has a messageId. Raises `IdempotencyMismatch` if the first one
        had another body.
        """
        self._forget_old(mono)
        names: tuple[Name, ...] = (name_of(message),)
        if key is not None:
            names = (*names, (message.destination, _KEY + key))
        body_hash = hash(message.body)
        for name in names:
            if (first := self._first.get(name)) is None:
                continue
            if first.body_hash != body_hash:
                what = "idempotency key" if name[1].startswith(_KEY) else "messageId"
                raise IdempotencyMismatch(
                    f"{message.destination}: a message with this {what} and another body was produced within the last"
                    f" {self._window} ms."
                )
            return first
        self._add(FirstMessage(names, body_hash, mono))
        return None

    def restore(self, first: FirstMessage) -> None:
        """Remember a message that was stored before a restart. Call it in the order of storing."""
        if not any(name in self._first for name in first.names):
            self._add(first)

    def passed(self, message: Message, outcome: Produced | WaitingMessage | Exception) -> None:
        """Note what the backend did with a message that was claimed; any other is ignored."""
        first = self._first.get(name_of(message))
        if first is None or first.outcome is not None:
            return
        if isinstance(outcome, Exception):
            self._forget(first)
            return
        first.outcome = outcome
        _wake(first)
        if isinstance(outcome, WaitingMessage):
            outcome.future.add_done_callback(lambda future: self._on_done(first, future))

    def claimed(self, message: Message) -> FirstMessage:
        """Return what `claim` has just remembered of a message."""
        return self._first[name_of(message)]

    def refused(self, first: FirstMessage) -> None:
        """Forget a claimed message that did not reach the backend: the next one of its name is the first.

        Does nothing if it was passed to the backend, or forgotten before: its name may be another message's now.
        """
        if first.outcome is None and self._first.get(first.names[0]) is first:
            self._forget(first)

    def _add(self, first: FirstMessage) -> None:
        for name in first.names:
            self._first[name] = first
        self._bytes += first.size
        while self._bytes > self._max_bytes and len(self._first) > len(first.names):
            self._forget(next(iter(self._first.values())))

    def _forget_old(self, mono: int) -> None:
        while self._first and (oldest := next(iter(self._first.values()))).since <= mono - self._window:
            self._forget(oldest)

    def _forget(self, first: FirstMessage) -> None:
        self._bytes -= first.size
        for name in first.names:
            del self._first[name]
        _wake(first)

    def _on_done(self, first: FirstMessage, future: asyncio.Future[Stored]) -> None:
        stored = not future.cancelled() and future.exception() is None
        if not stored and self._first.get(first.names[0]) is first:
            self._forget(first)


class Producing(Protocol):
    """The methods of `Producer` that store messages."""

    def produce(self, message: Message, require: Sequence[Field], peer: str) -> Produced | Awaitable[Produced]:
        """Publish one message."""
        ...

    async def produce_all(
        self, messages: Sequence[Message | BridgeError], require: Sequence[Field], peer: str
    ) -> list[Result]:
        """Publish a batch."""
        ...

    async def result_of(self, waiting: WaitingMessage) -> Produced:
        """Wait until an earlier message is stored."""
        ...


class Deduplicator:
    """Passes to the producer what is not a duplicate, and returns the first result for what is."""

    def __init__(
        self, producer: Producing, recent: RecentMessages, clock: Clock, counters: Counters, timeout: int
    ) -> None:
        """`timeout`: how long a duplicate waits for the first message to be passed to the backend, ms."""
        self._producer = producer
        self._recent = recent
        self._clock = clock
        self._counters = counters
        self._timeout = timeout / 1000

    def produce(
        self, message: Message, require: Sequence[Field], peer: str, key: str | None
    ) -> Produced | Awaitable[Produced]:
        """Publish one message, named by its messageId or by `key`. See `Producer.produce`.

        Raises also `IdempotencyMismatch`.
        """
        if key is not None:
            message = named(message, key)
        first = self._recent.claim(message, key, self._clock.mono())
        if first is not None:
            return self._repeat(first, message, require, peer, key)
        claimed = self._recent.claimed(message)
        try:
            produced = self._producer.produce(message, require, peer)
        except BaseException:
            self._recent.refused(claimed)
            raise
        if isinstance(produced, (Produced, Continuation)):  # it is passed to the backend
            return produced
        return self._unless_refused(claimed, produced)

    async def produce_all(
        self, messages: Sequence[Message | BridgeError], require: Sequence[Field], peer: str, key: str | None
    ) -> list[Result]:
        """Publish a batch. With `key`, a message without messageId is named by the key and its place in the batch."""
        results: list[Result | None] = [None] * len(messages)
        fresh: list[Message] = []
        claimed: list[tuple[int, FirstMessage | None]] = []
        repeated: list[tuple[int, FirstMessage, Message]] = []
        now = self._clock.mono()
        for place, each in enumerate(messages):
            if isinstance(each, BridgeError):
                results[place] = each
                continue
            message = each if key is None else named(each, f"{key}/{place}")
            try:
                first = None if message.message_id is None else self._recent.claim(message, None, now)
            except IdempotencyMismatch as error:
                results[place] = error
                continue
            if first is not None:
                repeated.append((place, first, message))
            else:
                claimed.append((place, None if message.message_id is None else self._recent.claimed(message)))
                fresh.append(message)
        published = self._producer.produce_all(fresh, require, peer)
        messages, fresh = (), []  # nothing here holds the bodies while they are stored: see `Producer.produce_all`
        try:
            for (place, _), result in zip(claimed, await published, strict=True):
                results[place] = result
        finally:
            for _, mine in claimed:
                if mine is not None:
                    self._recent.refused(mine)  # no effect on what was passed to the backend
        for place, first, message in repeated:
            try:
                results[place] = await self._repeat(first, message, require, peer, None)
            except BridgeError as error:
                results[place] = error
        return [result for result in results if result is not None]

    async def restore(
        self, adapter: Replayable, window: int, result: Callable[[Message, int | None], Produced]
    ) -> None:
        """Remember the messages of the last `window` ms that a backend has, after a restart.

        `result` makes the result of a message and its offset; None: the message is delayed.
        """
        mono, since = self._clock.mono(), self._clock.wall() - window
        found: list[FirstMessage] = []

        def add(message: Message, offset: int | None) -> None:
            left = (message.store_timestamp or 0) - since
            if left > 0:
                stored = FirstMessage((name_of(message),), hash(message.body), mono - window + left)
                stored.outcome = result(message, offset)
                found.append(stored)

        for message in adapter.delayed(since):  # before the logs, which they enter when they are due
            add(message, None)
        for log, bounds in adapter.logs().items():
            for part in _read_back(adapter, log, bounds, since):
                for message, offset in zip(part.messages, part.offsets, strict=True):
                    add(message, offset)
                await asyncio.sleep(0)
        for stored in sorted(found, key=attrgetter("since")):
            self._recent.restore(stored)

    async def _repeat(
        self, first: FirstMessage, message: Message, require: Sequence[Field], peer: str, key: str | None
    ) -> Produced:
        """Return the result of the first message; publish this one if that was refused meanwhile."""
        if first.outcome is None:
            first.passed = first.passed or asyncio.Event()
            try:
                async with asyncio.timeout(self._timeout):
                    await first.passed.wait()
            except TimeoutError:
                raise OutcomeUnknown("An earlier message of this name has not been stored yet.") from None
        outcome = first.outcome
        if outcome is None:
            produced = self.produce(message, require, peer, key)
            return produced if isinstance(produced, Produced) else await produced
        if isinstance(outcome, WaitingMessage):
            outcome = await self._producer.result_of(outcome)
        self._counters.duplicates += 1
        return outcome._replace(duplicate=True)

    async def _unless_refused(self, claimed: FirstMessage, produced: Awaitable[Produced]) -> Produced:
        try:
            return await produced
        finally:
            self._recent.refused(claimed)  # no effect on what was passed to the backend


def _read_back(adapter: Replayable, log: str, bounds: tuple[int, int], since: int) -> Iterator[Replayed]:
    """Yield parts of a log in steps from its end on, until no message of a step has entered it after `since`."""
    first, end = bounds
    while end > first:
        start = at = max(first, end - _READ_AT_ONCE)
        newest = 0
        while at < end:
            part = adapter.replay(log, at, end - at, _READ_BYTES)
            for message in part.messages:
                newest = max(newest, message.store_timestamp or 0, message.due if message.delay_time else 0)
            yield part
            at = part.next
        if newest <= since:
            break
        end = start


def named(message: Message, key: str) -> Message:
    """Return the message with a messageId: its own, or one that is made of its idempotency key.

    Each retry gets the same one, so the journal, which keeps messageIds, has the key after a restart.
    """
    if message.message_id is not None:
        return message
    return message._replace(message_id=str(uuid5(_KEYS, f"{message.destination}\0{key}")))


def name_of(message: Message) -> Name:
    """Return the name of a message with a messageId. The id of a CloudEvent is unique only within its source."""
    source = message.properties.get("source")
    text = message.message_id or ""
    return message.destination, text if source is None else f"{text}{_SOURCE}{source}"


def _wake(first: FirstMessage) -> None:
    if first.passed is not None:
        first.passed.set()
