"""Delays longer than the bridge's own window: into a delay topic, and out of it when they are over."""

import asyncio
import contextlib
import logging
import zlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from math import inf
from time import monotonic
from typing import Final

from adapters.base import Stored
from adapters.kafka.consume.group_member import GroupMember
from adapters.kafka.delay.dispatch import Dispatch, Move
from adapters.kafka.delay.schedule import PendingDelays, first_hop, to_delayed, topics_of, waiting_of
from adapters.kafka.deletion import Purges
from adapters.kafka.errors import TopicRemoved
from adapters.kafka.mapping import Commit, Outgoing, Part, Record
from adapters.kafka.names import Own, destination_of
from adapters.kafka.options import METADATA_AGE
from adapters.kafka.own_topics import DELAYED
from adapters.kafka.thread_to_loop import cancel
from adapters.kafka.topics import Cluster
from adapters.shared_calls import SharedCalls
from adapters.wall_clock import wall
from bridge.errors import BackendUnavailable, BridgeError

PARTITIONS: Final = 4
"""Of each level: so many bridges share the work on one."""
_LOOK: Final = 10.0
"""Seconds between two looks for delay topics that another bridge has made."""
_MESSAGE_ID: Final = "oms_h_messageId"
_SET_BACK: Final = 1_000
"""Milliseconds by which the wall clock must have gone back to have been set, and not slowed down."""
_STOP: Final = 3.0
"""Seconds that records in flight get when the bridge stops."""
_TRIM: Final = 60.0
"""Seconds between two deletions of forwarded records."""
_LAST_TRIM: Final = 2.0

_log = logging.getLogger("bridge.kafka")


class Delays:
    """The delay topics, publishing to them, and the forwarder."""

    def __init__(self, cluster: Cluster, purges: Purges) -> None:
        self._cluster = cluster
        self._levels = topics_of(cluster.options.prefix)
        self._purges = purges
        self._partitions = 0
        """Of the delay topics; 0: it is not known that they are there."""
        self._making: SharedCalls[None, int] = SharedCalls()
        self._forwarder: Forwarder | None = None
        self._waiting: asyncio.Task[None] | None = None
        """Until there are delay topics; None: not started, or closed."""

    async def start(self) -> None:
        """Forward, if there are delay topics; else look again and again. Raises `BackendUnavailable`, `CannotStart`."""
        if self._waiting is None:
            there = await self._purges.delay_topics_exist()
            self._waiting = asyncio.create_task(self._wait_for_topics(there=there))

    async def publish(self, outgoing: Outgoing, due: int) -> Stored:
        """Store a record that goes to its topic when it is due, ms since 1970. Raises as `Adapter.publish` says."""
        delayed = await self.delayed(outgoing, due)
        try:
            await self._cluster.publisher.send(delayed)
        except TopicRemoved:
            self._partitions = 0
            raise
        return Stored(None, None)

    async def delayed(self, outgoing: Outgoing, due: int) -> Outgoing:
        """Return the record to be written instead, to a delay topic, which is created on first use."""
        partitions = self._partitions or await self._making.run(None, self._make)
        level = first_hop(due - self._cluster.options.forwarded_early, wall())
        part = Part(self._levels[level], _spread(outgoing) % partitions)
        return to_delayed(outgoing, due, part)

    def gauges(self) -> Mapping[str, int]:
        """Return numbers of records that the forwarder has in memory, and of topics and records that are refused."""
        if (forwarder := self._forwarder) is None:
            return {}
        return {"delayed_held": len(forwarder.pending), "delayed_put_off": forwarder.dispatch.refused}

    def totals(self) -> Mapping[str, int]:
        """Return numbers of records moved and dropped so far."""
        if (forwarder := self._forwarder) is None:
            return {}
        return {"delayed_moved": forwarder.dispatch.moved, "delayed_expired": forwarder.dispatch.dropped}

    async def close(self) -> None:
        """Stop forwarding. Idempotent."""
        if self._waiting is not None:
            await cancel([self._waiting])
        await self._making.close()
        forwarder, self._forwarder, self._waiting = self._forwarder, None, None
        if forwarder is not None:
            await forwarder.close()
        await self._purges.close()  # last: the forwarder has marks read again and again

    async def _make(self) -> int:
        """Have all delay topics, and forward from then on; return their number of partitions."""
        *others, last = self._levels.values()
        found = await asyncio.gather(*(self._ensure(topic) for topic in others))
        # The last one says to other bridges that the others are there.
        self._partitions = partitions = min(*found, await self._ensure(last))
        self._forward()
        return partitions

    def _forward(self) -> None:
        if self._forwarder is None and self._waiting is not None:
            self._forwarder = Forwarder(self._cluster, self._partitions_of, self._purges)

    async def _partitions_of(self, topic: str) -> int:
        if topic in self._levels.values():
            return await self._ensure(topic)
        if self._cluster.options.lanes:
            topic = destination_of(topic)
        return await self._cluster.topics.partitions(topic)

    async def _ensure(self, level: str) -> int:
        if await self._cluster.publisher.partitions(level) is None:
            await self._purges.forget(level)
        return await self._cluster.topics.ensure(level, PARTITIONS, DELAYED)

    async def _wait_for_topics(self, *, there: bool) -> None:
        while not there and self._forwarder is None:
            await asyncio.sleep(_LOOK)
            with contextlib.suppress(BridgeError):
                there = await self._purges.delay_topics_exist()
        self._forward()


class Forwarder(GroupMember):
    """Forwards delayed records when they are due: a member of the forwarders' group, on the event loop.

    All state is in Kafka: the delay topics have the waiting records, the group's commits say which were forwarded. The
    bridge writes a record first and then commits its position. If it is killed in between, the next bridge writes the
    record once more: at most `dispatch.IN_FLIGHT_MAX` records, of one destination at most
    `dispatch.TOPIC_IN_FLIGHT_MAX`.
    """

    def __init__(self, cluster: Cluster, partitions: Callable[[str], Awaitable[int]], purges: Purges) -> None:
        """`partitions` returns the number of partitions of a topic, which it creates if the options allow that."""
        options, self._cluster = cluster.options, cluster
        self._levels = {topic: level for level, topic in topics_of(options.prefix).items()}
        self._find_partitions = partitions
        self._purges = purges
        self._counts: dict[str, tuple[int, float]] = {}
        """Of topics that are written to: the number of partitions, and until when it is valid, in monotonic seconds."""
        self._finding: dict[str, asyncio.Task[None]] = {}
        self.pending = PendingDelays(options.forwarded_early)
        super().__init__(
            options, cluster.admin, Own(options.prefix).forwarders, list(self._levels), self.pending.partitions
        )
        self.dispatch = Dispatch(options, self.pending, self._known_partitions, purges.dropped)
        self._under_way: set[asyncio.Future[Stored]] = set()
        self.join_soon()
        self._scheduled = False
        self._now = wall()
        self._trimmed: dict[Part, int] = {}
        self._notified = False
        """Whether a failure of that was logged."""
        self._trimming = self._loop.create_task(self._trim_repeatedly())

    async def close(self) -> None:
        """Wait for records in flight, commit and leave the group."""
        self.closed = True
        await cancel([self._trimming, *self._finding.values()])
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=_STOP)
            await asyncio.sleep(0)  # for `_sent`, which notes what is to be committed
        await self._leave("delayed messages may be delivered twice")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_TRIM):
                await self._trim()

    # Called by the poller:

    def assigned(self, part: Part, committed: Commit | None) -> None:
        """Hold a partition."""
        self.pending.hold(part, self._levels[part.topic], committed)

    def arrived(self, records: Sequence[Record]) -> None:
        """Keep records until they wake."""
        now = wall()
        for record in records:
            if Part(record.topic, record.partition) not in self._held:
                continue
            waiting = waiting_of(record)
            if waiting is None:
                _log.warning("A record of %s that no bridge wrote is skipped (offset %d).", record.topic, record.offset)
            self.pending.add(record, waiting, now)
        self._schedule()

    def _release(self, parts: Collection[Part]) -> None:
        for part in parts:  # records in flight are forwarded by the next bridge, too
            self.pending.drop(part)

    # On the event loop:

    def _schedule(self) -> None:
        if not self._scheduled and not self.closed:
            self._scheduled = True
            self._loop.call_soon(self._advance)

    def _advance(self) -> None:
        """Send all records that can be sent now, and read more of the partitions that have room."""
        self._scheduled = False
        if self.closed:
            return
        before, self._now = self._now, wall()
        if self._now < before - _SET_BACK:
            self.dispatch.clock_set_back(self._now)
        moves, dropped = self.dispatch.moves(self._now)
        for move in moves:
            sent = self._cluster.publisher.send(move.outgoing)
            self._under_way.add(sent)
            sent.add_done_callback(partial(self._sent, move))
        if dropped:
            self._commit_soon(dropped)
        self._pause_and_resume()
        event = self.pending.next_event(self._now)
        self._wake_at(inf if event is None else event, self._now, self._advance)

    def _sent(self, move: Move, sent: asyncio.Future[Stored]) -> None:
        self._under_way.discard(sent)
        error = sent.exception()
        if error is None:
            if self.dispatch.stored(move):
                self._commit({move.part}).add_done_callback(partial(self._written, move))
        else:
            if not isinstance(error, BridgeError):
                error = BackendUnavailable(repr(error))
            self._counts.pop(move.outgoing.topic, None)
            self.dispatch.failed(move, error, wall())
        self._schedule()

    def _written(self, move: Move, commit: asyncio.Future[None]) -> None:
        commit.exception()  # if it failed, a later commit has the offset
        self.dispatch.finished(move)
        self._schedule()

    def _known_partitions(self, topic: str) -> int | None:
        count, until = self._counts.get(topic, (0, 0.0))
        if until > monotonic() and self._knows_purges(topic):
            return count
        if topic not in self._finding:
            self._finding[topic] = self._loop.create_task(self._find(topic))
        return None

    def _knows_purges(self, topic: str) -> bool:
        return topic in self._levels or self._purges.fresh

    async def _find(self, topic: str) -> None:
        try:
            if self._knows_purges(topic):
                self._remember(topic, await self._find_partitions(topic))
            else:  # first, and alone: a topic that was deleted is not created anew for messages that are dropped
                await self._purges.refresh()
        except BridgeError as error:
            self.dispatch.unusable(topic, error, wall())
        finally:
            del self._finding[topic]
            self._schedule()

    def _remember(self, topic: str, partitions: int) -> None:
        """Remember a topic's number of partitions, and forget what is too old to be used."""
        now = monotonic()
        for known, (_, until) in tuple(self._counts.items()):
            if until > now:
                break
            del self._counts[known]
        self._counts.pop(topic, None)
        self._counts[topic] = partitions, now + METADATA_AGE / 1000

    def _pause_and_resume(self) -> None:
        for partition in self.pending.partitions.values():
            if partition.paused is self.pending.wanted(partition, self._now):
                partition.paused = not partition.paused
                self._set_paused([partition.part], paused=partition.paused)

    async def _trim_repeatedly(self) -> None:
        while True:
            await asyncio.sleep(_TRIM)
            await self._trim()

    async def _trim(self) -> None:
        """Delete forwarded records at the beginning of each partition that this bridge holds, or log once why not."""
        lows = {part: held.progress.low or 0 for part, held in self._held.items()}
        if new := {part: low for part, low in lows.items() if low > self._trimmed.get(part, 0)}:
            try:
                await self._cluster.admin.delete_records(new)
            except BridgeError as error:
                if not self._notified:
                    _log.warning("Forwarded records cannot be deleted from the delay topics: %s", error)
                self._notified = True
            else:
                self._trimmed = lows


def _spread(outgoing: Outgoing) -> int:
    """Messages of one key wait in one partition, so that those for one moment keep their order."""
    if outgoing.key is not None:
        return zlib.crc32(outgoing.key)
    return next((zlib.crc32(value) for name, value in outgoing.headers if name == _MESSAGE_ID), 0)
