"""Retries that store nothing again: a message that its client names is stored once within a window.

The first message of a name goes to the producer; until the window ends, others of the name get its result.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Final

from adapters.base import Replayable, Replayed
from bridge.engine.client_limits import client_of
from bridge.engine.clock import Clock
from bridge.engine.counters import Counters
from bridge.engine.message_names import name_of, named, names_of
from bridge.engine.produce_batch_and_results import Produced, WaitingMessage
from bridge.engine.producer import Producer
from bridge.engine.recent_messages import FirstMessage, RecentMessages
from bridge.errors import BridgeError, IdempotencyMismatch, OutcomeUnknown
from bridge.message import Field, Message

Result = Produced | BridgeError

_READ_AT_ONCE: Final = 500
"""Messages that are read from a log in one step after a restart."""
_READ_BYTES: Final = 4 << 20
"""Bytes that are read in one step then."""


class _Batch:
    """The messages of one request: those to publish, those that repeat an earlier one, and the results."""

    __slots__ = ("claims", "fresh", "places", "repeated", "results")

    def __init__(self, size: int) -> None:
        self.results: list[Result | None] = [None] * size
        self.fresh: list[Message] = []
        self.places: list[int] = []
        """Of those, in the request."""
        self.claims: list[FirstMessage] = []
        self.repeated: list[tuple[int, FirstMessage, Message]] = []
        """The place of each, the first message of its name, and the message."""


class Deduplicator:
    """Passes to the producer what is not a duplicate, and returns the first result for what is."""

    def __init__(
        self, producer: Producer, recent: RecentMessages, clock: Clock, counters: Counters, timeout: int
    ) -> None:
        """`timeout`: how long a duplicate waits for the first message to be passed to the backend, ms."""
        self._producer = producer
        self._recent = recent
        self._clock = clock
        self._counters = counters
        self._timeout = timeout / 1000

    async def produce(
        self, messages: Sequence[Message | BridgeError], require: Sequence[Field], peer: str, key: str | None
    ) -> list[Result]:
        """Publish messages, each named by its messageId; see `Producer.produce`.

        `key`, an idempotency key, names a single message as well. Of several it names those without messageId, by
        their places. The result of a message whose name had another body is `IdempotencyMismatch`.
        """
        batch, single_key = _Batch(len(messages)), key if len(messages) == 1 else None
        try:
            self._sort(messages, batch, client_of(peer), key)
            published = self._producer.produce(batch.fresh, require, peer)
            messages, batch.fresh = (), []  # nothing here holds the bodies meanwhile: see `Producer.produce`
            for place, result in zip(batch.places, await published, strict=True):
                batch.results[place] = result
        finally:
            for claim in batch.claims:
                self._recent.refused(claim)  # no effect on what was passed to the backend
        for place, first, message in batch.repeated:
            batch.results[place] = await self._repeat(first, message, require, peer, single_key)
        return [result for result in batch.results if result is not None]

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
        for logs in adapter.logs():
            for log, bounds in logs.items():
                for part in _read_back(adapter, log, bounds, since):
                    for message, offset in zip(part.messages, part.offsets, strict=True):
                        add(message, offset)
                    await asyncio.sleep(0)
            await asyncio.sleep(0)
        for stored in sorted(found, key=attrgetter("since")):
            self._recent.restore(stored)

    def _sort(self, messages: Sequence[Message | BridgeError], batch: "_Batch", client: str, key: str | None) -> None:
        """Add messages to a batch, and claim the names of those that are the first of their names."""
        now, is_single = self._clock.mono(), len(messages) == 1
        for place, each in enumerate(messages):
            if isinstance(each, BridgeError):
                batch.results[place] = each
                continue
            message = each if key is None else named(each, key, None if is_single else place)
            if message.message_id is not None:
                names = names_of(message, key if is_single else None)
                try:
                    first = self._recent.find(names, message.body, now)
                except IdempotencyMismatch as error:
                    batch.results[place] = error
                    continue
                if first is not None:
                    batch.repeated.append((place, first, message))
                    continue
                batch.claims.append(self._recent.claim(names, message.body, client, now))
            batch.places.append(place)
            batch.fresh.append(message)

    async def _repeat(
        self, first: FirstMessage, message: Message, require: Sequence[Field], peer: str, key: str | None
    ) -> Result:
        """Return the result of the first message; publish this one if that was refused meanwhile."""
        if first.outcome is None:
            first.passed = first.passed or asyncio.Event()
            try:
                async with asyncio.timeout(self._timeout):
                    await first.passed.wait()
            except TimeoutError:
                return OutcomeUnknown("An earlier message of this name has not been stored yet.")
        outcome = first.outcome
        if outcome is None:
            [result] = await self.produce([message], require, peer, key)
            return result
        if isinstance(outcome, WaitingMessage):
            try:
                outcome = await self._producer.result_of(outcome)
            except BridgeError as error:
                return error
        self._counters.duplicates += 1
        return outcome._replace(duplicate=True)


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
