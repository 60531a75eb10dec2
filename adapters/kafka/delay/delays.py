"""Delays longer than the bridge's own window: into a delay topic, and out of it when they are over."""

import asyncio
import contextlib
import zlib
from collections.abc import Mapping
from typing import Final

from adapters.base import Stored
from adapters.kafka.delay.forwarder import Forwarder
from adapters.kafka.delay.schedule import first_hop, to_delayed, topics_of
from adapters.kafka.deletion import Purges
from adapters.kafka.errors import is_topic_removed
from adapters.kafka.mapping import Outgoing, Part
from adapters.kafka.names import destination_of
from adapters.kafka.thread_to_loop import cancel
from adapters.kafka.topics import Cluster
from adapters.wall_clock import wall
from bridge.errors import BackendUnavailable, BridgeError

PARTITIONS: Final = 4
"""Of each level: so many bridges share the work on one."""
CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "segment.bytes": str(64 * 1024 * 1024),  # forwarded records are deleted by whole segments
}
_LOOK: Final = 10.0
"""Seconds between two looks for delay topics that another bridge has made."""
_MESSAGE_ID: Final = "oms_h_messageId"


class Delays:
    """The delay topics, publishing to them, and the forwarder."""

    def __init__(self, cluster: Cluster, purges: Purges) -> None:
        self._cluster = cluster
        self._levels = topics_of(cluster.options.prefix)
        self._purges = purges
        self._partitions = 0
        """Of the delay topics; 0: it is not known that they are there."""
        self._making: asyncio.Task[None] | None = None
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
        except BackendUnavailable as error:
            if is_topic_removed(error):
                self._partitions = 0
            raise
        return Stored(None, None)

    async def delayed(self, outgoing: Outgoing, due: int) -> Outgoing:
        """Return the record to be written instead, to a delay topic, which is created on first use."""
        if not self._partitions:
            if self._making is None:
                self._making = asyncio.create_task(self._make())
            await asyncio.shield(self._making)
        level = first_hop(due - self._cluster.options.forwarded_early, wall())
        part = Part(self._levels[level], _spread(outgoing) % self._partitions)
        return to_delayed(outgoing, due, part)

    def gauges(self) -> Mapping[str, int]:
        """Return numbers of records that the forwarder holds, and of those it cannot write now."""
        return {} if self._forwarder is None else self._forwarder.gauges()

    def totals(self) -> Mapping[str, int]:
        """Return numbers of records forwarded and dropped."""
        return {} if self._forwarder is None else self._forwarder.totals()

    async def close(self) -> None:
        """Stop forwarding. Idempotent."""
        await cancel(task for task in (self._waiting, self._making) if task is not None)
        forwarder, self._forwarder, self._waiting = self._forwarder, None, None
        if forwarder is not None:
            await forwarder.close()
        await self._purges.close()  # last: the forwarder has marks read again and again

    async def _make(self) -> None:
        """Have all delay topics, and forward from then on."""
        try:
            *others, last = self._levels.values()
            found = await asyncio.gather(*(self._ensure(topic) for topic in others))
            # The last one says to other bridges that the others are there.
            self._partitions = min(*found, await self._ensure(last))
        finally:
            self._making = None
        self._forward()

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
        return await self._cluster.topics.ensure(level, PARTITIONS, CONFIGS)

    async def _wait_for_topics(self, *, there: bool) -> None:
        while not there and self._forwarder is None:
            await asyncio.sleep(_LOOK)
            with contextlib.suppress(BridgeError):
                there = await self._purges.delay_topics_exist()
        self._forward()


def _spread(outgoing: Outgoing) -> int:
    """Messages of one key wait in one partition, so that those for one moment keep their order."""
    if outgoing.key is not None:
        return zlib.crc32(outgoing.key)
    return next((zlib.crc32(value) for name, value in outgoing.headers if name == _MESSAGE_ID), 0)
