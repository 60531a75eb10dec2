"""One group's view of one destination, on partitions of Kafka that this bridge holds for a while."""

import asyncio
from bisect import insort
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from adapters.base import Delivery, Outcome, Revoked
from adapters.kafka.admin import Admin
from adapters.kafka.consume.buffer import Buffer, PartitionBuffer
from adapters.kafka.consume.group_member import GroupMember
from adapters.kafka.consume.read_again import ReadAgain
from adapters.kafka.consume.settled_ranges import LogReplaced
from adapters.kafka.mapping import Commit, Part, Record, from_record
from adapters.kafka.options import Options
from adapters.kafka.thread_to_loop import complete
from adapters.wall_clock import wall
from bridge.errors import BackendUnavailable, BridgeError

_CLOSED: Final = "The subscription is closed."
_MOVED: Final = "The partition moved to another bridge, which delivers the message again."


class KafkaSubscription(GroupMember):
    """Fetches from the records that a member of the group was sent, and commits those that the engine settles."""

    fetches_again = True

    def __init__(self, options: Options, admin: Admin, group: str, topics: Sequence[str], revoked: Revoked) -> None:
        """`topics` by the number of their lane; the first one is named as the destination."""
        self._buffer = Buffer(topics)
        super().__init__(options, admin, group, topics, self._buffer.held)
        self._take_back = revoked
        self._pending: asyncio.Future[list[Delivery]] | None = None
        self._request = (1, 0)
        self._paused: set[Part] = set()
        self._destination = topics[0]
        self._read_again = ReadAgain(options)

    def fetch(self, limit: int, max_bytes: int) -> asyncio.Future[list[Delivery]]:
        """Return what is available, else a future that waits; it raises `BackendUnavailable` also after `close`."""
        future: asyncio.Future[list[Delivery]] = self._loop.create_future()
        if (reason := _CLOSED if self.closed else self.not_ready_reason) is not None:
            future.set_exception(BackendUnavailable(reason))
        elif found := self._take(limit, max_bytes):
            future.set_result(found)
        else:
            self._pending, self._request = future, (limit, max_bytes)
        return future

    def fetch_again(self, deliveries: Sequence[Delivery]) -> asyncio.Future[list[Delivery]]:
        """Read their records again, beside the group's consumer."""
        return asyncio.ensure_future(self._fetch_again(deliveries))

    def settle(self, deliveries: Sequence[Delivery], outcome: Outcome) -> asyncio.Future[None]:
        """Record the outcome: settled messages are committed when the future is done, attempts with a later commit.

        The future raises `BackendUnavailable` also if the partition is another bridge's now: it delivers again.
        """
        parts: set[Part] = set()
        lost, is_settled = False, outcome is Outcome.SETTLED
        for delivery in deliveries:
            held = self._buffer.find(delivery.partition)
            if held is None:
                lost = True
                continue
            parts.add(held.part)
            if is_settled:
                held.progress.settle(delivery.position)
            else:
                held.progress.attempt(delivery.position, delivery.attempts)
        if is_settled and parts and not lost and not self.closed:
            future = self._commit(parts)
        else:
            self._commit_soon(parts)
            future = self._loop.create_future()
            complete(future, None, BackendUnavailable(_MOVED) if is_settled and (lost or self.closed) else None)
        self._resume_roomy(self._paused & parts)
        return future

    @property
    def lag(self) -> int | None:
        """See `adapters.base.Lagging`: by the ends of the partitions that Kafka sent with the latest fetch of each."""
        lag = 0
        for part, held in self._buffer.held.items():
            end = None if self._poller is None else self._poller.end_offset(part)
            if end is None:
                return None
            lag += held.progress.lag(end)
        return lag

    def gauges(self) -> Mapping[str, int]:
        """Return numbers of what is held now; see `KafkaAdapter.help_texts`."""
        held = self._buffer.held.values()
        return {
            "held_partitions": len(held),
            "paused_partitions": sum(self._buffer.held[part].stalled for part in self._paused),
            "buffered_records": sum(len(each.waiting) + len(each.due) for each in held),
            "buffered_bytes": self._buffer.bytes,
            "delayed_held": self._buffer.delayed,
        }

    async def close(self) -> None:
        """Commit the last acknowledgements, and leave the group."""
        if self.closed:
            return
        self.closed = True
        self._read_again.stop()
        self._fail_fetch(BackendUnavailable(_CLOSED))
        await self._leave("the last acknowledgements are not committed; these messages are delivered again")
        for part in list(self._buffer.held):
            self._buffer.drop(part)

    # Called by the poller:

    def assigned(self, part: Part, committed: Commit | None) -> None:
        """Hold a partition."""
        self._buffer.hold(part, committed)

    def arrived(self, records: Sequence[Record]) -> None:
        """Keep records until they are fetched."""
        touched: set[PartitionBuffer] = set()
        held_by = self._buffer.held
        for record in records:
            part = Part(record.topic, record.partition)
            held = held_by.get(part)
            if held is None:
                continue
            try:
                self._buffer.add(held, record)
            except LogReplaced:  # nothing that is known of the old log is true of the new one
                touched.discard(held)
                self.lost([part])
                held = self._buffer.hold(part, None)
                self._buffer.add(held, record)
                self._set_paused([part], paused=False)  # the old log may have been paused
            touched.add(held)
        self._answer()
        if crowded := [held.part for held in touched if held.part not in self._paused and self._buffer.crowded(held)]:
            self._paused.update(crowded)
            self._set_paused(crowded, paused=True)

    def failed(self, error: BridgeError) -> None:
        """Fail the pending fetch; the engine asks again."""
        self._fail_fetch(error)
        super().failed(error)

    def ended(self, error: BridgeError) -> None:
        """Drop all partitions, and fail the pending fetch."""
        super().ended(error)
        self._fail_fetch(error)

    def _release(self, parts: Collection[Part]) -> None:
        for delivery in self._take_back([self._buffer.held[part].handle for part in parts]):
            if (owner := self._buffer.find(delivery.partition)) is not None:
                owner.progress.attempt(delivery.position, delivery.attempts)
        for part in parts:
            self._buffer.drop(part)
        self._paused &= self._buffer.held.keys()
        self._resume_roomy(self._paused)

    async def _fetch_again(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        offsets: dict[Part, list[int]] = {}
        by_place: dict[tuple[Part, int], Delivery] = {}
        for delivery in deliveries:
            held = self._buffer.find(delivery.partition)
            if held is None or self.closed:
                raise BackendUnavailable(_CLOSED if self.closed else _MOVED)
            insort(offsets.setdefault(held.part, []), delivery.position)
            by_place[held.part, delivery.position] = delivery
        found = []
        for record in await self._read_again.read(offsets):
            delivery = by_place[Part(record.topic, record.partition), record.offset]
            found.append(delivery._replace(message=from_record(record, self._destination)))
        if any(self._buffer.find(each.partition) is None for each in deliveries):
            raise BackendUnavailable(_MOVED)  # the topic may be another one of the same name
        return found

    def _fail_fetch(self, error: BridgeError) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            complete(pending, [], error)

    def _take(self, limit: int, max_bytes: int) -> list[Delivery]:
        found = self._buffer.take(limit, max_bytes, wall())
        self._resume_roomy(self._paused)
        # Each fetch does this, and the timer itself only if a fetch is pending: without one nothing can be delivered.
        self._wake_at(self._buffer.next_due, wall(), self._ripen)
        return found

    def _answer(self) -> None:
        pending = self._pending
        if pending is None:
            return
        if pending.done():
            self._pending = None
        elif found := self._take(*self._request):
            self._pending = None
            pending.set_result(found)

    def _resume_roomy(self, parts: Collection[Part]) -> None:
        """Fetch paused partitions again that have room."""
        roomy = [part for part in parts if not self._buffer.crowded(self._buffer.held[part], 0.5)]
        if roomy:
            self._paused.difference_update(roomy)
            self._set_paused(roomy, paused=False)

    def _ripen(self) -> None:
        self._timer = None
        self._answer()
