"""The prefetch buffer of one group: which message is next, which are leased, how often each was delivered.

A pure state machine: the caller passes the time, `mono` for leases and pauses, `wall` for due and expiry times, both
in ms. An entry is in exactly one place: waiting until it is due, queued behind its key, ready, leased, paused after a
nack, or being removed: on its way to the dead-letter destination, or back to the backend because its pause is long.

If entries that cannot be delivered soon fill the buffer, the messages of some are dropped: these entries are parked.
They keep their places, and their messages are fetched again before they are ready.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final

from adapters.base import Delivery
from bridge.engine.entries_and_receipts import Entry, LeaseHistory, LeaseOwner, QueueKey
from bridge.engine.parked_entries import ParkedEntries
from bridge.errors import LeaseEnded

_STALE_TIMERS: Final = 1024
_SETTLING_CHECK: Final = 1000
"""Milliseconds after which a lease that is being settled is checked again."""
_SHORT: Final = 1000
"""Milliseconds: an entry that waits no longer than this, or whose key goes on within it, is not parked."""
_READ_AHEAD: Final = 256
"""Parked entries of a key whose messages are fetched again together, before they are ready."""


class PrefetchBuffer(ParkedEntries):
    """Applies key order, priority, due time, expiry, leases and attempts to the messages of one group.

    After `max_deliveries` deliveries without acknowledgement an entry is put on `dead`; None: never.
    """

    def __init__(self, max_deliveries: int | None, *, by_key: bool = True) -> None:
        """`by_key`: a message waits until the one before it with the same key is settled."""
        super().__init__()
        self.expired: list[Delivery] = []
        """Dropped after their expireTime; the group settles them and clears the list."""
        self.dead: list[Entry] = []
        """Delivered `max_deliveries` times; the group takes each with `take_dead`."""
        self.leases: dict[int, Entry] = {}
        """Live leases by number."""
        self.leases_ended = 0
        """Total of leases that reached their deadline."""
        self.is_wanted = False
        """Whether the last attempt to lease found less than it asked for."""
        self._max_deliveries = max_deliveries
        self._by_key = by_key
        self._order = 0
        self._due: list[tuple[int, int, Entry]] = []
        self._ready: list[tuple[int, int, Entry]] = []
        self._key_queues: dict[QueueKey, deque[Entry] | None] = {}
        self._unmoved: dict[QueueKey, int] = {}
        """Since when `parkable` has found the same first message of a key, mono."""
        self._paused: dict[int, Entry] = {}
        self._removing: set[Entry] = set()
        self._timers: list[tuple[int, int, int]] = []
        """Deadline, first number and count of leases that were made together, or of one pause; a heap."""
        self._outcomes = LeaseHistory()

    @property
    def paused(self) -> int:
        """Number of entries paused after a nack, or until their dead letter is written again."""
        return len(self._paused)

    @property
    def ready(self) -> int:
        """Number of entries that can be leased now, including expired ones that `lease` has not reached yet."""
        return len(self._ready)

    @property
    def waiting(self) -> int:
        """Number of entries with a message that wait for their key, their due time or the end of a pause."""
        busy = len(self.leases) + len(self._ready) + len(self._removing) + len(self.dead) + len(self.requested)
        return self.size - busy

    def offer(self, deliveries: list[Delivery], wall: int) -> None:
        """Add fetched deliveries, which are in stored order per partition."""
        for delivery in deliveries:
            self._order = order = self._order + 1
            entry = Entry(delivery, order)
            if not self._by_key:
                entry.queue_key = None
            self.size += 1
            self.bytes += entry.size
            if delivery.message.delay_time and delivery.message.due > wall:
                heappush(self._due, (delivery.message.due, order, entry))
            else:
                self._queue(entry)

    def lease(  # noqa: PLR0913, PLR0917 - the time, what each lease is made of, and how many
        self, mono: int, wall: int, duration: int, limit: int, max_bytes: int, owner: LeaseOwner | None = None
    ) -> list[Entry]:
        """Lease ready entries for `duration` ms, those with the highest priority and then the oldest first.

        At most `limit`, until they reach `max_bytes`. "Never handed out after expireTime": expired entries before them
        are dropped.
        """
        ready = self._ready
        entries: list[Entry] = []
        while ready and len(entries) < limit and max_bytes > 0:
            entry = heappop(ready)[2]
            if entry.expires is not None and entry.expires <= wall:
                self.expired.append(entry.delivery)
                self.remove(entry)
                continue
            entries.append(entry)
            max_bytes -= entry.size
        self.is_wanted = len(entries) < limit and max_bytes > 0
        if entries:
            first = self._outcomes.add_leases(len(entries))
            deadline = mono + duration
            for number, entry in enumerate(entries, first):
                entry.attempts += 1
                entry.holders = 1
                entry.owner = owner
                entry.number = number
                entry.deadline = deadline
                self.leases[number] = entry
            self._push_timer(deadline, first, len(entries))
        return entries

    def find(self, number: int, mono: int) -> Entry | None:
        """Return the entry of a live lease, None if the lease was acknowledged. Raises `LeaseEnded` otherwise."""
        entry = self.leases.get(number)
        if entry is not None and (entry.deadline > mono or entry.settling or _renewal(entry)):
            return entry
        if entry is None and self._outcomes.is_settled(number):
            return None
        raise LeaseEnded("x-oms-receipt: the lease has ended; the message may be delivered again.")

    def acknowledge(self, leases: Iterable[tuple[Entry, int]]) -> int:
        """End leases, given with their numbers, as acknowledged: the backend has recorded it. Idempotent.

        Returns how many were not recorded as acknowledged before. A lease that `revoke` has ended is only recorded.
        """
        count = 0
        for entry, number in leases:
            recorded = self._outcomes.settle(number)
            if self.leases.get(number) is entry:
                self._remove_lease(entry)
                self.remove(entry)
            elif not recorded:
                continue
            count += 1
        return count

    def release(self, entry: Entry, mono: int, delay: int) -> None:
        """End a lease as not acknowledged. The entry is ready again after `delay` ms; its key waits meanwhile."""
        self._end_lease(entry)
        if delay:
            self.pause(entry, mono + delay)
        else:
            self.make_ready(entry)

    def undo(self, entry: Entry, mono: int, delay: int) -> None:
        """Release a lease without counting a delivery: no client received it, or its consumer deferred it."""
        entry.attempts -= 1
        self.release(entry, mono, delay)

    def extend(self, entry: Entry, deadline: int) -> None:
        """Move the end of a lease to `deadline` (mono), earlier or later."""
        entry.deadline = deadline
        self._push_timer(deadline, entry.number)

    def pause(self, entry: Entry, until: int) -> None:
        """Make an entry, and its key, wait until then (mono)."""
        entry.number = number = self._outcomes.add_pause()
        self._paused[number] = entry
        self.extend(entry, until)

    def take_dead(self) -> Entry:
        """Take one entry of `dead`; its key waits for `complete_removal` or `abort_removal`."""
        entry = self.dead.pop()
        self._removing.add(entry)
        return entry

    def begin_removal(self, entry: Entry) -> None:
        """End a lease as not acknowledged; then call `complete_removal` or `abort_removal`."""
        self._end_lease(entry)
        self._removing.add(entry)

    def complete_removal(self, entry: Entry) -> None:
        """Forget an entry that was stored elsewhere. Does nothing if its partition was revoked meanwhile."""
        if entry in self._removing:
            self._removing.remove(entry)
            self.remove(entry)

    def abort_removal(self, entry: Entry, until: int) -> None:
        """Pause an entry that could not be stored elsewhere until then (mono).

        Does nothing if its partition was revoked meanwhile.
        """
        if entry in self._removing:
            self._removing.remove(entry)
            self.pause(entry, until)

    def remove(self, entry: Entry) -> None:
        """Remove an entry and make the next entry of its key ready."""
        if entry.parked:
            self._uncount(entry)
        else:
            self.size -= 1
            self.bytes -= entry.size
        queue_key = entry.queue_key
        if queue_key is None:
            return
        self._unmoved.pop(queue_key, None)
        queue = self._key_queues[queue_key]
        if queue:
            self.make_ready(queue.popleft())
            if queue and queue[0].parked and not self._is_awaited(queue[0]):
                self._read_ahead(islice(queue, _READ_AHEAD))
        else:
            del self._key_queues[queue_key]

    def advance(self, mono: int, wall: int) -> None:
        """Update to the given time: end leases and pauses that are over, queue entries that are due."""
        timers = self._timers
        while timers and timers[0][0] <= mono:
            _, first, count = heappop(timers)
            for number in range(first, first + count):
                self._check_deadline(number, mono)
        due = self._due
        while due and due[0][0] <= wall:
            self._queue(heappop(due)[2])

    def next_events(self) -> tuple[int | None, int | None]:
        """Return when `advance` may next change something: (mono, wall); None: never."""
        return self._timers[0][0] if self._timers else None, self._due[0][0] if self._due else None

    def drain(self) -> list[Delivery]:
        """Empty the buffer and return the deliveries to release, with their attempts.

        A lease that ends here is no failure of its consumer and does not count. Parked entries have no message.
        """
        leased = [e for e in self.leases.values() if not e.settling]
        entries = [e for _, _, e in (*self._due, *self._ready)]
        entries += [*self._paused.values(), *self.dead, *self._without_message]
        entries += [e for queue in self._key_queues.values() if queue for e in queue]
        for entry in leased:
            self._end_lease(entry)
            entry.attempts -= 1
        for place in (self._due, self._ready, self._key_queues, self.leases, self._paused, self._timers, self.dead):
            place.clear()
        self._unmoved.clear()
        self._forget_all()
        entries = sorted(entries + leased, key=lambda e: e.order)
        return [e.delivery._replace(attempts=e.attempts) for e in entries]

    def revoke(self, partitions: Collection[int]) -> list[Delivery]:
        """Remove the entries of some partitions and return their unsettled deliveries, with their attempts.

        A lease that ends here is no failure of its consumer and does not count. A lease whose acknowledgement is being
        recorded ends too, but its delivery is not returned: the backend reports the result to the call that settles it.
        """
        revoked: list[Entry] = []
        for heap in (self._due, self._ready):
            revoked += [e for _, _, e in heap if e.delivery.partition in partitions]
            heap[:] = [item for item in heap if item[2].delivery.partition not in partitions]
            heapify(heap)
        for queue_key in [queue_key for queue_key in self._key_queues if queue_key[0] in partitions]:
            revoked += self._key_queues.pop(queue_key) or ()
            self._unmoved.pop(queue_key, None)
        for number in [n for n, e in self._paused.items() if e.delivery.partition in partitions]:
            revoked.append(self._paused.pop(number))
        for entries in (self.dead, self._removing, self._without_message):
            revoked += [e for e in entries if e.delivery.partition in partitions]
        self.dead[:] = [e for e in self.dead if e.delivery.partition not in partitions]
        self._removing.difference_update(revoked)
        self._without_message.difference_update(revoked)
        leased = [e for e in self.leases.values() if e.delivery.partition in partitions]
        for entry in leased:
            self._end_lease(entry)
            entry.attempts -= not entry.settling
        revoked += leased
        for entry in revoked:
            self._uncount(entry)
        self._sweep_timers()
        revoked.sort(key=lambda e: e.order)
        return [e.delivery._replace(attempts=e.attempts) for e in revoked if not e.settling]

    def waiting_by_partition(self) -> Counter[int]:
        """Count, by partition, the entries that wait for their key, their due time or the end of a pause."""
        waiting = Counter(e.delivery.partition for e in (*self._paused.values(), *self._without_message))
        waiting.update(e.delivery.partition for _, _, e in self._due)
        for (partition, _), queue in self._key_queues.items():
            if queue:
                waiting[partition] += len(queue)
        return waiting

    def parkable(self, mono: int, wall: int) -> Iterator[Entry]:
        """Yield the entries that `park` may take, those that are needed the latest first.

        First the followers of a key that are the furthest behind its first message, then the longest pauses. A key
        whose first message is settled within `_SHORT` goes on: its followers are needed soon.
        """
        unmoved = self._unmoved
        queues = [q for key, q in self._key_queues.items() if q and mono - unmoved.setdefault(key, mono) >= _SHORT]
        followers = [(place, e.order, e) for queue in queues for place, e in enumerate(queue) if not e.parked]
        followers.sort(reverse=True)
        for _, _, entry in followers:
            yield entry
        pauses = [(e.deadline - mono, e.order, e) for e in self._paused.values() if not e.parked]
        pauses += [(due - wall, order, e) for due, order, e in self._due if not e.parked]
        pauses.sort(reverse=True)
        for wait, _, entry in pauses:
            if wait > _SHORT:
                yield entry

    def make_ready(self, entry: Entry) -> None:
        """Make an entry ready, or dead if it was delivered too often; if it is parked, request its message first."""
        if entry.parked:
            self._miss(entry)
        elif self._max_deliveries is not None and entry.attempts >= self._max_deliveries:
            self.dead.append(entry)
        else:
            heappush(self._ready, (-entry.priority, entry.order, entry))

    def drop_expired(self, entry: Entry) -> None:
        """Remove a missing entry that has expired."""
        self.expired.append(entry.delivery)
        self._remove_parked(entry)

    def remove_follower(self, entry: Entry) -> None:
        """Remove an entry that is queued behind its key."""
        queue = None if entry.queue_key is None else self._key_queues[entry.queue_key]
        if queue:
            queue.remove(entry)
        self._uncount(entry)

    def _check_deadline(self, number: int, mono: int) -> None:
        """End a pause, or a lease whose deadline has passed unless its owner extends it."""
        entry = self.leases.get(number)
        if entry is None:
            if (paused := self._paused.pop(number, None)) is not None:
                self.make_ready(paused)
        elif entry.settling:
            heappush(self._timers, (mono + _SETTLING_CHECK, number, 1))
        elif entry.deadline <= mono:
            if renewal := _renewal(entry):
                self.extend(entry, mono + renewal)
                return
            self.leases_ended += 1
            self._end_lease(entry)
            self.make_ready(entry)

    def _queue(self, entry: Entry) -> None:
        """Make an entry ready, or queue it: the next message of a key waits until the one before it is settled."""
        queue_key = entry.queue_key
        if queue_key is None or queue_key not in self._key_queues:
            if queue_key is not None:
                self._key_queues[queue_key] = None
            self.make_ready(entry)
        elif (queue := self._key_queues[queue_key]) is None:
            self._key_queues[queue_key] = deque((entry,))
        else:
            queue.append(entry)

    def _push_timer(self, deadline: int, first: int, count: int = 1) -> None:
        """Add a timer. Settled leases do not remove theirs: 10,000 acks a second would keep 300,000 of them."""
        if len(self._timers) > 2 * (len(self.leases) + len(self._paused)) + _STALE_TIMERS:
            self._sweep_timers()
        else:
            heappush(self._timers, (deadline, first, count))

    def _sweep_timers(self) -> None:
        self._timers[:] = [(e.deadline, n, 1) for place in (self.leases, self._paused) for n, e in place.items()]
        heapify(self._timers)

    def _end_lease(self, entry: Entry) -> None:
        """End a lease without acknowledgement."""
        self._outcomes.end(entry.number)
        self._remove_lease(entry)

    def _remove_lease(self, entry: Entry) -> None:
        """Remove a lease, however it ended, and notify its owner."""
        del self.leases[entry.number]
        if (owner := entry.owner) is not None:
            entry.owner = None
            owner.ended(entry)


def _renewal(entry: Entry) -> int:
    return entry.owner.renewal if entry.owner is not None else 0
