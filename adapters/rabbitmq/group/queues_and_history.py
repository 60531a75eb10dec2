"""The queues of groups: declared by the first bridge that uses a group, with a copy of the log.

The catalogue says which groups are ready. A group that is not is set up by one bridge, which holds an exclusive
queue as a lock; the others wait for the catalogue. The lock, all declarations and all copies are on the declaring
connection: a bridge that loses the lock cannot write any more. An unfinished set-up begins again with empty queues,
because no bridge has consumed them yet.

A group that is created after the first message gets a copy of the destination's log, its history:

1. Everything up to a mark in the log is copied into a history queue for each partition, and then what was produced
   meanwhile, up to a second mark. Nothing of it is remembered.
2. Mark A is written into the log. Messages before it were routed before any binding: they are in no queue of the group.
3. The group's queues are bound.
4. After a pause, mark B is written. Messages behind it were routed after the binding: they are in the group's queues.
5. The log is copied up to B. Messages between A and B may be in the history and in the group's queue.
6. So each such queue is read up to a marker: messages that are in the history as well are dropped, and the others are
   moved behind the history. A mark ends the history.

No message before A is delivered twice, and no message that was routed after the binding is missed. Step 4 is a guess: a
node may route a message without the binding, and have it stored in the log only after B. `late_messages` finds those.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from time import monotonic
from typing import Final
from uuid import uuid4

from adapters.amqp.channel import Channel
from adapters.amqp.errors import of_channel
from adapters.amqp.link import Link
from adapters.amqp.messages import Arrival, Outgoing
from adapters.amqp.properties import Properties
from adapters.amqp.retry import within_timeout
from adapters.amqp.settings import REQUEST_TIMEOUT
from adapters.amqp.stream_consumer import Reader
from adapters.base import Stored
from adapters.rabbitmq.group.late_messages import LateMessages
from adapters.rabbitmq.headers import MARKER
from adapters.rabbitmq.mapping import copied, is_marker, message_id
from adapters.rabbitmq.options import Existing
from adapters.rabbitmq.publish.publisher import Publisher
from adapters.rabbitmq.topology import declarations, names
from adapters.rabbitmq.topology.catalogue import Catalogue
from adapters.rabbitmq.topology.declarations import Request, delete_queues, perform, perform_on
from adapters.rabbitmq.topology.destinations import Destinations
from adapters.rabbitmq.topology.names import Source
from adapters.shared_calls import SharedCalls
from bridge.errors import BackendFull, BackendUnavailable, DestinationUnknown, OutcomeUnknown

END: Final = "end"
"""The mark at the end of a history."""
_PREFETCH: Final = 100
"""Messages that are read and whose copy is not confirmed: the memory that a copy takes."""
_PAUSE: Final = 0.05
"""Seconds between the binding and mark B."""
_TIMEOUT: Final = REQUEST_TIMEOUT / 1000
_NOTHING: Final = f"RabbitMQ has sent nothing of it for {_TIMEOUT:.0f} s."
_PERSISTENT: Final = 2


_Pair = tuple[str, str]
"""A destination and a group of it."""


class Backfill:
    """One copy for one group. `lock` is the channel of the set-up's lock: if the lock is lost, the copy fails."""

    def __init__(self, lock: Channel, link: Link, publisher: Publisher, pair: _Pair, partitions: int) -> None:
        self._lock = lock
        self._link = link
        self._publisher = publisher
        self._pair = pair
        self._log = names.log(pair[0])
        self._queues = [names.queue(*pair, partition) for partition in range(partitions)]
        self._histories = [names.history(*pair, partition) for partition in range(partitions)]
        self._returned = names.returned(*pair)
        self._partitions = {names.routing_key(partition): partition for partition in range(partitions)}
        self._name = uuid4().hex
        self._arrivals: deque[tuple[Reader, int, Arrival]] = deque()
        self._woken = asyncio.Event()
        self._failure: BaseException | None = None
        self._copying: set[asyncio.Future[Stored]] = set()
        self._copied: set[int] = set()
        """Partitions that have a history."""
        self._after_a = False
        self._offset = 0
        """Of the last message read in the log."""
        self._overlap: dict[int, Overlap] = {}
        """By partition: the messages between A and B."""

    async def run(self, bindings: list[Request], existing: Existing | None) -> tuple[list[int], LateMessages]:
        """Copy the log, and bind the group's queues meanwhile.

        Returns the partitions that have a history, and what finds messages that reach the log late.

        Raises `BackendUnavailable`, `OutcomeUnknown`, `BackendFull`, `Refused` or `DestinationUnknown`; the set-up must
        then begin again with empty queues.
        """
        self._lock.ended.add_done_callback(lambda ended: self._fail(of_channel(ended.result(), self._log)))
        reader = await Reader.open(self._link, self._log, _PREFETCH, self._arrived)
        reader.failed.add_done_callback(lambda failed: self._fail(failed.result()))
        late = None
        try:
            await self._mark("start")
            await self._copy_up_to("start")
            await self._mark("near")  # what was produced meanwhile must not become a part of the overlap
            await self._copy_up_to("near")
            await self._mark("a")
            await perform(self._lock, self._log, bindings)
            bound = monotonic()
            late = await LateMessages.bind(self._link, self._publisher, self._pair, existing, self._queue_of)
            await self._copy_up_to("a")
            await asyncio.sleep(bound + _PAUSE - monotonic())
            await self._mark("b")
            self._after_a = True
            await self._copy_up_to("b")
            await late.follow(self._offset)
            await self._copies()
            await self._drop_overlaps()
            for partition in self._copied:
                self._send(self._histories[partition], marker(END), b"")
            await self._copies()
        except BaseException:
            if late is not None:
                await late.close()
            raise
        finally:
            await reader.close()
        return sorted(self._copied), late

    async def _mark(self, step: str) -> None:
        await self._publisher.send(Outgoing("", self._log, marker(f"{step} {self._name}"), b""))

    async def _copy_up_to(self, step: str) -> None:
        while True:
            reader, self._offset, arrival = await self._next()
            if not is_marker(arrival.properties):
                await self._copy(reader, arrival)
                continue
            reader.done(arrival.tag)
            if is_marker(arrival.properties, f"{step} {self._name}"):
                return

    async def _copy(self, reader: Reader, arrival: Arrival) -> None:
        """Send a message to the history of its partition; acknowledge it when the copy is confirmed."""
        partition = self._partition_of(arrival.routing_key)
        if partition not in self._copied:
            queue = self._histories[partition]
            await perform(self._lock, queue, [declarations.partition_queue(queue, self._returned)])
            self._copied.add(partition)
        if self._after_a:
            self._overlap.setdefault(partition, Overlap()).add(arrival)
        self._send(self._histories[partition], copied(arrival), arrival.body, partial(reader.done, arrival.tag))

    def _partition_of(self, routing_key: str) -> int:
        return self._partitions.get(routing_key.rpartition(".")[2], 0)

    def _queue_of(self, routing_key: str) -> str:
        return self._queues[self._partition_of(routing_key)]

    async def _drop_overlaps(self) -> None:
        dropping = [asyncio.ensure_future(self._drop_overlap(*each)) for each in self._overlap.items()]
        try:
            await asyncio.gather(*dropping)
        finally:  # one that went on without the lock could write into the next set-up's history
            for each in dropping:
                each.cancel()
            await asyncio.gather(*dropping, return_exceptions=True)

    async def _drop_overlap(self, partition: int, overlap: "Overlap") -> None:
        """Read the group's queue of a partition up to its markers: drop what the history has, and move the rest there.

        One message at a time: a message behind the markers must not become a redelivered one. There is a marker for
        each priority: RabbitMQ 4.3 delivers lower ones later. Under load of a higher priority it may never deliver
        them, so after the first marker the others are read for `_TIMEOUT`; some messages may be delivered twice then.
        """
        queue, mark, marks = self._queues[partition], f"end of {self._name}", len(overlap.priorities)
        outgoing = [Outgoing("", queue, marker(mark, priority), b"") for priority in overlap.priorities]
        await asyncio.gather(*map(self._publisher.send, outgoing))
        arrivals: asyncio.Queue[Arrival] = asyncio.Queue()
        until = inf

        async with self._link.temporary_channel() as channel:
            await channel.ask(queue, "basic_qos", prefetch_count=1)
            await channel.consume(queue, lambda _consumer, arrival: arrivals.put_nowait(arrival))
            while monotonic() < until:
                arrival = await within_timeout(arrivals.get(), f"{queue}: {_NOTHING}")
                if is_marker(arrival.properties, mark):
                    marks, until = marks - 1, min(until, monotonic() + _TIMEOUT)
                    if not marks:
                        return  # it stays: its delivery shows that the acknowledgement before it has arrived
                elif not is_marker(arrival.properties) and not overlap.remove(arrival):
                    history = self._histories[partition]
                    await self._publisher.send(Outgoing("", history, copied(arrival), arrival.body))
                if not channel.open:
                    raise BackendUnavailable(f"{queue}: RabbitMQ closed the channel.")
                channel.raw.basic_ack(arrival.tag)

    def _send(
        self, queue: str, properties: Properties, body: bytes, confirmed: Callable[[], None] | None = None
    ) -> None:
        copying = self._publisher.send(Outgoing("", queue, properties, body))
        self._copying.add(copying)
        copying.add_done_callback(partial(self._sent, confirmed))

    def _sent(self, confirmed: Callable[[], None] | None, copying: asyncio.Future[Stored]) -> None:
        self._copying.discard(copying)
        if copying.cancelled():
            return
        error = copying.exception()
        if error is not None:
            self._fail(error)
        elif confirmed is not None:
            confirmed()

    async def _copies(self) -> None:
        """Wait until all copies are confirmed."""
        while self._copying:
            await asyncio.wait(self._copying)
        self._check()

    async def _next(self) -> tuple[Reader, int, Arrival]:
        while not self._arrivals:
            self._check()
            self._woken.clear()
            await within_timeout(self._woken.wait(), f"{self._log}: {_NOTHING}")
        self._check()
        return self._arrivals.popleft()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _arrived(self, reader: Reader, offset: int, arrival: Arrival) -> None:
        self._arrivals.append((reader, offset, arrival))
        self._woken.set()

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._woken.set()


def marker(mark: str, priority: int | None = None) -> Properties:
    """Return the properties of a mark among messages."""
    return Properties(headers={MARKER: mark}, delivery_mode=_PERSISTENT, priority=priority)


class Overlap:
    """The messages of a partition that are in the history and may be in the group's queue, too."""

    def __init__(self) -> None:
        self.names: Counter[str] = Counter()
        """Their ids, and how often each occurs."""
        self.priorities: set[int | None] = set()

    def add(self, arrival: Arrival) -> None:
        """Add a message of the history."""
        self.names[message_id(arrival)] += 1
        self.priorities.add(arrival.properties.priority)

    def remove(self, arrival: Arrival) -> bool:
        """Remove a message of the queue; returns whether the history has it: each copy there counts once."""
        name = message_id(arrival)
        if not self.names[name]:
            return False
        self.names[name] -= 1
        return True


class Groups:
    """Declares the queues of groups."""

    def __init__(self, declaring: Link, copying: Publisher, catalogue: Catalogue, destinations: Destinations) -> None:
        """`copying` publishes on the connection `declaring`."""
        self._link = declaring
        self._copying = copying
        self._catalogue = catalogue
        self._destinations = destinations
        self._calls: SharedCalls[_Pair, list[Source]] = SharedCalls()
        self._watching: set[asyncio.Task[None]] = set()
        """For messages that reach the log late, of groups that this bridge has set up."""

    async def close(self) -> None:
        """Cancel what runs. Idempotent."""
        await self._calls.close()
        for watching in self._watching:
            watching.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)

    async def sources(self, destination: str, group: str, *, latest: bool) -> Sequence[Source]:
        """Return the queues that the group reads, one for each partition. Declares everything that is missing.

        With `latest` a new group gets no history. Raises `DestinationUnknown`, `DestinationInvalid`, `Refused` or
        `BackendUnavailable`.
        """
        pair = destination, group
        return await self._calls.run(pair, partial(self._sources, pair, latest=latest))

    async def _sources(self, pair: _Pair, *, latest: bool) -> list[Source]:
        partitions = await self._destinations.partitions(pair[0])
        existing = self._destinations.existing.get(pair[0])
        if existing is not None and existing.queue is not None:
            return [Source(0, existing.queue, shared=True)]

        async def set_up(locked: Channel) -> None:
            await self._catalogue.enter("ready", *pair, await self._set_up(locked, pair, partitions, latest=latest))

        def is_ready() -> bool:
            return self._catalogue.contents.group(*pair).ready

        try:
            if is_ready():  # what was deleted meanwhile is declared again, and empty
                queues, bindings = self._requests(pair, partitions)
                await perform_on(self._link, names.group(*pair), [*queues, *bindings])
            else:
                await self._catalogue.once(self._link, names.setup(*pair), is_ready, set_up)
        except DestinationUnknown:
            self._destinations.forget(pair[0])
            raise
        except (BackendFull, OutcomeUnknown) as error:  # about entries and copies that the bridge writes for itself
            raise BackendUnavailable(error.detail) from error
        histories = await self._histories(pair)
        return [
            Source(number, names.queue(*pair, number), names.history(*pair, number) if number in histories else None)
            for number in range(partitions)
        ]

    def _requests(self, pair: _Pair, partitions: int) -> tuple[list[Request], list[Request]]:
        """Return the declarations of the destination and of the group's queues, and the bindings of these."""
        existing = self._destinations.existing.get(pair[0])
        queues = [*self._destinations.declarations(pair[0]), *declarations.group_queues(*pair, partitions)]
        return queues, declarations.group_bindings(*pair, partitions, existing)

    async def _set_up(self, locked: Channel, pair: _Pair, partitions: int, *, latest: bool) -> list[int]:
        """Declare the queues of a new group, and fill them; return the partitions that have a history."""
        queues, bindings = self._requests(pair, partitions)
        subject = names.group(*pair)
        own = [names.queue(*pair, partition) for partition in range(partitions)]
        histories = [names.history(*pair, partition) for partition in range(partitions)]
        if self._catalogue.contents.group(*pair).begun:
            await perform(locked, subject, delete_queues([*own, *histories]))
        elif await self._existing(own[:1]):  # bridges of another prefix have made it, or the catalogue was lost
            await perform(locked, subject, [*queues, *bindings])
            return await self._existing(histories)
        await self._catalogue.enter("begun", *pair)
        await perform(locked, subject, queues)
        if latest or not self._destinations.log_bytes(pair[0]):
            await perform(locked, subject, bindings)
            history: list[int] = []
        else:
            existing = self._destinations.existing.get(pair[0])
            backfill = Backfill(locked, self._link, self._copying, pair, partitions)
            history, late = await backfill.run(bindings, existing)
            if locked.open:
                self._watch(late)
            else:
                await late.close()
        if not locked.open:  # another bridge may have the lock now
            raise BackendUnavailable(f"{subject}: the connection was lost while the group was set up.")
        return history

    def _watch(self, late: LateMessages) -> None:
        watching = asyncio.create_task(late.watch())
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)

    async def _histories(self, pair: _Pair) -> Sequence[int]:
        """Return the partitions that still have a history; enter it in the catalogue if there are fewer."""
        entered = self._catalogue.contents.group(*pair).history
        if not entered:
            return entered
        left = [entered[at] for at in await self._existing([names.history(*pair, number) for number in entered])]
        if len(left) < len(entered):
            await self._catalogue.enter("ready", *pair, left)
        return left

    async def _existing(self, queues: Sequence[str]) -> list[int]:
        """Return the indexes of the queues that exist."""
        existing = []
        for at, queue in enumerate(queues):
            async with self._link.temporary_channel() as channel:
                if await channel.has(queue):
                    existing.append(at)
        return existing
