"""Decides where delayed records go when they wake: the next level, the destination, nowhere, or later. Pure."""

import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import Final, NamedTuple

from adapters.kafka.delay.schedule import (
    LEVELS,
    RECORDS_MAX,
    Pending,
    PendingDelays,
    first_hop,
    from_delayed,
    next_hop,
    onward,
)
from adapters.kafka.errors import RecordRefused
from adapters.kafka.mapping import from_record
from adapters.kafka.names import Own
from adapters.kafka.options import Options
from adapters.kafka.record import Outgoing, Part, Record
from bridge.errors import BodyTooLarge, BridgeError, Rejected

_log = logging.getLogger("bridge.kafka")

FIRST_PAUSE: Final = 5_000
"""Milliseconds until a refused topic or record is tried again; then twice as long, and so on."""
LAST_PAUSE: Final = 60_000
SHORT_PAUSE: Final = 1_000
"""The same while Kafka does not answer, or says that the same may soon succeed; always as long."""
_FORGET: Final = 10 * LAST_PAUSE
TOPIC_IN_FLIGHT_MAX: Final = 64
"""Records for one topic that are sent and not yet committed; a kill may double them."""
IN_FLIGHT_MAX: Final = 256
"""Records that are sent and not yet committed, for all topics."""
_CROWD: Final = RECORDS_MAX // 2
"""Open records of a partition, above which those that cannot be written go to a delay topic again."""
_AWAY: Final = 10_000
"""Milliseconds that they stay there at least."""
_EXPIRE: Final = "oms_h_expireTime"


class Place(NamedTuple):
    """The offset of one record."""

    part: Part
    offset: int


Subject = str | Place
"""A topic, or one record."""


class Move(NamedTuple):
    """A record of a delay topic, and the record to be written instead of it."""

    pending: Pending
    outgoing: Outgoing
    leaving: bool = False
    """It cannot be written where it is to go, and makes room for others."""
    alone: bool = False
    """No other record for its topic is sent meanwhile, so an error is about this one."""

    @property
    def part(self) -> Part:
        """The partition of the delay topic."""
        return self.pending.partition.part

    @property
    def place(self) -> Place:
        """The place that the record leaves."""
        return Place(self.part, self.pending.record.offset)


class Dispatch:
    """Times are milliseconds since 1970.

    A move is under way from `moves` until `stored` and `finished`, or until `failed`. Each topic has a queue, so that
    the records for it keep their order.
    """

    def __init__(
        self,
        options: Options,
        pending: PendingDelays,
        partitions: Callable[[str], int | None],
        purged: Callable[[str, Record], bool],
    ) -> None:
        """`partitions` returns the number of partitions of a topic; None: call `moves` again when it is known.

        `purged` returns whether an operator has purged a record for a topic.
        """
        self._early = options.forwarded_early
        own = Own(options.prefix)
        self._topics = {level: own.delay(level.name) for level in LEVELS}
        self._delay_topics = frozenset(self._topics.values())
        self._pending = pending
        self._partitions = partitions
        self._purged = purged
        self._queues: dict[str, deque[Move]] = {}
        self._in_flight: Counter[str] = Counter()
        self._retries = Retries()
        self.moved = 0
        self.dropped = 0

    @property
    def refused(self) -> int:
        """Topics and single records that cannot be written now."""
        return self._retries.refused

    def moves(self, now: int) -> tuple[list[Move], set[Part]]:
        """Return what to write now, and the partitions of which records were dropped."""
        dropped: set[Part] = set()
        for pending in self._pending.take(now):
            outgoing = self._next(pending, now)
            if outgoing is None:
                self._drop(pending, dropped)
            else:
                self._enqueue(Move(pending, outgoing))
        found: list[Move] = []
        filled: set[str] = set()
        while topics := [topic for topic in self._queues if topic not in filled]:
            filled.update(topics)
            for topic in topics:
                self._fill(topic, now, found, dropped)
        return found, dropped

    def stored(self, move: Move, now: int) -> bool:
        """Note that a record was written. Returns whether to commit, else the move is over: the partition has gone."""
        if self._retries.succeeded(move.outgoing.topic, now):
            _log.info("Delayed messages are forwarded to %s again.", move.outgoing.topic)
        self.moved += 1
        move.pending.partition.leaving -= move.leaving
        if self._is_lost(move):
            self.finished(move)
            self._pending.close(move.pending)
            return False
        self._settle(move.pending)
        return True

    def finished(self, move: Move) -> None:
        """Note that a move is over: it is committed, or that failed and will be part of the next commit."""
        topic = move.outgoing.topic
        self._in_flight[topic] -= 1
        if not self._in_flight[topic]:
            del self._in_flight[topic]

    def failed(self, move: Move, error: BridgeError, now: int) -> None:
        """Note that a record was not written, or perhaps not."""
        self.finished(move)
        topic = move.outgoing.topic
        if isinstance(error, (BodyTooLarge, RecordRefused)):
            if move.alone:
                self._refuse_record(move, str(error), now)
                return
            # librdkafka fails a whole batch for one record: try them one by one
            self._retries.wait(topic, now)
        else:
            self.unusable(topic, error, now)
        self._put_off(move, self._retries.until(topic), now)

    def unusable(self, topic: str, error: BridgeError, now: int) -> None:
        """Note that nothing can be written to a topic now."""
        if not isinstance(error, Rejected):
            self._retries.wait(topic, now)
        elif self._retries.until(topic) <= now and self._retries.refuse(topic, now):
            _log.warning("Messages for %s cannot be forwarded now; the bridge retries. %s", topic, error)

    def clock_set_back(self, now: int) -> None:
        """Forget until when to wait: that may be far ahead now."""
        self._retries = Retries()
        self._pending.clock_set_back(now)

    def _next(self, pending: Pending, now: int) -> Outgoing | None:
        """Return what to write; None: nothing."""
        record, waiting = pending.record, pending.waiting
        if waiting is None or _expired(record, now):
            return None
        goal = max(waiting.due - self._early, waiting.again)
        level = next_hop(goal, now)
        if level is None:
            return from_delayed(record, waiting.final, now)
        return onward(record, Part(self._topics[level], record.partition), now, waiting.again)

    def _drop(self, pending: Pending, dropped: set[Part]) -> None:
        self.dropped += 1
        self._settle(pending)
        dropped.add(pending.partition.part)

    def _drop_purged(self, queue: deque[Move], dropped: set[Part]) -> None:
        """Drop what was purged at the head of a queue."""
        while queue and (waiting := queue[0].pending.waiting) is not None:
            pending = queue[0].pending
            if not self._purged(waiting.final.topic, pending.record):
                return
            move = queue.popleft()
            pending.partition.leaving -= move.leaving
            if self._is_lost(move):
                self._pending.close(pending)
            else:
                self._drop(pending, dropped)

    def _fill(self, topic: str, now: int, found: list[Move], dropped: set[Part]) -> None:
        """Add to `found` what may be sent to a topic now, and to `dropped` the partitions of what was purged."""
        queue, before = self._queues[topic], len(found)
        self._drop_purged(queue, dropped)
        if (until := self._retries.until(topic)) > now:
            del self._queues[topic]
            for move in queue:
                self._put_off(move, until, now)
            return
        partitions = self._partitions(topic) if queue else None
        while partitions is not None and queue and self._has_capacity(topic):
            move = queue.popleft()
            if self._is_lost(move):
                self._pending.close(move.pending)
            elif move.outgoing.partition >= partitions:
                self._refuse_record(move, f"It has no partition {move.outgoing.partition}.", now)
            else:
                self._in_flight[topic] += 1
                found.append(move._replace(alone=self._retries.limit(topic) == 1))
            self._drop_purged(queue, dropped)
        if not queue:
            del self._queues[topic]
        elif len(found) > before:  # the others are served first the next time
            self._queues[topic] = self._queues.pop(topic)

    def _has_capacity(self, topic: str) -> bool:
        return self._in_flight[topic] < self._retries.limit(topic) and self._in_flight.total() < IN_FLIGHT_MAX

    def _refuse_record(self, move: Move, reason: str, now: int) -> None:
        if self._retries.refuse(move.place, now):
            topic = move.outgoing.topic
            _log.warning("A message for %s cannot be forwarded now; the bridge retries. %s", topic, reason)
        self._put_off(move, self._retries.until(move.place), now)

    def _put_off(self, move: Move, until: int, now: int) -> None:
        """Keep a record in memory, or write it to a delay topic again if it is in the way of others."""
        pending, topic = move.pending, move.outgoing.topic
        if self._is_lost(move):
            self._pending.close(pending)
            return
        partition, record = pending.partition, pending.record
        partition.leaving -= move.leaving
        in_the_way = partition.open - partition.leaving > _CROWD or partition.lags(record.offset)
        if not in_the_way or topic in self._delay_topics:
            self._pending.put_back(pending, until)
            return
        again = max(until, now + _AWAY)
        part = Part(self._topics[first_hop(again, now)], record.partition)
        partition.leaving += 1
        self._enqueue(Move(pending, onward(record, part, now, again), leaving=True))

    def _enqueue(self, move: Move) -> None:
        self._queues.setdefault(move.outgoing.topic, deque()).append(move)

    def _settle(self, pending: Pending) -> None:
        pending.partition.progress.settle(pending.record.offset)
        self._retries.settled(Place(pending.partition.part, pending.record.offset))
        self._pending.close(pending)

    def _is_lost(self, move: Move) -> bool:
        return self._pending.partitions.get(move.part) is not move.pending.partition


def _expired(record: Record, now: int) -> bool:
    """Whether a message may no longer be delivered; only messages with an expireTime are parsed."""
    if not any(name == _EXPIRE for name, _ in record.headers):
        return False
    expires = from_record(record, record.topic).expires
    return expires is not None and expires <= now


class _Pause(NamedTuple):
    until: int
    length: int


class Retries:
    """Times are milliseconds since 1970."""

    def __init__(self) -> None:
        self._pauses: dict[Subject, _Pause] = {}
        self._limits: dict[str, int] = {}

    @property
    def refused(self) -> int:
        """Topics and records that cannot be written, not for an outage."""
        return sum(pause.length > SHORT_PAUSE for pause in self._pauses.values())

    def until(self, subject: Subject) -> int:
        """Until when a topic or a record is not to be tried; 0: it can be tried."""
        pause = self._pauses.get(subject)
        return 0 if pause is None else pause.until

    def refuse(self, subject: Subject, now: int) -> bool:
        """Try it later, after a pause that grows. Returns whether it was not refused before."""
        earlier = self._pauses.get(subject)
        known = earlier is not None and earlier.length > SHORT_PAUSE
        length = min(2 * earlier.length, LAST_PAUSE) if earlier is not None and known else FIRST_PAUSE
        self._pauses[subject] = _Pause(now + length, length)
        self._suspect(subject)
        return not known

    def wait(self, topic: str, now: int) -> None:
        """Try it soon: it is not known to be refused."""
        earlier = self._pauses.get(topic)
        length = SHORT_PAUSE if earlier is None else earlier.length
        self._pauses[topic] = _Pause(now + SHORT_PAUSE, length)
        self._suspect(topic)

    def limit(self, topic: str) -> int:
        """Return how many records of a topic may be in flight."""
        return self._limits.get(topic, TOPIC_IN_FLIGHT_MAX)

    def succeeded(self, topic: str, now: int) -> bool:
        """Note that a record was written to a topic. Returns whether the topic was refused before."""
        if (limit := self._limits.pop(topic, None)) is not None and 2 * limit < TOPIC_IN_FLIGHT_MAX:
            self._limits[topic] = 2 * limit
        if not self._pauses:
            return False
        for subject, pause in list(self._pauses.items()):
            if pause.until + _FORGET < now:
                del self._pauses[subject]
        ended = self._pauses.pop(topic, None)
        return ended is not None and ended.length > SHORT_PAUSE

    def settled(self, place: Place) -> None:
        """Forget a record that was written, moved or dropped."""
        self._pauses.pop(place, None)

    def _suspect(self, subject: Subject) -> None:
        if isinstance(subject, str):
            self._limits[subject] = 1
