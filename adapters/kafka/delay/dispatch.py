"""Decides what becomes of records that are awake: the next level, the destination, dropped, or put off."""

import logging
from collections.abc import Callable, Collection, Iterator
from time import monotonic
from typing import Final, NamedTuple

from adapters.kafka.delay.holding import Held, Holding
from adapters.kafka.delay.moving import MoveFailed
from adapters.kafka.delay.schedule import next_hop
from adapters.kafka.delay.trouble import TOGETHER, Place, Subject, Trouble
from adapters.kafka.delay.waiting import from_delayed, onward
from adapters.kafka.mapping import from_record
from adapters.kafka.names import Own
from adapters.kafka.options import METADATA_AGE, Options
from adapters.kafka.record import Commit, Outgoing, Part, Record
from bridge.errors import BridgeError

_log = logging.getLogger("bridge.kafka")

_BYTES: Final = 4 * 1024 * 1024
"""Of the records in one transaction."""
_EXPIRE: Final = "oms_h_expireTime"
_KNOWN_MAX: Final = 10_000
_NOT_ASKED: Final = (0.0, frozenset[int]())
_DOUBTFUL: Final = (-1.0, frozenset[int]())
"""What was known of a topic was perhaps wrong."""

Partitions = Callable[[str, bool], frozenset[int]]
"""The partitions of a topic; with true, as they are at this moment. Raises `BridgeError` where there are none."""


class Batch(NamedTuple):
    """What one transaction moves."""

    held: list[Held]
    records: list[Outgoing]
    """Fewer than those held where some are dropped."""

    @property
    def topics(self) -> frozenset[str]:
        """Where the records go."""
        return frozenset(record.topic for record in self.records)

    def commits(self) -> dict[Part, Commit]:
        """Count the records as settled, and return what that makes to commit."""
        shelves = {held.shelf.part: held.shelf for held in self.held}
        for held in self.held:
            held.shelf.progress.settle(held.record.offset)
        return {part: commit for part, shelf in shelves.items() if (commit := shelf.progress.commit()) is not None}


class Dispatch:
    """Times are milliseconds since 1970. `partitions` may wait."""

    def __init__(self, options: Options, holding: Holding, partitions: Partitions) -> None:
        self._options = options
        self._own = Own(options.prefix)
        self._holding = holding
        self._trouble = Trouble()
        self._partitions = partitions
        self._known: dict[str, tuple[float, frozenset[int]]] = {}
        self._failure: tuple[MoveFailed, Batch] | None = None

    @property
    def put_off(self) -> int:
        """Destinations and records that cannot be written now."""
        return len(self._trouble)

    def batches(self, now: int) -> Iterator[Batch]:
        """Yield what is to be moved now: first what nothing is known against, then topic by topic what needs care."""
        together = Batch([], [])
        careful: dict[str, Batch] = {}
        for held in self._holding.take(now, TOGETHER, _BYTES):
            record = self._next(held, now)
            if record is None:
                together.held.append(held)
                continue
            if self._is_put_off(held, record, now):
                if not held.shelf.lags(held.record.offset):
                    continue
                record = self._carry(held)
            limit = self._trouble.limit(record.topic)
            batch = together if limit is None else careful.setdefault(record.topic, Batch([], []))
            if limit is not None and len(batch.held) >= limit:
                self._holding.put_back(held)
                continue
            batch.held.append(held)
            batch.records.append(record)
        yield from (batch for batch in (together, *careful.values()) if batch.held)

    def succeeded(self, batch: Batch, now: int) -> None:
        """Note that a batch was moved."""
        for topic in batch.topics:
            if self._trouble.succeeded(topic, now):
                _log.info("Delayed messages are moved to %s again.", topic)
        for held in batch.held:
            self._trouble.settled(_place(held))

    def failed(self, failure: MoveFailed, batch: Batch) -> None:
        """Note that a batch was not moved; see `blame`."""
        self._failure = failure, batch

    def blame(self, now: int) -> None:
        """Put off what the last failure was the fault of. Only once the brokers answer: else it was nobody's."""
        if self._failure is None:
            return
        (failure, batch), self._failure = self._failure, None
        _log.debug("Delayed messages were not moved to %s: %s", ", ".join(batch.topics), failure)
        if failure.of_us:
            return
        for topic in batch.topics:
            self._known[topic] = _DOUBTFUL
        subjects: Collection[Subject] = failure.topics & batch.topics
        if not subjects and len(batch.topics) == 1 and not failure.of_record:
            subjects = batch.topics
        if not subjects and len(batch.records) == 1:
            subjects = [_place(held) for held in batch.held]
        for subject in subjects:
            self._begin_trouble(subject, batch.records[0].topic, str(failure), now)
        self._trouble.suspect(batch.topics, len(batch.records) // 4 if failure.of_record else TOGETHER)

    def _next(self, held: Held, now: int) -> Outgoing | None:
        """Return what to write; None: nothing."""
        record, waiting = held.record, held.waiting
        if waiting is None or _expired(record, now):
            return None
        options = self._options
        level = next_hop(waiting.due, now, options.hold, strict=options.strict_delay)
        if level is None:
            return from_delayed(record, waiting.final, now)
        return onward(record, Part(self._own.delay(level.name), record.partition), now)

    def _is_put_off(self, held: Held, record: Outgoing, now: int) -> bool:
        """Whether a record has to wait because of trouble, of its destination or its own."""
        place = _place(held)
        until = max(self._trouble.until(record.topic), self._trouble.until(place))
        if until <= now:
            fault = self._fault(record.topic, record.partition)
            if fault is None:
                return False
            until = self._begin_trouble(record.topic if fault.everywhere else place, record.topic, fault.reason, now)
        held.shelf.put_off(until)
        return True

    def _begin_trouble(self, subject: Subject, topic: str, reason: str, now: int) -> int:
        if self._trouble.put_off(subject, now):
            what = "Messages" if isinstance(subject, str) else "A message"
            _log.warning("%s for %s cannot be forwarded for now; this is tried again. %s", what, topic, reason)
        return self._trouble.until(subject)

    def _fault(self, topic: str, partition: int) -> "_Fault | None":
        until, partitions = self._known.get(topic, _NOT_ASKED)
        if until < monotonic() or partition not in partitions:
            try:
                partitions = self._partitions(topic, until < 0)
            except BridgeError as error:
                return _Fault(str(error), everywhere=True)
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[topic] = (monotonic() + METADATA_AGE / 1000, partitions)
        return None if partition in partitions else _Fault(f"It has no partition {partition}.", everywhere=False)

    @staticmethod
    def _carry(held: Held) -> Outgoing:
        """Write a record anew to the end of where it lies, as it is, so that its place becomes free."""
        part, record = held.shelf.part, held.record
        return onward(record, part, record.timestamp)


class _Fault(NamedTuple):
    reason: str
    everywhere: bool
    """In all partitions of the topic."""


def _place(held: Held) -> Place:
    return Place(held.shelf.part, held.record.offset)


def _expired(record: Record, now: int) -> bool:
    """Whether a message may no longer be handed out; only those that may expire are read for it."""
    if not any(name == _EXPIRE for name, _ in record.headers):
        return False
    expires = from_record(record, record.topic).expires
    return expires is not None and expires <= now
