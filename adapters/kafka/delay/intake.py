"""The forwarders' consumer group: which partitions of the delay topics this bridge holds, and their records.

Blocking, for the forwarder's thread. kafka-python calls a listener on its own thread, but only while `poll` is waited
for; it may be handed no more than notes, as anything that blocks there stops the heartbeats.
"""

from collections.abc import Collection, Iterable, Mapping
from time import monotonic, sleep
from typing import Any, Final

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.structs import ConsumerGroupMetadata, MemberState

from adapters.kafka.delay.connecting import connect
from adapters.kafka.options import REQUEST_TIMEOUT, Options
from adapters.kafka.record import Commit, Part, Record

FETCH_WAIT: Final = 500
"""Milliseconds that a fetch waits at the brokers: how often an idle forwarder wakes up."""
_MOST_IN_FETCH: Final = 256 * 1024
"""Bytes of one partition, which a pause does not free: there may be 36 partitions."""
_POLL_MAX: Final = 30_000
"""Milliseconds between two polls, after which the others go on without this bridge."""
_POLL_RECORDS: Final = 500
_LEARN: Final = 2.0
_LOOK: Final = 0.02
"""Seconds."""
_CLOSE: Final = 2000


class Intake(ConsumerRebalanceListener):  # type: ignore[misc] # has no types
    """One member of the group. Every method raises kafka-python's errors; none waits longer than a few seconds."""

    def __init__(self, settings: Mapping[str, Any], options: Options, group: str, topics: Collection[str]) -> None:
        own: dict[str, object] = {
            "group_id": group,
            "partition_assignment_strategy": (CooperativeStickyAssignor,),
            "isolation_level": "read_committed",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "session_timeout_ms": options.session,
            "heartbeat_interval_ms": min(1000, options.session // 3),
            "max_poll_interval_ms": max(_POLL_MAX, options.session),
            "max_poll_records": _POLL_RECORDS,
            "max_partition_fetch_bytes": _MOST_IN_FETCH,
            "fetch_max_bytes": 16 * _MOST_IN_FETCH,
            "fetch_max_wait_ms": FETCH_WAIT,
        }
        if options.instance:
            own["group_instance_id"] = f"{group}.{options.instance}"
        self._consumer: KafkaConsumer = connect(KafkaConsumer, {**settings, **own})
        self._gone: set[Part] = set()
        self._come: set[Part] = set()
        self._paused: set[Part] = set()
        self._consumer.subscribe(list(topics), listener=self)
        self._learn(topics)

    def poll(self, milliseconds: int) -> list[Record]:
        """Wait for records of the partitions held so far, those assigned meanwhile excepted. Then ask for changes."""
        found = self._consumer.poll(timeout_ms=milliseconds)
        return [
            Record(
                r.topic, r.partition, r.offset, r.timestamp, r.key, r.value, [(name, v or b"") for name, v in r.headers]
            )
            for records in found.values()
            for r in records
        ]

    def changes(self) -> tuple[set[Part], set[Part]]:
        """Return which partitions have gone since it was last asked, and which have come."""
        gone, come = self._gone, self._come
        self._gone, self._come = set(), set()
        return gone, come

    def member(self) -> ConsumerGroupMetadata | None:
        """Return what a transaction has to show so that it is refused if a partition went to another; None: not now."""
        member = self._consumer.group_metadata()
        return member if member.state == MemberState.STABLE and member.generation_id > 0 else None

    def rewind(self, part: Part) -> Commit | None:
        """Go back to what is committed of a partition, and return that; None: to its beginning."""
        place = TopicPartition(*part)
        committed = self._consumer.committed(place, metadata=True, timeout_ms=REQUEST_TIMEOUT)
        if committed is None:
            self._consumer.seek_to_beginning(place)
            return None
        self._consumer.seek(place, committed.offset)
        return Commit(committed.offset, committed.metadata or "")

    def read_only(self, hungry: Iterable[Part], held: Iterable[Part]) -> None:
        """Fetch these partitions, of those that are held, and no others."""
        wanted = set(hungry)
        paused = set(held) - wanted
        if paused != self._paused:
            self._consumer.pause(*(TopicPartition(*part) for part in paused - self._paused))
            self._consumer.resume(*(TopicPartition(*part) for part in self._paused & wanted))
            self._paused = paused

    def close(self) -> None:
        """Leave the group (with an instance's name: do not) and let go of thread and sockets."""
        self._consumer.close(autocommit=False, timeout_ms=_CLOSE)

    def _learn(self, topics: Collection[str]) -> None:
        """Wait until the library knows the topics: else it joins for those that it knows, and then once more."""
        known = self._consumer._cluster  # noqa: SLF001 - the public method asks for all topics of the cluster
        until = monotonic() + _LEARN
        while monotonic() < until and not all(known.partitions_for_topic(topic) for topic in topics):
            sleep(_LOOK)

    # Called by kafka-python

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Note that partitions go to other bridges."""
        gone = {Part(*place) for place in revoked}
        self._gone |= gone
        self._come -= gone
        self._paused -= gone

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Note partitions that come from other bridges."""
        self._come |= {Part(*place) for place in assigned}

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        """Note that partitions have gone already."""
        self.on_partitions_revoked(lost)
