"""Drops the delayed messages of destinations that an operator has purged or deleted.

A mark says for a topic where the delay topics ended at that moment. A record is purged if it was first stored before
that end; a header has that place while it moves on. Marks are in a compacted topic. The last mark of a topic counts.
The same topic names the destinations whose deletion has begun, so that a repeated one finishes what was broken off.

A forwarder writes to a destination only within `FRESH` seconds after it has begun to read the marks, and a purge takes
`_WAIT` seconds longer than that. Both use their own monotonic clock, so clocks of different machines are not compared.
"""

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import Final

from adapters.kafka.delay.schedule import first_place, topics_of
from adapters.kafka.log_reader import read_through
from adapters.kafka.mapping import Outgoing, Part, Record
from adapters.kafka.names import Own
from adapters.kafka.own_topics import COMPACTED
from adapters.kafka.topics import Cluster
from adapters.shared_calls import SharedCalls
from adapters.wall_clock import wall
from bridge.errors import BackendUnavailable, BridgeError, DestinationUnknown, OutcomeUnknown

FRESH: Final = 2.0
"""Seconds for which marks that were read are relied on."""
_WAIT: Final = 1.0
"""Seconds that a record which was sent in time may take until it is stored."""
_BEGUN: Final = "begun:"
"""Prefix of the key of a destination whose deletion has begun; no topic's name has a colon."""

_log = logging.getLogger("bridge.kafka")

Ends = Mapping[Part, int]
"""Of partitions of delay topics: the offset after the last record that is purged."""


class Purges:
    """The marks as far as they have been read, and how others are written."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._part = Part(Own(cluster.options.prefix).purges, 0)
        self._levels = list(topics_of(cluster.options.prefix).values())
        self._marks: dict[str, Ends] = {}
        """By topic, and by `_BEGUN` and a destination; those have no ends."""
        self._read_up_to = 0
        self._as_of = -inf
        self._refreshing: SharedCalls[None, None] = SharedCalls()
        self.close = self._refreshing.close

    def dropped(self, topic: str, record: Record) -> bool:
        """Whether a record of a delay topic is purged; it goes to `topic`."""
        ends = self._marks.get(topic)
        if ends is None:
            return False
        first, offset = first_place(record)
        return offset < ends.get(first, 0)

    @property
    def fresh(self) -> bool:
        """Whether no mark can be missing that a purge has waited for."""
        return monotonic() < self._as_of + FRESH

    async def delay_topics_exist(self) -> bool:
        """Return whether delayed messages may be stored. Raises `BackendUnavailable`."""
        return await self._cluster.publisher.partitions(self._levels[-1]) is not None

    async def refresh(self) -> None:
        """Read new marks; calls share one reading. Raises `BackendUnavailable` or `Refused`."""
        await self._refreshing.run(None, self._refresh)

    async def begin(self, destination: str) -> bool:
        """Store that the deletion of a destination begins; return whether there are delay topics. Raises as `purge`."""
        if not await self.delay_topics_exist():
            return False
        await self._cluster.topics.ensure(self._part.topic, 1, COMPACTED)
        await self._write(_BEGUN + destination, {})
        return True

    async def begun(self, destination: str) -> bool:
        """Return whether a deletion has begun and not been finished, here or elsewhere. Raises as `refresh`."""
        if self._refreshing.running(None) is not None:
            await self.refresh()  # it may have begun too early
        await self.refresh()
        return _BEGUN + destination in self._marks

    async def finish(self, destination: str) -> None:
        """Store that a deletion is finished. Raises as `purge`."""
        await self._send(_BEGUN + destination, None)

    async def purge(self, topics: Sequence[str]) -> bool:
        """Mark the records that are in delay topics now, so that no forwarder writes them to these topics.

        Returns whether there are delay topics. Raises `BackendUnavailable`, `OutcomeUnknown` or a `Rejected`.
        """
        if not await self.delay_topics_exist():
            return False
        ends = await self._cluster.admin.end_offsets(self._levels, committed=False)
        await self._cluster.topics.ensure(self._part.topic, 1, COMPACTED)
        await asyncio.gather(*(self._write(topic, ends) for topic in topics))
        await asyncio.sleep(FRESH + _WAIT)
        return True

    async def forget(self, level: str) -> None:
        """Remove a delay topic from all marks before it is created again: its offsets begin again."""
        await self.refresh()
        for topic, ends in list(self._marks.items()):
            kept = {part: end for part, end in ends.items() if part.topic != level}
            if kept != ends:
                await self._write(topic, kept)

    async def _write(self, topic: str, ends: Ends) -> None:
        await self._send(topic, json.dumps([[*part, end] for part, end in ends.items() if end]).encode())

    async def _send(self, key: str, body: bytes | None) -> None:
        await self._cluster.publisher.send(Outgoing(*self._part, wall(), key.encode(), body, ()))

    async def _refresh(self) -> None:
        began, end = monotonic(), 0
        if await self._cluster.publisher.partitions(self._part.topic) is not None:
            end = (await self._cluster.admin.end_offsets([self._part.topic], committed=False))[self._part]
        if end != self._read_up_to:
            self._marks = _marks(await read_through(self._cluster.options, self._part) if end else ())
        self._read_up_to, self._as_of = end, began


def _marks(records: Sequence[Record]) -> dict[str, Ends]:
    marks: dict[str, Ends] = {}
    for record in records:
        if record.value is None:
            marks.pop((record.key or b"").decode(errors="replace"), None)
            continue
        try:
            ends = {Part(topic, partition): int(end) for topic, partition, end in json.loads(record.value)}
            marks[(record.key or b"").decode()] = ends
        except (TypeError, ValueError):
            _log.warning("a record is not a mark of a purge", extra={"topic": record.topic, "offset": record.offset})
    return marks


class Deletion:
    """Changes topics and committed offsets. Each change can be repeated, also one that was broken off at any step.

    A deletion is stored before its first step: without its topics, only that record says that it has to be finished.

    A group exists for a destination if it has committed offsets of its topics: Kafka has no other record of it.
    """

    def __init__(self, cluster: Cluster, purges: Purges) -> None:
        self._admin = cluster.admin
        self._topics = cluster.topics
        self._purges = purges

    async def purge(self, destination: str, group: str | None) -> None:
        """Delete all records of the topics, or commit their ends for a group, also for one that has no offsets yet."""
        topics = await self._topics.existing(destination)
        if group is not None:
            await self._admin.settle_all(group, topics)
            return
        await self._admin.purge(topics)
        with _begun():
            if await self._purges.purge(topics):  # meanwhile some may have been forwarded
                await self._admin.purge(topics)

    async def delete(self, destination: str, group: str | None) -> None:
        """Delete the topics, and with them their offsets of all groups, or the offsets of one group."""
        if group is None:
            await self._delete(destination)
            return
        topics = await self._topics.existing(destination)
        parts = [part for part in await self._admin.group_offsets(group) if part.topic in topics]
        if not parts:
            raise DestinationUnknown(f"{group}: the group has settled nothing of {destination}.")
        await self._admin.delete_group_offsets(group, parts)

    async def _delete(self, destination: str) -> None:
        broken_off = False
        try:
            await self._topics.existing(destination)
        except DestinationUnknown:
            broken_off = await self._purges.begun(destination)
            if not broken_off:
                raise
        delayed = await self._purges.begin(destination)
        topics = self._topics.of(destination)  # all: a deletion that was broken off may have left some
        try:
            await self._remove(topics)
            with _begun():
                if delayed:
                    await self._purges.purge(topics)
                    await self._remove(topics)  # meanwhile forwarding may have created a topic again
                if delayed or broken_off:
                    await self._purges.finish(destination)
        finally:
            self._topics.forget(destination)

    async def _remove(self, topics: Sequence[str]) -> None:
        try:
            await self._admin.delete_topics(topics)
            await self._topics.wait_until_removed(topics)
        except BackendUnavailable as error:
            raise OutcomeUnknown(error.detail) from error


@contextmanager
def _begun() -> Iterator[None]:
    """Raise `OutcomeUnknown` for every error of the bridge: a part has been done."""
    try:
        yield
    except BridgeError as error:
        raise OutcomeUnknown(f"{error.detail} A part of it has been done: repeat it.") from error
