"""One KafkaConsumer, from its first connection to its last, as the thread that polls it sees it."""

import contextlib
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Final

from kafka import ConsumerRebalanceListener, KafkaConsumer, errors
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.structs import MemberState, TopicPartition

from adapters.kafka.connections import Client, connect
from adapters.kafka.mapping import Part, Record, fetched
from adapters.kafka.options import METADATA_AGE, REQUEST_TIMEOUT, Options

POLL: Final = 500
"""Milliseconds of a poll that finds nothing: so long may leaving take, or joining again."""
_WAIT: Final = 1_000
"""Milliseconds that a fetch waits at the broker. An idle consumer takes 0.27 % of a core, with 500 of them 0.34 %."""
_QUICK: Final = 20
_HEARTBEAT_MAX: Final = 1_000
_STUCK: Final = 30_000
"""Milliseconds: how long a rebalance waits for a running member that does not join."""
_FETCH_MAX: Final = 2 << 20
_METADATA: Final = 2.0
"""Seconds that the metadata of the topics is waited for: there may be no such topic any more."""
_LEAVING: Final = 2_000
"""Milliseconds for leaving the group."""


class Session:
    """A connected consumer. The constructor blocks, and raises `BackendUnavailable`."""

    def __init__(self, options: Options, group: str, clients: list[Client]) -> None:
        """`clients`: see `connect`."""
        self.consumer = connect(
            KafkaConsumer,
            options,
            clients,
            group_id=group,
            group_instance_id=options.instance,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            partition_assignment_strategy=[CooperativeStickyAssignor],
            session_timeout_ms=options.session,
            heartbeat_interval_ms=min(options.session // 3, _HEARTBEAT_MAX),
            max_poll_interval_ms=max(_STUCK, options.session),
            metadata_max_age_ms=METADATA_AGE,
            fetch_max_wait_ms=_WAIT,
            fetch_max_bytes=_FETCH_MAX,
            metrics_enabled=False,
        )
        self._coordinator = self.consumer._coordinator  # noqa: SLF001 - the only place with the state of the membership
        self._fetcher = self.consumer._fetcher  # noqa: SLF001 - its setting can be changed under way
        self._positions = self.consumer._subscription  # noqa: SLF001 - `position` would block

    @property
    def stable(self) -> bool:
        """Whether this is a member of the group, and no rebalance is going on or due."""
        return self._coordinator.state is MemberState.STABLE and not self._coordinator.need_rejoin()

    @property
    def well(self) -> bool:
        """Whether the group's coordinator is known as well."""
        return self.stable and self._coordinator.coordinator_id is not None

    @property
    def fenced(self) -> bool:
        """Whether another has joined with the same instance.

        3.0.12 silently stops its heartbeats then: it would go on fetching what others have.
        """
        joined = self._coordinator.state is MemberState.STABLE
        return joined and not self._coordinator._heartbeat_enabled  # noqa: SLF001

    def paused(self) -> int:
        """How many partitions are paused."""
        return len(self.consumer.paused())

    def run(self, coroutine: Callable[[], Coroutine[object, object, object]]) -> None:
        """Run a coroutine on the IO thread and wait for its end. Raises its errors."""
        self.consumer._net.run(coroutine)  # noqa: SLF001

    def subscribe(self, topics: Sequence[str], listener: ConsumerRebalanceListener) -> None:
        """Ask for a share of these topics, with the next poll.

        Their metadata is waited for: a member that joins without would, as the leader, share out nothing at first.
        """
        self.consumer.subscribe(list(topics), listener=listener)
        cluster, until = self.consumer._cluster, time.monotonic() + _METADATA  # noqa: SLF001 - `topics` asks for all
        while any(cluster.partitions_for_topic(topic) is None for topic in topics) and time.monotonic() < until:
            with contextlib.suppress(errors.KafkaError):
                self.consumer._net.run(self.consumer._manager.wait_for, cluster.request_update(), _METADATA * 1000)  # noqa: SLF001
            time.sleep(_QUICK / 1000)

    def poll(self, *, quick: bool) -> list[Record]:
        """Join or rejoin if necessary, and return new records. Raises `KafkaError`, or anything for a library's defect.

        The next fetch has to wait for the one that is under way: `quick` makes it and the poll short.
        """
        fetcher = self._fetcher
        fetcher.config["fetch_max_wait_ms"] = _QUICK if quick else _WAIT
        if not fetcher._next_partition_records:  # noqa: SLF001
            # Read to its end it stays there, not None, and 3.0.12 never takes up again what it had put aside for a
            # partition that was paused meanwhile, nor fetches that partition.
            fetcher._next_partition_records = None  # noqa: SLF001
        found = self.consumer.poll(timeout_ms=_QUICK if quick else POLL)
        return [fetched(each) for records in found.values() for each in records]

    def empty(self, parts: Collection[Part]) -> set[Part]:
        """Which of these have nothing (more) to read: a position behind markers and gaps counts as the end."""
        places = [TopicPartition(*part) for part in parts]
        positions = self._positions.all_consumed_offsets()
        try:
            ends = self.consumer.end_offsets(places, timeout_ms=REQUEST_TIMEOUT // 10)
        except errors.KafkaError:
            return set()
        return {Part(*at) for at in places if at in positions and positions[at].offset >= ends[at]}

    def close(self) -> None:
        """Leave the group (a static member does not) and close threads and sockets."""
        with contextlib.suppress(errors.KafkaError):
            self.consumer.close(autocommit=False, timeout_ms=_LEAVING)
