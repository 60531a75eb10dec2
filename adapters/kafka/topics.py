"""The topics and their partitions, created on first use if the options allow it, and the topic of the metadata."""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Final, NamedTuple

from adapters.base import Stored
from adapters.kafka.admin import Admin
from adapters.kafka.log_reader import read_through
from adapters.kafka.mapping import Outgoing, Part, Record
from adapters.kafka.names import LANES, Own
from adapters.kafka.options import METADATA_AGE, Options
from adapters.kafka.own_topics import CHECKED, COMPACTED, Configs, lacks
from adapters.kafka.produce.publisher import Publisher
from adapters.shared_calls import SharedCalls
from adapters.wall_clock import wall
from bridge.errors import BackendUnavailable, DestinationInvalid, DestinationUnknown, Refused

_READY: Final = 10.0
"""Seconds in which the partitions of a new topic get their leaders, and every broker gets it."""
_KNOWN: Final = 10_000
"""Destinations whose number of partitions is remembered."""
_LOOK: Final = 0.02
_AS_BROKERS: Final = -1
_NOT_CHECKED: Final = (
    "Kafka may delete what the bridge stores: without the permission DescribeConfigs the retention of these topics is"
    " not checked: %s."
)
_FEWER_REPLICAS: Final = (
    "The bridge's own topics have fewer replicas than new ones: %s, not %d."
    " Add replicas with kafka-reassign-partitions.sh."
)

_log = logging.getLogger("bridge.kafka")


class Topics:
    """The topics that are known. Concurrent calls for the same unknown topic share one request, and one creation."""

    def __init__(self, options: Options, admin: Admin, publisher: Publisher) -> None:
        self._options = options
        self._admin = admin
        self._publisher = publisher
        self._lanes = LANES if options.lanes else LANES[:1]
        self._known: dict[str, tuple[int, float]] = {}
        """The number of partitions, and when to ask again, in seconds of the monotonic clock."""
        self._checked: set[str] = set()
        """The bridge's own topics that have the settings that they need."""
        self._asking: SharedCalls[tuple[str, bool], int] = SharedCalls()
        """By destination, and whether it is created."""
        self.close = self._asking.close
        publisher.on_removed = self.forget

    async def partitions(self, destination: str, *, create: bool = True) -> int:
        """See `Partitioned`: the topics of all lanes are created. Raises also `DestinationInvalid` and `Refused`."""
        if (current := self.known_partitions(destination)) is not None:
            return current
        asking = self._asking.start((destination, create), partial(self._ask, destination, create=create))
        # No caller waits for what is only looked at again: the number is as good as it was, and Kafka may be away.
        known = self._known.get(destination)
        return await asyncio.shield(asking) if known is None else known[0]

    def known_partitions(self, destination: str) -> int | None:
        """See `Partitioned`: known until it has to be looked at again."""
        partitions, until = self._known.get(destination, (None, 0.0))
        return partitions if until > monotonic() else None

    def forget(self, topic: str) -> None:
        """Ask again on the next use: the topic turned out not to exist."""
        self._checked.discard(topic)
        for lane in LANES:
            self._known.pop(topic.removesuffix(lane), None)

    def of(self, destination: str) -> list[str]:
        """Return the names of the topics of a destination: one for each lane."""
        return [destination + lane for lane in self._lanes]

    async def existing(self, destination: str) -> list[str]:
        """Return the topics of a destination, asked of the cluster. Raises `DestinationUnknown` if there is none."""
        self._check(destination)
        found = [topic for topic in self.of(destination) if await self._publisher.partitions(topic) is not None]
        if not found:
            self.forget(destination)
            raise DestinationUnknown(f"{destination}: there is no such topic.")
        return found

    async def wait_until_removed(self, topics: Sequence[str]) -> None:
        """Wait until brokers no longer report topics that were deleted. Raises `BackendUnavailable`."""
        deadline = monotonic() + _READY
        while monotonic() < deadline:
            found = [await self._publisher.partitions(topic) for topic in topics]
            if not any(found):
                return
            await asyncio.sleep(_LOOK)
        raise BackendUnavailable(f"{', '.join(topics)}: deleted, but still reported after {_READY:.0f} s.")

    async def ensure(self, topic: str, partitions: int, configs: Configs) -> int:
        """Create one of the bridge's own topics if it is missing; return its number of partitions."""
        found = await self._publisher.partitions(topic)
        made = await self._make(topic, partitions, configs) if found is None else found
        if topic not in self._checked:  # another program may have made it
            await self.check({topic: configs})
        return made

    async def check(self, wanted: Mapping[str, Configs]) -> None:
        """Check those of the bridge's own topics that exist.

        Raises `Refused` if Kafka would delete what the bridge stores there; logs what lacks replicas, and what the
        bridge's user may not know.
        """
        described = await self._admin.describe(wanted)
        wrong = [(topic, lacks(wanted[topic], found.configs)) for topic, found in described.items()]
        if sentences := [f"{topic}: set {', '.join(settings)}" for topic, settings in wrong if settings]:
            raise Refused(f"Kafka would delete what the bridge stores in its own topics. {'; '.join(sentences)}.")
        unknown = [
            topic for topic, found in described.items() if not wanted[topic].keys() & CHECKED <= found.configs.keys()
        ]
        if unknown:
            _log.warning(_NOT_CHECKED, ", ".join(unknown))
        await self._check_replicas({topic: found.replicas for topic, found in described.items()})
        self._checked.update(described)

    async def _check_replicas(self, replicas: Mapping[str, int]) -> None:
        wanted: int | None = self._options.replication
        if replicas and wanted == _AS_BROKERS:
            wanted = await self._admin.default_replicas()
        fewer = [f"{topic} has {number}" for topic, number in replicas.items() if wanted and number < wanted]
        if fewer:
            _log.warning(_FEWER_REPLICAS, ", ".join(fewer), wanted)

    async def _ask(self, destination: str, *, create: bool) -> int:
        """Look for a destination, and remember its partitions; those that are known stay so while Kafka is away."""
        try:
            found = await self._find(destination, create=create)
        except Exception as error:
            known = self._known.pop(destination, None)
            if known is not None and isinstance(error, BackendUnavailable):
                self._known[destination] = known[0], monotonic() + METADATA_AGE / 1000
            raise
        self._known.pop(destination, None)
        self._known[destination] = found, monotonic() + METADATA_AGE / 1000
        if len(self._known) > _KNOWN:
            del self._known[next(iter(self._known))]
        return found

    async def _find(self, destination: str, *, create: bool) -> int:
        """Find or create a topic for every lane; the smallest counts, as a message must have its partition in each."""
        self._check(destination)
        least = self._options.partitions
        for number, lane in enumerate(self._lanes):
            topic = destination + lane
            found = await self._publisher.partitions(topic)
            if found is None and not (create and self._options.create):
                reason = ", and the bridge may not create it" if create else ""
                raise DestinationUnknown(f"{topic}: there is no such topic{reason}.")
            if found is None:
                found = await self._make(topic, least, {})
            least = found if number == 0 else min(least, found)
        return least

    def _check(self, destination: str) -> None:
        if destination.startswith(self._options.prefix):
            raise DestinationInvalid(f"{destination}: names that begin like this are internal.")

    async def _make(self, topic: str, partitions: int, configs: Configs) -> int:
        """Create a topic and wait until it can be used. Another bridge may have done so with another number."""
        await self._admin.create(topic, partitions, self._options.replication, configs)
        deadline = monotonic() + _READY
        while monotonic() < deadline:
            found = await self._publisher.partitions(topic)
            if found is not None and await self._admin.leaders(topic) == found:
                return found
            await asyncio.sleep(_LOOK)
        raise BackendUnavailable(f"{topic}: the new topic has had no leaders for {_READY:.0f} s.")


class Cluster(NamedTuple):
    """The ways to Kafka that the parts of the adapter share."""

    options: Options
    admin: Admin
    topics: Topics
    publisher: Publisher


_NOT_READ: Final = "The bridge's metadata has not been read yet."


class MetadataTopic:
    """Entries by key: read once at the start, and written through.

    A bridge with an `instance` has its own entries. Bridges without share those of their prefix; what one of them
    changes reaches the others when they start.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._topic = Own(cluster.options.prefix).notes
        self._notes: dict[str, str] | None = None
        self._keeping = asyncio.Lock()

    async def start(self) -> None:
        """Read all entries; the topic is created with the first one. Raises `BackendUnavailable` or `Refused`."""
        there = await self._cluster.publisher.partitions(self._topic)
        notes: dict[str, str] = {}
        for record in await read_through(self._cluster.options, Part(self._topic, 0)) if there else ():
            self._read(record, notes)
        self._notes = notes

    async def put(self, key: str, value: str | None) -> None:
        """See `MetadataStore`. Raises also `Refused` if the bridge's user may not write or create the topic."""
        async with self._keeping:
            if self._notes is None:
                raise BackendUnavailable(_NOT_READ)
            notes = self._notes
            if value is None and await self._cluster.publisher.partitions(self._topic) is None:
                return  # nothing was ever kept
            await self._cluster.topics.ensure(self._topic, 1, COMPACTED)
            # JSON, for Kafka's own tools show it, and any text of Python's can be written with it.
            whole = json.dumps([self._cluster.options.instance, key]).encode()
            body = None if value is None else json.dumps(value).encode()
            written = self._cluster.publisher.send(Outgoing(self._topic, 0, wall(), whole, body, ()))

            def note(done: asyncio.Future[Stored]) -> None:
                if not done.cancelled() and done.exception() is None:
                    _put(notes, key, value)

            written.add_done_callback(note)
            await asyncio.shield(written)  # a caller that no longer waits does not withdraw the entry

    def all(self) -> Mapping[str, str]:
        """See `MetadataStore`."""
        if self._notes is None:
            raise BackendUnavailable(_NOT_READ)
        return self._notes

    def _read(self, record: Record, notes: dict[str, str]) -> None:
        try:
            instance, key = json.loads(record.key or b"")
            value = None if record.value is None else json.loads(record.value)
        except (TypeError, ValueError):
            key = value = None
        if not isinstance(key, str) or not isinstance(value, str | None):
            _log.warning("a record is not metadata of a bridge", extra={"topic": record.topic, "offset": record.offset})
        elif instance == self._cluster.options.instance:
            _put(notes, key, value)


def _put(notes: dict[str, str], key: str, value: str | None) -> None:
    if value is None:
        notes.pop(key, None)
    else:
        notes[key] = value
