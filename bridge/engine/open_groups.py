"""The open groups: opened by their first request, closed when idle, kept closed while they are deleted."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from adapters.base import Adapter, Delivery
from bridge.engine.clock import Clock
from bridge.engine.counters import OTHER, Counters, LabelCounts
from bridge.engine.destination_names import SubscriptionKey, is_dead_letter
from bridge.engine.destination_registry import DestinationRegistry
from bridge.engine.entries_and_receipts import Entry
from bridge.engine.group import Group
from bridge.engine.options import EngineOptions
from bridge.errors import BackendUnavailable, Draining

DRAINING: Final = "The bridge is stopping and delivers no more messages."


_log = logging.getLogger("bridge.engine")

_Closed = tuple[str, str | None, asyncio.Future[None]]
"""Source and group, None: all groups, that stay closed until the future is done."""


class OpenGroups:
    """The groups that this bridge has open, by their names and by the numbers that receipts carry."""

    def __init__(  # noqa: PLR0913, PLR0917 - the engine's parts
        self,
        adapter: Adapter,
        clock: Clock,
        options: EngineOptions,
        counters: Counters,
        destinations: DestinationRegistry,
        write_dead_letter: Callable[[SubscriptionKey, Entry], Coroutine[object, object, None]],
        stop_consumers: Callable[[Group, str], None],
    ) -> None:
        self.by_number: dict[int, tuple[SubscriptionKey, Group]] = {}
        self.counts = LabelCounts(options.metric_labels, SubscriptionKey(OTHER, OTHER))
        self._adapter = adapter
        self._clock = clock
        self._options = options
        self._counters = counters
        self._destinations = destinations
        self._write_dead_letter = write_dead_letter
        self._stop_consumers = stop_consumers
        self._groups: dict[SubscriptionKey, asyncio.Future[Group]] = {}
        """Opened, or being opened."""
        self._closing: dict[SubscriptionKey, asyncio.Future[None]] = {}
        self._numbers: dict[SubscriptionKey, int] = {}
        self._next_number = 0
        self._kept_closed: _Closed | None = None

    def find(self, key: SubscriptionKey) -> tuple[Group, int] | None:
        """Return a group and its number; None: it is not open. Raises `BackendUnavailable` if it cannot be used now."""
        opening = self._groups.get(key)
        if opening is None or not opening.done():
            return None
        if self._kept_closed is not None and _concerns(self._kept_closed, key):
            return None
        group = opening.result()
        if (reason := group.not_ready_reason) is not None:
            group.last_used = self._clock.mono()  # in use: if it were closed as idle, it would join no more
            raise BackendUnavailable(reason)
        return group, self._numbers[key]

    async def open(self, key: SubscriptionKey, client: str, *, create: bool = True, from_oldest: bool = False) -> None:
        """Open a group, as soon as it is not kept closed; `client` is that of `client_of`. Raises `BridgeError`.

        The first call subscribes, and others wait for the same subscription. `create` and `from_oldest`: see
        `ConsumerOptions`.
        """
        await self._until_not_kept_closed(key)
        while key not in self._groups:
            await self._destinations.prepare_group(key, client, create=create)
            if not self._is_kept_closed(key):
                break
            await self._until_not_kept_closed(key)  # and look again: the destination may have been deleted
        opening = self._groups.get(key)
        if opening is None:
            self._destinations.open_group(key, client)  # only now: a caller that is cancelled before has opened nothing
            opening = asyncio.ensure_future(self._subscribe(key, latest=self._options.latest and not from_oldest))
            self._groups[key] = opening
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if opening.cancelled() and (task is None or not task.cancelling()):
                raise Draining(DRAINING) from None
            raise

    def stop_opening(self) -> None:
        """Open no group any more: joining one that bridges share may take longer than the time to stop."""
        for opening in self._groups.values():
            opening.cancel()

    async def close(self) -> None:
        """Close all groups, without an error: the log has it."""
        await asyncio.gather(*self._groups.values(), return_exceptions=True)
        closing = [*self._closing.values(), *(self._close(number) for number in tuple(self.by_number))]
        for result in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(result, BaseException):
                _log.error("closing a group failed", exc_info=result)

    async def close_idle(self) -> None:
        """Close groups that were not used for `group_idle`, until it is cancelled."""
        idle = self._options.group_idle
        while True:
            await asyncio.sleep(idle / 4000)
            since = self._clock.mono() - idle
            for number, (_, group) in tuple(self.by_number.items()):
                if group.idle and group.last_used <= since:
                    try:
                        await self._close(number)
                    except Exception:  # noqa: BLE001 - the other groups are closed all the same
                        _log.warning("closing an idle group failed", exc_info=True)

    @asynccontextmanager
    async def kept_closed(self, source: str, group: str | None, reason: str) -> AsyncIterator[None]:
        """See `GroupsClosed`."""
        self._kept_closed = closed = (source, group, asyncio.get_running_loop().create_future())
        try:
            for key, opening in tuple(self._groups.items()):
                if _concerns(closed, key):
                    await self._stop(key, opening, reason)
            for key, closing in tuple(self._closing.items()):
                if _concerns(closed, key):
                    await asyncio.wait((closing,))
            yield
        finally:
            self._kept_closed = None
            closed[2].set_result(None)

    def _is_kept_closed(self, key: SubscriptionKey) -> bool:
        return self._kept_closed is not None and _concerns(self._kept_closed, key)

    async def _until_not_kept_closed(self, key: SubscriptionKey) -> None:
        while (closed := self._kept_closed) is not None and _concerns(closed, key):
            await asyncio.shield(closed[2])

    async def _subscribe(self, key: SubscriptionKey, *, latest: bool) -> Group:
        group: Group | None = None

        def revoked(partitions: Collection[int]) -> Sequence[Delivery]:
            return () if group is None else group.revoke(partitions)  # None: nothing has been fetched yet

        try:
            if (closing := self._closing.get(key)) is not None:
                await asyncio.wait((closing,))
            group = Group(
                await self._adapter.subscribe(key.source, key.group, revoked, latest=latest),
                self._clock,
                self._options,
                self._counters,
                partial(self._write_dead_letter, key),
                counts=self.counts[key],
                max_deliveries=None if is_dead_letter(key.source) else self._options.max_deliveries,
                durable=self._adapter.features.durable,
            )
        except BaseException:
            del self._groups[key]
            self._destinations.forget_group(key)
            raise
        self._next_number += 1
        self._numbers[key] = self._next_number
        self.by_number[self._next_number] = (key, group)
        return group

    async def _stop(self, key: SubscriptionKey, opening: asyncio.Future[Group], reason: str) -> None:
        """End the consumers and pulls of a group, and close it."""
        await asyncio.wait((opening,))
        if self._groups.get(key) is opening and not opening.cancelled():
            self._stop_consumers(opening.result(), reason)
            await self._close(self._numbers[key])

    async def _close(self, number: int) -> None:
        """Close a group; does nothing if that was done before. By its number: its name may be another group's now."""
        if number not in self.by_number:
            return
        key, group = self.by_number.pop(number)
        del self._groups[key], self._numbers[key]
        self._destinations.close_group(key)
        self._closing[key] = closing = asyncio.ensure_future(group.close())
        closing.add_done_callback(lambda done: self._closed(key, done))
        await asyncio.shield(closing)  # stopping the bridge must not interrupt the release of messages

    def _closed(self, key: SubscriptionKey, closing: asyncio.Future[None]) -> None:
        if self._closing.get(key) is closing:
            del self._closing[key]


def _concerns(closed: _Closed, key: SubscriptionKey) -> bool:
    source, group, _ = closed
    return key.source == source and group in {None, key.group}
