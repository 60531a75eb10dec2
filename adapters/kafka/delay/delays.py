"""Delays longer than the bridge's own window: into a delay topic, and out of it when they are over."""

import asyncio
import contextlib
import logging
import uuid
import zlib
from collections.abc import Mapping
from typing import Final

from adapters.base import Stored
from adapters.clock import wall
from adapters.kafka.delay.forwarder import Forwarder
from adapters.kafka.delay.schedule import DUE, LEVELS, first_hop
from adapters.kafka.delay.waiting import to_delayed
from adapters.kafka.drivers.kafka_python.admin import Admin
from adapters.kafka.drivers.kafka_python.security import connection_settings
from adapters.kafka.names import LANES, Own
from adapters.kafka.options import Options
from adapters.kafka.outcomes import is_topic_gone
from adapters.kafka.publisher import Publisher
from adapters.kafka.record import Outgoing, Part
from adapters.kafka.topics import Topics
from bridge.errors import BackendUnavailable, BridgeError

PARTITIONS: Final = 4
"""Of each level: so many bridges share the work on one."""
CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "segment.bytes": str(64 * 1024 * 1024),  # what was forwarded is deleted by whole segments
}
_LOOK: Final = 10.0
"""Seconds between two looks for delay topics that another bridge has made."""
_TRIM: Final = 60.0
"""Seconds between two deletions of what was forwarded."""
_ANSWER: Final = 15.0
"""Seconds that the forwarder waits for the event loop to say which partitions a topic has."""
_STOP: Final = 6.0
_LAST_TRIM: Final = 2.0
_MESSAGE_ID: Final = "oms_h_messageId"

_log = logging.getLogger("bridge.kafka")


class Delays:
    """Everything in Kafka that waits: topics, what is published to them, and the forwarder."""

    def __init__(self, options: Options, admin: Admin, topics: Topics, publisher: Publisher) -> None:
        self._options = options
        self._own = Own(options.prefix)
        self._levels = [self._own.delay(level.name) for level in LEVELS]
        self._admin = admin
        self._topics = topics
        self._publisher = publisher
        self._partitions = 0
        """Of the delay topics; 0: it is not known that they are there."""
        self._making: asyncio.Task[None] | None = None
        self._forwarder: Forwarder | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._trimmed: dict[Part, int] = {}
        self._told = False
        """Whether somebody has been told that this does not go."""

    async def start(self) -> None:
        """Forward, if there are delay topics; else look again and again. Raises `BackendUnavailable`, `CannotStart`."""
        if not self._tasks:
            there = await self._are_there()
            self._tasks = [asyncio.create_task(self._trim_for_ever())]
            if there:
                self._forward()
            else:
                self._tasks.append(asyncio.create_task(self._wait_for_topics()))

    async def publish(self, outgoing: Outgoing, due: int) -> Stored:
        """Store a record that goes to its topic when it is due, ms since 1970. Raises as `Adapter.publish` says."""
        if not self._partitions:
            if self._making is None:
                self._making = asyncio.create_task(self._make())
            await asyncio.shield(self._making)
        level = first_hop(due, wall())
        part = Part(self._own.delay(level.name), _spread(outgoing) % self._partitions)
        try:
            await self._publisher.send(to_delayed(outgoing, due, part))
        except BackendUnavailable as error:
            if is_topic_gone(error):
                self._partitions = 0
            raise
        return Stored(None, None)

    def gauges(self) -> Mapping[str, int]:
        """What the forwarder holds and has done."""
        return {} if self._forwarder is None else self._forwarder.figures

    async def close(self) -> None:
        """Stop forwarding. What is being moved is moved to its end if that comes soon, or not at all. Idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks if self._making is None else (*tasks, self._making):
            task.cancel()
        forwarder, self._forwarder = self._forwarder, None
        if forwarder is None:
            return
        forwarder.stop()
        if not await asyncio.to_thread(forwarder.join, _STOP):
            _log.warning("The forwarder of delayed messages did not stop in time; nothing is lost by it.")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_TRIM):
                await self._trim(forwarder)

    async def _make(self) -> None:
        """Have all delay topics, and forward from then on."""
        try:
            *others, last = self._levels
            found = await asyncio.gather(*(self._topics.ensure(topic, PARTITIONS, CONFIGS) for topic in others))
            # The last one says to other bridges that the others are there.
            self._partitions = min(*found, await self._topics.ensure(last, PARTITIONS, CONFIGS))
        finally:
            self._making = None
        self._forward()

    def _forward(self) -> None:
        if self._forwarder is None and self._tasks:
            loop, options = asyncio.get_running_loop(), self._options

            def partitions(topic: str, anew: bool) -> frozenset[int]:
                asked = asyncio.run_coroutine_threadsafe(self._partitions_of(topic, anew), loop)
                try:
                    return frozenset(range(asked.result(_ANSWER)))
                except TimeoutError as error:
                    raise BackendUnavailable(f"{topic}: its partitions are not known in time.") from error

            instance = options.instance or uuid.uuid4().hex
            self._forwarder = Forwarder(options, connection_settings(options), instance, partitions)
            self._forwarder.start()

    async def _partitions_of(self, topic: str, anew: bool) -> int:
        if topic in self._levels:
            return await self._topics.ensure(topic, PARTITIONS, CONFIGS)
        destination = topic
        if self._options.lanes:
            for lane in LANES:
                destination = destination.removesuffix(lane)
        if anew:
            self._topics.forget(destination)
        return await self._topics.partitions(destination)

    async def _are_there(self) -> bool:
        return await self._publisher.partitions(self._own.delay(DUE.name)) is not None

    async def _wait_for_topics(self) -> None:
        there = False
        while not there and self._forwarder is None:
            await asyncio.sleep(_LOOK)
            with contextlib.suppress(BridgeError):
                there = await self._are_there()
        self._forward()

    async def _trim_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_TRIM)
            await self._trim(self._forwarder)

    async def _trim(self, forwarder: Forwarder | None) -> None:
        """Delete what is done with at the beginning of each partition that this bridge has, or say once why not."""
        lows = {} if forwarder is None else dict(forwarder.lows)
        if new := {part: low for part, low in lows.items() if low > self._trimmed.get(part, 0)}:
            try:
                await self._admin.delete_records(new)
            except BridgeError as error:
                if not self._told:
                    _log.warning("Delayed messages that were forwarded cannot be deleted: %s", error)
                self._told = True
            else:
                self._trimmed = lows


def _spread(outgoing: Outgoing) -> int:
    """Messages of one key wait in one partition, so that those for one moment keep their order."""
    if outgoing.key is not None:
        return zlib.crc32(outgoing.key)
    return next((zlib.crc32(value) for name, value in outgoing.headers if name == _MESSAGE_ID), 0)
