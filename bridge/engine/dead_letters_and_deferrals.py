"""Messages that leave a group's prefetch buffer unacknowledged: as dead letters, or deferred in the backend."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Final

from adapters.base import Adapter, Deferring, Outcome, Subscription
from bridge.engine.clock import Clock, StoredWaits, confirmed, stored_result
from bridge.engine.counters import Counters
from bridge.engine.destination_names import SubscriptionKey, dead_letter_of, is_dead_letter_property
from bridge.engine.destination_registry import DestinationRegistry
from bridge.engine.entries_and_receipts import Entry
from bridge.engine.prefetch_buffer import PrefetchBuffer
from bridge.errors import BodyTooLarge, BridgeError, HeadersTooLarge
from bridge.message import Message

_RETRY_DEAD_LETTER: Final = 5_000
"""Milliseconds before a dead letter that could not be written is tried again."""
_LONG: Final = 30_000
"""Milliseconds; a message with a longer pause is deferred in the backend, if the backend is `Deferring`."""

_log = logging.getLogger("bridge.engine")

WriteDeadLetter = Callable[[Entry], Coroutine[object, object, None]]


def build_dead_letter(key: SubscriptionKey, entry: Entry) -> tuple[Message, dict[str, str]]:
    """Return the dead letter of a group's message, and the properties that say why it is one, which it lacks."""
    original = entry.delivery.message
    message = original._replace(
        destination=dead_letter_of(key.source),
        partition=None,
        delay_time=None,
        expire_time=None,
        properties={k: v for k, v in original.properties.items() if not is_dead_letter_property(k)},
    )
    reason = {
        "oms-dead-letter-reason": "max-deliveries",
        "oms-dead-letter-source": key.source,
        "oms-dead-letter-group": key.group,
        "oms-dead-letter-count": str(entry.attempts),
    }
    if original.expire_time is not None:
        reason["oms-dead-letter-expiretime"] = str(original.expire_time)
    return message, reason


class DeadLetterWriter:
    """Stores the dead letters of all groups."""

    def __init__(self, adapter: Adapter, destinations: DestinationRegistry, timeout: int) -> None:
        """`timeout`: ms to wait for the backend."""
        self._adapter = adapter
        self._destinations = destinations
        self._timeout = timeout
        self._waits = StoredWaits(timeout)

    async def write(self, key: SubscriptionKey, entry: Entry) -> None:
        """Store the dead letter of a group's message: the message, and reason, source and count as properties.

        A message that the backend refuses as too large with these properties is written without them, because it was
        stored once and must not block its key without end. The log has the properties then.
        """
        message, reason = build_dead_letter(key, entry)
        shown: dict[str, object] = {"source": key.source, "group": key.group, "id": message.message_id}
        try:
            await self._store(message._replace(properties={**message.properties, **reason}))
        except (BodyTooLarge, HeadersTooLarge):
            await self._store(message)
            _log.warning("dead letter without its reason: too large for the backend with it", extra=shown | reason)
        else:
            _log.warning("dead letter", extra=shown)

    async def _store(self, message: Message) -> None:
        """Publish without the limits that slow clients down: the message is complete and is stored already."""
        if partitions := await self._destinations.own(message.destination):
            message = message._replace(partition=self._destinations.partitioner.choose(message, partitions))
        published = self._adapter.publish(message)
        await self._waits.until_stored((published,))
        stored_result(published, self._timeout)


class BufferRemovals:
    """Runs one task for each removal. The message's key waits; if the removal fails, the buffer keeps the message."""

    def __init__(  # noqa: PLR0913 - the collaborators of one group, built in one place (group.py)
        self,
        subscription: Subscription,
        buffer: PrefetchBuffer,
        clock: Clock,
        counters: Counters,
        *,
        write_dead_letter: WriteDeadLetter,
        timeout: int,
        changed: Callable[[], None],
    ) -> None:
        """`timeout`: ms to wait for the backend. `changed` is called when a removal has changed the buffer."""
        self._subscription = subscription
        self._defer = subscription.defer if isinstance(subscription, Deferring) else None
        self._buffer = buffer
        self._clock = clock
        self._counters = counters
        self._write_dead_letter = write_dead_letter
        self._timeout = timeout
        self._waits = StoredWaits(timeout)
        self._changed = changed
        self._failure: str | None = None
        """Why a dead letter could not be stored, if that was the last result."""
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def defer(self, entry: Entry, delay: int) -> bool:
        """Defer a leased entry in the backend for `delay` ms if that is long; False: the buffer has to keep it.

        An entry with a key stays in the buffer, because the next messages of the key wait for it.
        """
        if self._defer is None or delay <= _LONG or entry.queue_key is not None:
            return False
        self._buffer.begin_removal(entry)
        try:
            future = self._defer(entry.delivery._replace(attempts=entry.attempts), self._clock.wall() + delay)
        except Exception as error:  # noqa: BLE001 - a defect of the adapter: only its future may raise
            future = asyncio.get_running_loop().create_future()
            future.set_exception(error)
        self._start(self._complete_deferral(entry, self._clock.mono() + delay, future))
        return True

    def dead_letter(self, entry: Entry) -> None:
        """Write the dead letter of an entry that `PrefetchBuffer.take_dead` returned."""
        self._start(self._complete_dead_letter(entry))

    async def wait(self) -> None:
        """Wait until no removal is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, removal: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(removal)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _complete_dead_letter(self, entry: Entry) -> None:
        """Settle the original only after the dead letter is stored."""
        try:
            await self._write_dead_letter(entry)
            await confirmed(self._subscription.settle([entry.delivery], Outcome.SETTLED), self._timeout)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the key must not wait without end
            _raise_own_cancellation(error)
            _log_defect(error, "a dead letter could not be written")
            self._log_failure(error)
            self._counters.dead_letter_failures += 1
            self._buffer.abort_removal(entry, self._clock.mono() + _RETRY_DEAD_LETTER)
        else:
            self._counters.dead_letters += 1
            self._failure = None
            self._buffer.complete_removal(entry)
        self._changed()

    def _log_failure(self, error: BaseException) -> None:
        """Log why dead letters cannot be stored, once for each reason: every key of a dead letter tries again."""
        reason = str(error)
        if isinstance(error, BridgeError) and reason != self._failure:
            self._failure = reason
            _log.warning("a dead letter cannot be stored: its key waits", extra={"reason": reason})

    async def _complete_deferral(self, entry: Entry, until: int, future: asyncio.Future[None]) -> None:
        """If the backend fails to defer the message the buffer keeps it; then it may be delivered twice."""
        try:
            await confirmed(future, self._timeout)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the message must be delivered again
            _raise_own_cancellation(error)
            _log_defect(error, "a delivery could not be deferred")
            self._buffer.abort_removal(entry, until)
        else:
            self._buffer.complete_removal(entry)
        self._changed()


def _raise_own_cancellation(error: BaseException) -> None:
    """Raise the error if this task is cancelled. An adapter that cancels its future must not end the task."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        raise error


def _log_defect(error: BaseException, action: str) -> None:
    """Log an error that an adapter must not raise; those of `bridge.errors` are counted and the action is retried."""
    if not isinstance(error, BridgeError):
        _log.error("a defect of the adapter: %s", action, exc_info=error)
