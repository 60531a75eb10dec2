"""Retries that store nothing again: a message that its client names is stored once within a window.

The first message of a name is passed on; until the window ends, others of the name get its result.
"""

import asyncio
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Final

from adapters.base import Replayable, Replayed
from bridge.engine.batch import Batch, Publish
from bridge.engine.clock import Clock
from bridge.engine.counters import Counters
from bridge.engine.message_names import name_of, named, names_of
from bridge.engine.produced import Outcome, Produced
from bridge.engine.recent_messages import FirstMessage, RecentMessages
from bridge.errors import BridgeError, IdempotencyMismatch, OutcomeUnknown
from bridge.message import Message

_READ_AT_ONCE: Final = 500
"""Messages that are read from a log in one step after a restart."""
_READ_BYTES: Final = 4 << 20
"""Bytes that are read in one step then."""


class _Sorted:
    """Of the messages of a batch: the claims of those to publish, and those that repeat an earlier one."""

    __slots__ = ("claims", "places", "repeated")

    def __init__(self) -> None:
        self.places: list[int] = []
        """Of those to publish, in the batch."""
        self.claims: list[FirstMessage | None] = []
        """Of those; None: it has no name."""
        self.repeated: list[tuple[int, FirstMessage, Message]] = []
        """The place of each, the first message of its name, and the message."""


class Deduplicator:
    """Passes on what is not a duplicate, and returns the first outcome for what is."""

    def __init__(self, recent: RecentMessages, clock: Clock, counters: Counters, timeout: int) -> None:
        """`timeout`: how long a duplicate waits for the first message to be passed to the backend, ms."""
        self._recent = recent
        self._clock = clock
        self._counters = counters
        self._timeout = timeout / 1000

    def first_only(self, publish: Publish) -> Publish:
        """Return the step that passes on the first message of each name, a messageId or an idempotency key.

        The key of a batch names its message if that is the only one. Of several it names those without messageId, by
        their places. The outcome of a message whose name had another body is `IdempotencyMismatch`.
        """

        async def deduplicated(batch: Batch) -> None:
            is_single = len(batch) == 1
            found, fresh = _Sorted(), Batch((), batch.require, batch.peer)
            try:
                fresh.replace(self._sort(batch, found))
                await publish(fresh)
            finally:  # also if the client has disconnected: a part may have been passed to the backend
                for place, claim in enumerate(found.claims):
                    outcome = fresh.outcomes[place] if place < len(fresh.outcomes) else None
                    if claim is not None:
                        self._recent.note(claim, outcome)
            for place, outcome in zip(found.places, fresh.outcomes, strict=True):
                batch.outcomes[place] = outcome
            for place, first, message in found.repeated:
                one = Batch([message], batch.require, batch.peer, batch.key if is_single else None)
                batch.outcomes[place] = await self._repeat(first, one, deduplicated)

        return lambda batch: deduplicated(batch) if batch.is_named() else publish(batch)

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

    def _sort(self, batch: Batch, found: _Sorted) -> list[Message]:
        """Take the messages of a batch, and return those to publish, whose names are claimed."""
        now, key, is_single = self._clock.mono(), batch.key, len(batch) == 1
        fresh: list[Message] = []
        for place, each in enumerate(batch.take()):
            batch.outcomes.append(None)
            if isinstance(each, BridgeError):
                batch.outcomes[place] = each
                continue
            message, claim = each if key is None else named(each, key, None if is_single else place), None
            if message.message_id is not None:
                names = names_of(message, key if is_single else None)
                try:
                    first = self._recent.find(names, message.body, now)
                except IdempotencyMismatch as error:
                    batch.outcomes[place] = error
                    continue
                if first is not None:
                    found.repeated.append((place, first, message))
                    continue
                claim = self._recent.claim(names, message.body, batch.client, now)
            found.claims.append(claim)
            found.places.append(place)
            fresh.append(message)
        return fresh

    async def _repeat(self, first: FirstMessage, one: Batch, publish: Publish) -> Outcome | None:
        """Return the outcome of the first message; publish this one if that was refused meanwhile."""
        if first.outcome is None:
            first.passed = first.passed or asyncio.Event()
            try:
                async with asyncio.timeout(self._timeout):
                    await first.passed.wait()
            except TimeoutError:
                return OutcomeUnknown("An earlier message of this name has not been stored yet.")
        outcome = first.outcome
        if outcome is None:
            await publish(one)
            return one.outcomes[0]
        if isinstance(outcome, Produced):
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
