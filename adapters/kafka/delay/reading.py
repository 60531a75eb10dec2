"""Keeps what is held in memory in step with the partitions that this bridge has, and with what is committed of them."""

import logging
from collections.abc import Mapping
from typing import Final

from kafka.structs import ConsumerGroupMetadata

from adapters.clock import wall
from adapters.kafka.delay.holding import Holding, Shelf
from adapters.kafka.delay.intake import FETCH_WAIT, Intake
from adapters.kafka.delay.schedule import Level
from adapters.kafka.delay.waiting import waiting_of
from adapters.kafka.record import Part, Record

_log = logging.getLogger("bridge.kafka")

_UNSETTLED: Final = 50
"""Milliseconds between two looks while the group is being rearranged."""


class Reading:
    """The partitions of one membership, from its beginning to its end. For the forwarder's thread."""

    def __init__(self, intake: Intake, holding: Holding, levels: Mapping[str, Level], lows: dict[Part, int]) -> None:
        self._intake = intake
        self._holding = holding
        self._levels = levels
        self._lows = lows
        self._unread: dict[Part, int] = {}
        """Partitions that are ours, but not held before their committed state is read; how far each was read before."""

    def take_in(self) -> None:
        """Wait until there is something to do, take records, and follow the group's changes."""
        records = self._intake.poll(self._patience())
        gone, come = self._intake.changes()
        for part in gone:
            self._forget(part)
        self._unread.update(dict.fromkeys(come, 0))
        for record in records:
            if Part(record.topic, record.partition) in self._holding.shelves:
                self._add(record)
        for shelf in self._holding.to_read_again(wall()):
            self._read_anew(shelf)

    def member(self) -> ConsumerGroupMetadata | None:
        """Read what is committed of new partitions, then return as whom records are to be moved; None: not now."""
        for part, reached in list(self._unread.items()):
            committed = self._intake.rewind(part)
            self._holding.put(Shelf(part, self._levels[part.topic], committed, reached))
            del self._unread[part]
            if committed is not None:
                self._lows[part] = committed.offset
        return self._intake.member()

    def begin_anew(self) -> None:
        """Forget everything that is not committed."""
        for shelf in list(self._holding.shelves.values()):
            self._read_anew(shelf)

    def feed(self) -> None:
        """Let more of those partitions come that have room, and of no others."""
        now, shelves = wall(), self._holding.shelves
        self._intake.read_only([part for part, shelf in shelves.items() if self._holding.hungry(shelf, now)], shelves)

    def end(self) -> None:
        """Forget all partitions, but not how far they are done with."""
        for part in list(self._holding.shelves):
            self._holding.drop(part)

    def _patience(self) -> int:
        if self._unread or self._intake.member() is None:
            return _UNSETTLED
        wake = self._holding.next_wake()
        return FETCH_WAIT if wake is None else min(max(wake - wall(), 0), FETCH_WAIT)

    def _add(self, record: Record) -> None:
        waiting = waiting_of(record)
        if waiting is None:
            _log.warning("A record of %s that no bridge wrote is passed over (offset %d).", record.topic, record.offset)
        self._holding.add(record, waiting)

    def _read_anew(self, shelf: Shelf) -> None:
        self._holding.drop(shelf.part)
        self._unread[shelf.part] = shelf.reached

    def _forget(self, part: Part) -> None:
        self._holding.drop(part)
        self._unread.pop(part, None)
        self._lows.pop(part, None)
