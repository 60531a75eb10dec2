"""The thread that joins a group with a KafkaConsumer, polls, and leaves, or ends when it cannot continue."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import Final

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition, errors
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.structs import MemberState

from adapters.kafka.connections import Client, connect
from adapters.kafka.consume.membership import Member, Membership
from adapters.kafka.errors import InstanceTaken, of_exception
from adapters.kafka.mapping import Commits, Part, Record, fetched
from adapters.kafka.options import METADATA_AGE, REQUEST_TIMEOUT, Options
from adapters.kafka.thread_to_loop import ThreadToLoop, complete
from bridge.errors import BackendUnavailable, BridgeError, Refused

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
_QUICK_FOR: Final = 2.0
"""Seconds after a pause or a resumption for which polls are quick while partitions are paused.

A consumer that takes longer for half of a full buffer has enough in the other half until a fetch that is not quick.
"""
_AHEAD: Final = 4
"""Polls whose records the event loop has not taken yet: so many may still arrive after a pause."""
_JOINING: Final = 40.0
"""Seconds: the broker waits for a member that was killed as long as its session lasts."""
_FIRST: Final = 3.0
"""Seconds in which the first record of each partition has to arrive."""
_AGAIN: Final = 0.2
"""Seconds after a poll that failed."""
_UNLIKE: Final = errors.InconsistentGroupProtocolError
"""The group's native members share its partitions in another way, and may stay for long."""
_LAST: Final = 2.0
"""Seconds in which a rebalance must end before the last commit."""

_log = logging.getLogger("bridge.kafka")


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


class Poller:
    """One member of a group, from its first connection to its last."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, options: Options, group: str, topics: Sequence[str], member: Member
    ) -> None:
        self.joined: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        """Done when everything is released; raises the error of the last commit, or why the thread has ended."""
        self._options = options
        self._group = group
        self._topics = topics
        self._member = member
        self._to_loop = ThreadToLoop(loop)
        self._thread = threading.Thread(target=self._run, name=f"kafka-{group}", daemon=True)
        self._stopping = threading.Event()
        self._resumed = threading.Event()
        self._changed_at = 0.0
        self._ahead = threading.Semaphore(_AHEAD)
        self._clients: list[Client] = []
        self._membership: Membership | None = None
        self._begun: set[Part] = set()
        """Of which a record has arrived, until all has begun."""
        self._first_by = 0.0
        self._has_joined = False
        self._notified = False
        """Whether an error was reported to the member that may still last."""
        self._thread.start()

    # On the event loop:

    def stop(self, final: Commits) -> None:
        """Begin to leave, with a last commit; see `ended`."""
        if self._stopping.is_set():
            return
        if self._membership is not None:
            self._membership.close(final)
        self._stopping.set()
        self._resumed.set()
        if self._membership is None:
            for client in list(self._clients):  # it may be waiting for a broker
                with contextlib.suppress(Exception):  # its loop has ended, or raises its own failure
                    client.connections._net.call_soon_threadsafe(client.connections.close)  # noqa: SLF001

    def commit(self, commits: Commits, future: asyncio.Future[None]) -> None:
        """Write positions, then complete the future."""
        if self._membership is None or self._membership.closing or self._stopping.is_set():
            complete(future, None, BackendUnavailable(f"{self._group}: this bridge is not a member of the group now."))
        else:
            self._membership.begin_commit(commits, future)

    def set_paused(self, parts: Collection[Part], *, paused: bool) -> None:
        """Stop fetching these, or go on, also before the join is complete. The library sets a flag, under its lock."""
        self._changed_at = time.monotonic()
        if self._membership is not None:
            consumer = self._membership.consumer
            for part in parts:
                with contextlib.suppress(KeyError):  # it has just gone
                    (consumer.pause if paused else consumer.resume)(TopicPartition(*part))
        if not paused:
            self._resumed.set()

    def end_offset(self, part: Part) -> int | None:
        """Return the end of a partition that the library got with its latest fetch; None: not known."""
        if self._membership is None:
            return None
        try:
            end: int | None = self._membership.consumer.highwater(TopicPartition(*part))
        except (errors.KafkaError, KeyError):  # it has just gone
            return None
        return end

    def _arrived(self, records: list[Record]) -> None:
        self._ahead.release()
        if not self._stopping.is_set():
            self._member.arrived(records)

    # On the thread:

    def _run(self) -> None:
        outcome: BridgeError | None = BackendUnavailable(f"{self._group}: the fetching thread has failed.")
        try:
            outcome = self._attend()
        except Exception:  # noqa: BLE001 - the thread must not end silently
            _log.exception("%s: the fetching thread has failed", self._group)
        finally:
            closed = BackendUnavailable(f"{self._group}: the bridge has left the group.")
            self._to_loop.answer(self.joined, outcome or closed)
            self._to_loop.answer(self.ended, outcome)

    def _attend(self) -> BridgeError | None:
        """Be a member until `stop`; return the error of the last commit, or the reason why the membership has ended."""
        try:
            session = Session(self._options, self._group, self._clients)
        except Exception as error:  # noqa: BLE001 - a caller waits for any outcome
            return BackendUnavailable(str(error))
        self._membership = membership = Membership(session.consumer, self._group, self._member, self._to_loop)
        try:
            session.subscribe(self._topics, membership)
            self._poll(session, membership)
            return self._leave(session, membership)
        except Exception as error:  # noqa: BLE001 - also a defect of the library: another poller takes its place
            membership.break_off()  # also before the join is complete: records may be delivered already
            return of_exception(error, self._group)
        finally:
            session.close()

    def _poll(self, session: Session, membership: Membership) -> None:
        """Poll until `stop`. Raises errors that waiting does not end."""
        give_up = time.monotonic() + _JOINING
        while not self._stopping.is_set():
            try:
                if membership.unknown and session.well:
                    session.run(membership.announce)
                if membership.replaced():
                    session.run(membership.renew)
                records = session.poll(quick=self._hurry(session, membership))
            except errors.KafkaError as error:
                self._handle_error(error, give_up)
                self._stopping.wait(_AGAIN)
                continue
            if session.fenced or membership.fenced:
                raise InstanceTaken(self._group)
            if records:
                self._hand_over(records)
            if self._has_joined:
                self._notified = self._notified and not session.well
            elif session.stable:
                self._look_whether_begun(session, membership, records)
            elif time.monotonic() > give_up:
                raise BackendUnavailable(
                    f"{self._group}: the bridge waits for the group's other members and its coordinator."
                )

    def _hurry(self, session: Session, membership: Membership) -> bool:
        """Whether the next poll has to be quick; if every partition is paused, wait here until one is resumed."""
        paused = session.paused()
        if not paused:
            return not self._has_joined
        if session.stable and not membership.unknown and paused == len(membership.parts):
            self._resumed.wait(POLL / 1000)
            self._resumed.clear()
            return True
        return time.monotonic() - self._changed_at < _QUICK_FOR

    def _hand_over(self, records: list[Record]) -> None:
        while not self._ahead.acquire(timeout=POLL / 1000):
            if self._stopping.is_set():
                return
        self._to_loop.put(partial(self._arrived, records))

    def _look_whether_begun(self, session: Session, membership: Membership, records: list[Record]) -> None:
        """Complete `joined` once each partition has had a record, or has none; or when that takes too long."""
        now = time.monotonic()
        self._first_by = self._first_by or now + _FIRST
        self._begun.update(Part(each.topic, each.partition) for each in records)
        missing = membership.parts.keys() - self._begun
        if missing and now < self._first_by:
            self._begun |= session.empty(missing)
            missing -= self._begun
        if (missing or membership.unknown) and now < self._first_by:
            return
        self._has_joined = True
        self._to_loop.answer(self.joined, None)

    def _handle_error(self, error: errors.KafkaError, give_up: float) -> None:
        """Report an error once; before the group is joined, an error that waiting does not end is raised."""
        if isinstance(error, errors.FencedInstanceIdError):
            raise InstanceTaken(self._group)
        refused_topic = isinstance(error, errors.TopicAuthorizationFailedError)
        problem = of_exception(error, ", ".join(self._topics) if refused_topic else self._group)
        hopeless = isinstance(problem, Refused) or isinstance(error, _UNLIKE) or time.monotonic() > give_up
        if hopeless and not self._has_joined:
            raise problem
        if self._has_joined and not self._notified:
            self._notified = True
            self._to_loop.put(partial(self._member.failed, problem))

    def _leave(self, session: Session, membership: Membership) -> BridgeError | None:
        until = time.monotonic() + _LAST
        try:
            while membership.final and not session.stable and time.monotonic() < until:
                session.poll(quick=True)
            session.run(membership.commit_final)
        except Exception as error:  # noqa: BLE001 - as in `_attend`
            return of_exception(error, self._group)
        return None
