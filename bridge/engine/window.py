"""The look-ahead window of one group: what may be handed out next, what is out, and how often it has been.

A pure state machine. Times come in: `mono` for leases and pauses, `wall` for due and expiry times, both in ms.
An entry is in exactly one place: waiting to be due, queued behind its key, ready, leased, held back after a nack,
or leaving: on its way to the dead-letter destination, or back to the backend for a long time.
"""

from collections import deque
from collections.abc import Collection
from heapq import heapify, heappop, heappush
from typing import Final, Protocol

from adapters.base import Delivery
from bridge.errors import LeaseEnded
from bridge.message import DEFAULT_PRIORITY, PRIORITIES, Message

_SETTLED: Final = 1
_ENDED: Final = 2
_FATES_KEPT: Final = 1 << 17
"""Leases whose end is remembered, one byte each: acknowledging twice is 204, a lease that ended is 410."""
_STALE_TIMERS: Final = 1024

Lane = tuple[int, str]


class Keeper(Protocol):
    """Whoever keeps leases alive for as long as he lives himself: a push stream, a callback."""

    renewal: int
    """Milliseconds by which a lease that comes to its end is prolonged; 0: it ends."""

    def ended(self, entry: "Entry") -> None:
        """Note that a lease is over, however it ended. Called in the middle of a change: touch nothing else."""
        ...


class Entry:
    """One delivery inside the window."""

    __slots__ = (
        *("attempts", "deadline", "delivery", "expires", "holders", "keeper"),
        *("lane", "number", "order", "priority", "settling"),
    )

    def __init__(self, delivery: Delivery, order: int) -> None:
        message = delivery.message
        self.delivery = delivery
        self.order = order
        asked = message.priority
        self.priority = asked if asked is not None and asked in PRIORITIES else DEFAULT_PRIORITY
        self.lane: Lane | None = None if message.message_key is None else (delivery.partition, message.message_key)
        self.expires = message.expires
        self.attempts = delivery.attempts
        """Deliveries so far: what `deliveryCount` says while the entry is leased."""
        self.number = -1
        """The lease's number within the group, or the pause's."""
        self.deadline = 0
        """When the lease or the pause ends, mono."""
        self.holders = 0
        """Answers that carry this lease: more than one after a pull was repeated."""
        self.keeper: Keeper | None = None
        self.settling = False
        """The backend is recording the acknowledgement: the lease cannot end meanwhile."""

    @property
    def message(self) -> Message:
        """The message as a consumer gets it."""
        return self.delivery.message._replace(delivery_count=self.attempts)


class Window:
    """Key order, priority, due time, expiry, leases and attempts of one group.

    After `max_deliveries` deliveries that were not acknowledged an entry is put on `dead`; None: never.
    """

    def __init__(self, max_deliveries: int | None) -> None:
        self.expired: list[Delivery] = []
        """Dropped because their time was over; the driver settles and clears them."""
        self.dead: list[Entry] = []
        """Delivered too often; the driver takes each with `bury`."""
        self.size = 0
        self.bytes = 0
        self.leases: dict[int, Entry] = {}
        self.leases_ended = 0
        """Leases that ran out, ever."""
        self._max_deliveries = max_deliveries
        self._order = 0
        self._due: list[tuple[int, int, Entry]] = []
        self._ready: list[tuple[int, int, Entry]] = []
        self._lanes: dict[Lane, deque[Entry] | None] = {}
        self._paused: dict[int, Entry] = {}
        self._leaving: set[Entry] = set()
        self._timers: list[tuple[int, int]] = []
        self._fates = bytearray()
        self._fates_from = 0

    @property
    def paused(self) -> int:
        """Entries held back after a nack, or until a dead letter is written again."""
        return len(self._paused)

    @property
    def ready(self) -> int:
        """Entries that could be leased now; expired ones count until they are met."""
        return len(self._ready)

    def offer(self, deliveries: list[Delivery], wall: int) -> None:
        """Take in fetched deliveries, in stored order per partition."""
        for delivery in deliveries:
            self._order = order = self._order + 1
            entry = Entry(delivery, order)
            self.size += 1
            self.bytes += len(delivery.message.body)
            if delivery.message.delay_time and delivery.message.due > wall:
                heappush(self._due, (delivery.message.due, order, entry))
            else:
                self._queue(entry)

    def lease(self, mono: int, wall: int, duration: int, keeper: Keeper | None = None) -> Entry | None:
        """Hand out the best ready entry for `duration` ms: highest priority first, then the order of arrival.

        "Never handed out after expireTime": expired entries met on the way are dropped.
        """
        ready = self._ready
        while ready:
            entry = heappop(ready)[2]
            if entry.expires is not None and entry.expires <= wall:
                self.expired.append(entry.delivery)
                self.close(entry)
                continue
            entry.attempts += 1
            entry.holders = 1
            entry.keeper = keeper
            self._start(entry, self.leases, mono + duration, 0)
            return entry
        return None

    def find(self, number: int, mono: int) -> Entry | None:
        """Return the live lease of that number, None when it was acknowledged. Raises `LeaseEnded` otherwise."""
        entry = self.leases.get(number)
        if entry is not None and (entry.deadline > mono or entry.settling or _renewal(entry)):
            return entry
        index = number - self._fates_from
        if entry is None and 0 <= index < len(self._fates) and self._fates[index] == _SETTLED:
            return None
        raise LeaseEnded("x-oms-receipt: the lease has ended; the message may be delivered again.")

    def finish(self, entry: Entry) -> None:
        """End a lease as acknowledged: the backend has recorded it. Doing it twice is harmless."""
        if entry.number in self.leases:
            self._end_lease(entry, _SETTLED)
            self.close(entry)

    def release(self, entry: Entry, mono: int, delay: int) -> None:
        """End a lease as not acknowledged: ready again after `delay` ms, its key waiting meanwhile."""
        self._end_lease(entry)
        if delay:
            self.hold(entry, mono + delay)
        else:
            self._make_ready(entry)

    def undo(self, entry: Entry, mono: int, delay: int) -> None:
        """Release a lease that nobody received, or that its consumer put off: it does not count as a delivery."""
        entry.attempts -= 1
        self.release(entry, mono, delay)

    def extend(self, entry: Entry, deadline: int) -> None:
        """Let a lease end at `deadline` (mono) instead, sooner or later than before."""
        entry.deadline = deadline
        self._push_timer(deadline, entry.number)

    def acknowledged(self, number: int) -> bool:
        """Note that the backend has recorded the acknowledgement of a lease that was cut short; whether it is news."""
        index = number - self._fates_from
        if not 0 <= index < len(self._fates) or self._fates[index] == _SETTLED:
            return False
        self._fates[index] = _SETTLED
        return True

    def hold(self, entry: Entry, until: int) -> None:
        """Keep an entry back until then (mono), its key with it."""
        self._start(entry, self._paused, until, _ENDED)

    def bury(self) -> Entry:
        """Take one that was delivered too often; its key waits until `left` or `stays` is called."""
        entry = self.dead.pop()
        self._leaving.add(entry)
        return entry

    def send_off(self, entry: Entry) -> None:
        """End a lease as not acknowledged; where the entry goes from here, `left` or `stays` tells."""
        self._end_lease(entry)
        self._leaving.add(entry)

    def left(self, entry: Entry) -> None:
        """Forget an entry that is where it was to go, unless its partition has gone meanwhile."""
        if entry in self._leaving:
            self._leaving.remove(entry)
            self.close(entry)

    def stays(self, entry: Entry, until: int) -> None:
        """Keep an entry back that could not leave until then (mono), unless its partition has gone meanwhile."""
        if entry in self._leaving:
            self._leaving.remove(entry)
            self.hold(entry, until)

    def close(self, entry: Entry) -> None:
        """Forget an entry for good and let the next of its key come forward."""
        self.size -= 1
        self.bytes -= len(entry.delivery.message.body)
        lane = entry.lane
        if lane is None:
            return
        queue = self._lanes[lane]
        if queue:
            self._make_ready(queue.popleft())
        else:
            del self._lanes[lane]

    def advance(self, mono: int, wall: int) -> None:
        """Let time pass: end leases and pauses that are over, queue what has become due."""
        timers = self._timers
        while timers and timers[0][0] <= mono:
            number = heappop(timers)[1]
            entry = self.leases.get(number)
            if entry is None:
                if (paused := self._paused.pop(number, None)) is not None:
                    self._make_ready(paused)
            elif entry.settling:
                heappush(timers, (mono + 1000, number))
            elif entry.deadline <= mono:
                if renewal := _renewal(entry):
                    self.extend(entry, mono + renewal)
                    continue
                self.leases_ended += 1
                self._end_lease(entry)
                self._make_ready(entry)
        due = self._due
        while due and due[0][0] <= wall:
            self._queue(heappop(due)[2])

    def next_events(self) -> tuple[int | None, int | None]:
        """When `advance` may next have something to do: (mono, wall)."""
        return self._timers[0][0] if self._timers else None, self._due[0][0] if self._due else None

    def surrender(self) -> list[Delivery]:
        """Give up everything: the deliveries to hand back, with what they count.

        A lease cut short here is no failure of its consumer and does not count.
        """
        leased = [e for e in self.leases.values() if not e.settling]
        entries = [e for _, _, e in (*self._due, *self._ready)]
        entries += [*self._paused.values(), *self.dead]
        entries += [e for queue in self._lanes.values() if queue for e in queue]
        for entry in leased:
            self._end_lease(entry)
            entry.attempts -= 1
        for place in (self._due, self._ready, self._lanes, self.leases, self._paused, self._timers, self.dead):
            place.clear()
        self.size = self.bytes = 0
        entries = sorted(entries + leased, key=lambda e: e.order)
        return [e.delivery._replace(attempts=e.attempts) for e in entries]

    def revoke(self, partitions: Collection[int]) -> list[Delivery]:
        """Forget whatever there is of some partitions: the deliveries that are not settled, with what they count.

        A lease cut short here is no failure of its consumer and does not count. One whose acknowledgement is being
        recorded ends too, but is not among them: how it was settled is between the backend and who asked for it.
        """
        gone: list[Entry] = []
        for heap in (self._due, self._ready):
            gone += [e for _, _, e in heap if e.delivery.partition in partitions]
            heap[:] = [place for place in heap if place[2].delivery.partition not in partitions]
            heapify(heap)
        for lane in [lane for lane in self._lanes if lane[0] in partitions]:
            gone += self._lanes.pop(lane) or ()
        for number in [n for n, e in self._paused.items() if e.delivery.partition in partitions]:
            gone.append(self._paused.pop(number))
        for entries in (self.dead, self._leaving):
            gone += [e for e in entries if e.delivery.partition in partitions]
        self.dead[:] = [e for e in self.dead if e.delivery.partition not in partitions]
        self._leaving.difference_update(gone)
        leased = [e for e in self.leases.values() if e.delivery.partition in partitions]
        for entry in leased:
            self._end_lease(entry)
            entry.attempts -= not entry.settling
        gone += leased
        self.size -= len(gone)
        self.bytes -= sum(len(e.delivery.message.body) for e in gone)
        self._sweep_timers()
        gone.sort(key=lambda e: e.order)
        return [e.delivery._replace(attempts=e.attempts) for e in gone if not e.settling]

    def _queue(self, entry: Entry) -> None:
        """The next message of a key waits until the one before it is settled."""
        lane = entry.lane
        if lane is None or lane not in self._lanes:
            if lane is not None:
                self._lanes[lane] = None
            self._make_ready(entry)
        elif (queue := self._lanes[lane]) is None:
            self._lanes[lane] = deque((entry,))
        else:
            queue.append(entry)

    def _make_ready(self, entry: Entry) -> None:
        if self._max_deliveries is not None and entry.attempts >= self._max_deliveries:
            self.dead.append(entry)
        else:
            heappush(self._ready, (-entry.priority, entry.order, entry))

    def _start(self, entry: Entry, place: dict[int, Entry], deadline: int, fate: int) -> None:
        fates = self._fates
        if len(fates) >= _FATES_KEPT:
            half = _FATES_KEPT // 2
            del fates[:half]
            self._fates_from += half
        entry.number = number = self._fates_from + len(fates)
        fates.append(fate)
        entry.deadline = deadline
        place[number] = entry
        self._push_timer(deadline, number)

    def _push_timer(self, deadline: int, number: int) -> None:
        """Settled leases leave their timer behind; without the clean-up 10,000 acks a second keep 300,000 of them."""
        if len(self._timers) > 2 * (len(self.leases) + len(self._paused)) + _STALE_TIMERS:
            self._sweep_timers()
        else:
            heappush(self._timers, (deadline, number))

    def _sweep_timers(self) -> None:
        self._timers[:] = [(e.deadline, n) for place in (self.leases, self._paused) for n, e in place.items()]
        heapify(self._timers)

    def _end_lease(self, entry: Entry, fate: int = _ENDED) -> None:
        del self.leases[entry.number]
        self._fate(entry.number, fate)
        if (keeper := entry.keeper) is not None:
            entry.keeper = None
            keeper.ended(entry)

    def _fate(self, number: int, fate: int) -> None:
        index = number - self._fates_from
        if index >= 0:
            self._fates[index] = fate


def _renewal(entry: Entry) -> int:
    return entry.keeper.renewal if entry.keeper is not None else 0
