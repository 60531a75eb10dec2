"""Decides where delayed records go when they wake: the next level, the destination, nowhere, or later. Pure."""

import logging
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Final, NamedTuple

from adapters.kafka.delay.schedule import (
    RECORDS_MAX,
    Pending,
    PendingDelays,
    first_hop,
    from_delayed,
    next_hop,
    onward,
    topics_of,
)
from adapters.kafka.errors import RecordRefused
from adapters.kafka.mapping import Outgoing, Part, Record, from_record
from adapters.kafka.options import Options
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


class Backoff:
    """When to try again to write to a topic, or to write one record. Times are milliseconds since 1970."""

    def __init__(self) -> None:
        self.until = 0
        self._length = 0

    @property
    def refused(self) -> bool:
        """Whether the last attempt failed, and not for an outage."""
        return self._length > SHORT_PAUSE

    def refuse(self, now: int) -> bool:
        """Try it later, after a pause that grows. Returns whether it was not refused before."""
        known = self.refused
        self._length = min(2 * self._length, LAST_PAUSE) if known else FIRST_PAUSE
        self.until = now + self._length
        return not known

    def wait(self, now: int) -> None:
        """Try it soon: it is not known to be refused."""
        self._length = self._length or SHORT_PAUSE
        self.until = now + SHORT_PAUSE


class TopicQueue:
    """The records for one topic, and how carefully it is tried: one bad destination holds up no other."""

    def __init__(self) -> None:
        self.moves: deque[Move] = deque()
        self.in_flight = 0
        self.limit = TOPIC_IN_FLIGHT_MAX
        """Of `in_flight`: 1 after a failure, twice as many after each success."""
        self.backoff = Backoff()

    def succeeded(self) -> bool:
        """Note that a record was written. Returns whether the topic was refused before."""
        refused, self.backoff = self.backoff.refused, Backoff()
        self.limit = min(2 * self.limit, TOPIC_IN_FLIGHT_MAX)
        return refused

    def pause(self, now: int) -> None:
        """Wait for a moment, then try one record."""
        self.backoff.wait(now)
        self.limit = 1

    def is_unused(self, now: int) -> bool:
        """Whether nothing is to be remembered of it."""
        return not self.moves and not self.in_flight and self.backoff.until + _FORGET < now


class Move(NamedTuple):
    """A record of a delay topic, and the record to be written instead of it."""

    pending: Pending
    outgoing: Outgoing
    leaving: bool = False
    """It cannot be written to its topic, and makes room for others."""
    alone: bool = False
    """No other record for its topic is sent meanwhile, so an error is about this one."""

    @property
    def part(self) -> Part:
        """The partition of the delay topic."""
        return self.pending.partition.part


class Dispatch:
    """Times are milliseconds since 1970.

    A move is under way from `moves` until `stored` and `finished`, or until `failed`. Each topic has a queue, so that
    its records keep their order.
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
        self._topics = topics_of(options.prefix)
        self._delay_topics = frozenset(self._topics.values())
        self._pending = pending
        self._partitions = partitions
        self._purged = purged
        self._queues: defaultdict[str, TopicQueue] = defaultdict(TopicQueue)
        self._in_flight = 0
        self._refused: dict[int, Backoff] = {}
        """Of single records, by `Pending.number`."""
        self.moved = 0
        self.dropped = 0

    @property
    def refused(self) -> int:
        """Topics and single records that cannot be written, not for an outage."""
        return sum(queue.backoff.refused for queue in self._queues.values()) + len(self._refused)

    def moves(self, now: int) -> tuple[list[Move], set[Part]]:
        """Return the records to write now, and the partitions of which records were dropped."""
        dropped: set[Part] = set()
        for topic in [topic for topic, queue in self._queues.items() if queue.is_unused(now)]:
            del self._queues[topic]
        self._refused = {number: each for number, each in self._refused.items() if each.until + _FORGET >= now}
        for pending in self._pending.take(now):
            outgoing = self._next(pending, now)
            if outgoing is None:
                self._drop(pending, dropped)
            else:
                self._queues[outgoing.topic].moves.append(Move(pending, outgoing))
        found: list[Move] = []
        filled: set[str] = set()
        while topics := [topic for topic, queue in self._queues.items() if queue.moves and topic not in filled]:
            filled.update(topics)
            for topic in topics:
                self._fill(topic, now, found, dropped)
        return found, dropped

    def stored(self, move: Move) -> bool:
        """Note that a record was written. Returns whether to commit, else the move is over: the partition has gone."""
        if self._queues[move.outgoing.topic].succeeded():
            _log.info("Delayed messages are forwarded to %s again.", move.outgoing.topic)
        self.moved += 1
        move.pending.partition.leaving -= move.leaving
        if self._close_lost(move):
            self.finished(move)
            return False
        self._settle(move.pending)
        return True

    def finished(self, move: Move) -> None:
        """Note that a move is over: it is committed, or that failed and will be part of the next commit."""
        self._queues[move.outgoing.topic].in_flight -= 1
        self._in_flight -= 1

    def failed(self, move: Move, error: BridgeError, now: int) -> None:
        """Note that a record was not written, or perhaps not."""
        self.finished(move)
        topic = move.outgoing.topic
        is_of_record = isinstance(error, (BodyTooLarge, RecordRefused))
        if is_of_record and move.alone:
            self._refuse_record(move, str(error), now)
            return
        if is_of_record:  # librdkafka fails a whole batch for one record: try them one by one
            self._queues[topic].pause(now)
        else:
            self.unusable(topic, error, now)
        self._put_off(move, self._queues[topic].backoff.until, now)

    def unusable(self, topic: str, error: BridgeError, now: int) -> None:
        """Note that nothing can be written to a topic now."""
        queue = self._queues[topic]
        if not isinstance(error, Rejected):
            queue.pause(now)
        elif queue.backoff.until <= now:
            queue.limit = 1
            if queue.backoff.refuse(now):
                _log.warning("Messages for %s cannot be forwarded now; the bridge retries. %s", topic, error)

    def clock_set_back(self, now: int) -> None:
        """Forget the pauses: their ends may be far ahead now."""
        for queue in self._queues.values():
            queue.backoff, queue.limit = Backoff(), TOPIC_IN_FLIGHT_MAX
        self._refused.clear()
        self._pending.clock_set_back(now)

    def _next(self, pending: Pending, now: int) -> Outgoing | None:
        """Return the record to write; None: it is dropped."""
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

    def _drop_purged(self, moves: deque[Move], dropped: set[Part]) -> None:
        """Drop purged records at the head of a queue."""
        while moves and (waiting := moves[0].pending.waiting) is not None:
            pending = moves[0].pending
            if not self._purged(waiting.final.topic, pending.record):
                return
            move = moves.popleft()
            pending.partition.leaving -= move.leaving
            if not self._close_lost(move):
                self._drop(pending, dropped)

    def _fill(self, topic: str, now: int, found: list[Move], dropped: set[Part]) -> None:
        """Add to `found` the records that may be sent to a topic now, to `dropped` the partitions of purged ones."""
        queue, before = self._queues[topic], len(found)
        moves = queue.moves
        self._drop_purged(moves, dropped)
        if queue.backoff.until > now:
            queue.moves = deque()
            for move in moves:
                self._put_off(move, queue.backoff.until, now)
            return
        partitions = self._partitions(topic) if moves else None
        while partitions is not None and moves and queue.in_flight < queue.limit and self._in_flight < IN_FLIGHT_MAX:
            move = moves.popleft()
            if move.outgoing.partition >= partitions:
                self._refuse_record(move, f"It has no partition {move.outgoing.partition}.", now)
            elif not self._close_lost(move):
                queue.in_flight += 1
                self._in_flight += 1
                found.append(move._replace(alone=queue.limit == 1))
            self._drop_purged(moves, dropped)
        if len(found) > before:  # the others are served first the next time
            self._queues[topic] = self._queues.pop(topic)

    def _refuse_record(self, move: Move, reason: str, now: int) -> None:
        backoff = self._refused.setdefault(move.pending.number, Backoff())
        if backoff.refuse(now):
            topic = move.outgoing.topic
            _log.warning("A message for %s cannot be forwarded now; the bridge retries. %s", topic, reason)
        self._put_off(move, backoff.until, now)

    def _put_off(self, move: Move, until: int, now: int) -> None:
        """Keep a record in memory, or write it to a delay topic again if it is in the way of others."""
        if self._close_lost(move):
            return
        pending, topic = move.pending, move.outgoing.topic
        partition, record = pending.partition, pending.record
        partition.leaving -= move.leaving
        in_the_way = partition.open - partition.leaving > _CROWD or partition.lags(record.offset)
        if not in_the_way or topic in self._delay_topics:
            self._pending.put_back(pending, until)
            return
        again = max(until, now + _AWAY)
        part = Part(self._topics[first_hop(again, now)], record.partition)
        partition.leaving += 1
        self._queues[part.topic].moves.append(Move(pending, onward(record, part, now, again), leaving=True))

    def _settle(self, pending: Pending) -> None:
        pending.partition.progress.settle(pending.record.offset)
        self._close(pending)

    def _close(self, pending: Pending) -> None:
        self._refused.pop(pending.number, None)
        self._pending.close(pending)

    def _close_lost(self, move: Move) -> bool:
        """Forget a record whose partition has gone; returns whether it has."""
        lost = self._pending.partitions.get(move.part) is not move.pending.partition
        if lost:
            self._close(move.pending)
        return lost


def _expired(record: Record, now: int) -> bool:
    """Whether a message may no longer be delivered; only messages with an expireTime are parsed."""
    if not any(name == _EXPIRE for name, _ in record.headers):
        return False
    expires = from_record(record, record.topic).expires
    return expires is not None and expires <= now
