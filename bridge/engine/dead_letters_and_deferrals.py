"""Messages that leave a group's prefetch buffer unacknowledged: as dead letters, or deferred in the backend."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from adapters.base import Deferring, Outcome, Subscription
from bridge.engine.clock import Clock
from bridge.engine.counters import Counters
from bridge.engine.destinations import SubscriptionKey, dead_letter_of
from bridge.engine.leases import Entry
from bridge.engine.prefetch_buffer import PrefetchBuffer
from bridge.errors import BridgeError, OutcomeUnknown
from bridge.message import Message

_RETRY_DEAD_LETTER: Final = 5_000
"""Milliseconds before a dead letter that could not be written is tried again."""
_LONG: Final = 30_000
"""Milliseconds; a message with a longer pause is deferred in the backend, if the backend is `Deferring`."""

_log = logging.getLogger("bridge.engine")

WriteDeadLetter = Callable[[Entry], Coroutine[object, object, None]]

_DEAD_LETTER_PROPERTIES: Final = "oms-dead-letter-"
"""Prefix of the properties that only the bridge gives a dead letter."""


def build_dead_letter(key: SubscriptionKey, entry: Entry) -> tuple[Message, dict[str, str]]:
    """Return the dead letter of a group's message, and the properties that say why it is one, which it lacks."""
    original = entry.delivery.message
    message = original._replace(
        destination=dead_letter_of(key.source),
        partition=None,
        delay_time=None,
        expire_time=None,
        properties={k: v for k, v in original.properties.items() if not k.startswith(_DEAD_LETTER_PROPERTIES)},
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
        self._changed = changed
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
            self._counters.dead_letter_failures += 1
            self._buffer.abort_removal(entry, self._clock.mono() + _RETRY_DEAD_LETTER)
        else:
            self._counters.dead_letters += 1
            self._buffer.complete_removal(entry)
        self._changed()

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


def confirmed(future: asyncio.Future[None], limit: int) -> asyncio.Future[None]:
    """Return a future of the backend's confirmation of a settlement, which raises `OutcomeUnknown` after `limit` ms.

    It is done at once if the backend has confirmed already. Cancelling it does not cancel `future`: a client that
    disconnects must not withdraw an acknowledgement that was sent.
    """
    if future.done() and not future.cancelled():
        return future
    loop = asyncio.get_running_loop()
    confirmation: asyncio.Future[None] = loop.create_future()

    def finish(done: asyncio.Future[None]) -> None:
        timer.cancel()
        if confirmation.done():
            ignore_result(done)
        elif done.cancelled():
            confirmation.set_exception(OutcomeUnknown("The backend has given up the acknowledgement; repeat it."))
        elif (error := done.exception()) is not None:
            confirmation.set_exception(error)
        else:
            confirmation.set_result(None)

    def give_up() -> None:
        if not confirmation.done():
            confirmation.set_exception(OutcomeUnknown("The backend has not confirmed the acknowledgement; repeat it."))

    timer = loop.call_later(limit / 1000, give_up)
    future.add_done_callback(finish)
    return confirmation


def ignore_result(future: asyncio.Future[Any]) -> None:
    """Retrieve the error of a result that nothing waits for, so that asyncio does not log it."""
    if not future.cancelled():
        future.exception()


def _raise_own_cancellation(error: BaseException) -> None:
    """Raise the error if this task is cancelled. An adapter that cancels its future must not end the task."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        raise error


def _log_defect(error: BaseException, action: str) -> None:
    """Log an error that an adapter must not raise; those of `bridge.errors` are counted and the action is retried."""
    if not isinstance(error, BridgeError):
        _log.error("a defect of the adapter: %s", action, exc_info=error)
