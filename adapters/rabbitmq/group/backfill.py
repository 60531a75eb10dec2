"""What the log holds for a group that comes late, copied into its own queues.

1. Everything up to a mark in the log is copied: however long that takes, nothing has to be remembered of it.
2. Mark A is stored in the log. What lies before it was routed before any binding: it is in no queue of the group.
3. The group's queues are bound.
4. A pause, then mark B. What the log stores after B was routed after the binding: it is in the group's queues.
5. The log is copied up to B. What lies between A and B may be in both, so its ids end the history of each partition,
   and a marker in the partition's own queue says how far to look for them (`history`).

Certain is: nothing before A comes twice; nothing that was routed after the binding is missed. Not certain is 4: a node
may have routed a message without the binding, and have it stored in the log only after B: then the group misses it. On
one node that takes a process that stands still for the whole pause between two instructions. In a cluster it also takes
no more than a connection between two nodes that stalls for so long, or a log whose leader changes at that moment.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Final, NamedTuple
from uuid import uuid4

from adapters.amqp.channel import Channel
from adapters.amqp.errors import of_channel
from adapters.amqp.link import Link
from adapters.amqp.messages import Arrival, Outgoing
from adapters.amqp.properties import Properties
from adapters.amqp.settings import REQUEST_TIMEOUT
from adapters.amqp.stream_reader import Reader
from adapters.base import Stored
from adapters.rabbitmq.group import history
from adapters.rabbitmq.message.headers import MARKER
from adapters.rabbitmq.message.mapping import copied, message_id
from adapters.rabbitmq.publish.publisher import Publisher
from adapters.rabbitmq.topology import declarations, names
from adapters.rabbitmq.topology.declarations import Step, play
from bridge.errors import BackendUnavailable, BridgeError

_PREFETCH: Final = 100
"""Messages read and not yet confirmed in their copy: what a copy holds in memory."""
_PAUSE: Final = 0.05
"""Seconds between the binding and mark B."""
_PATIENCE: Final = REQUEST_TIMEOUT / 1000


class Late(NamedTuple):
    """A group that comes late."""

    destination: str
    group: str
    partitions: int


class Backfill:
    """One copy for one group. `lock` is the channel that keeps others from it: with the lock, the copy ends."""

    def __init__(self, lock: Channel, link: Link, publisher: Publisher, late: Late) -> None:
        destination, group, partitions = late
        self._lock = lock
        self._link = link
        self._publisher = publisher
        self._log = names.log(destination)
        self._own = [names.queue(destination, group, partition) for partition in range(partitions)]
        self._histories = [names.history(destination, group, partition) for partition in range(partitions)]
        self._partitions = {names.routing_key(partition): partition for partition in range(partitions)}
        self._name = uuid4().hex
        self._arrivals: deque[tuple[Reader, Arrival]] = deque()
        self._woken = asyncio.Event()
        self._failure: BaseException | None = None
        self._copying: set[asyncio.Future[Stored]] = set()
        self._copied: set[int] = set()
        """Partitions that have a history."""
        self._between = False
        self._both: dict[int, Counter[str]] = {}
        """By partition: what lay between A and B."""

    async def run(self, bindings: list[Step]) -> list[int]:
        """Copy, and bind on the way; return which partitions have a history.

        Raises `BackendUnavailable`, `OutcomeUnknown`, `BackendFull`, `Refused` or `DestinationUnknown`; what was copied
        so far is worth nothing then.
        """
        self._lock.ended.add_done_callback(self._unlocked)
        reader = await Reader.open(self._link, self._log, _PREFETCH, self._arrived)
        reader.failed.add_done_callback(self._failed)
        try:
            await self._mark("start")
            await self._copy_up_to("start")
            await self._mark("a")
            await play(self._lock, self._log, bindings)
            bound = monotonic()
            await self._copy_up_to("a")
            await asyncio.sleep(bound + _PAUSE - monotonic())
            await self._mark("b")
            self._between = True
            await self._copy_up_to("b")
        finally:
            self._lock.ended.remove_done_callback(self._unlocked)
            reader.failed.remove_done_callback(self._failed)
            await reader.close()
        await self._end()
        return sorted(self._copied)

    async def _mark(self, which: str) -> None:
        """Store a mark in the log, for certain."""
        await self._publisher.send(Outgoing("", self._log, history.marker(f"{which} {self._name}"), b""))

    async def _copy_up_to(self, which: str) -> None:
        mark = f"{which} {self._name}"
        while True:
            reader, arrival = await self._next()
            headers = arrival.properties.headers
            if headers and MARKER in headers:
                reader.done(arrival.tag)
                if headers[MARKER] == mark:
                    return
            else:
                await self._copy(reader, arrival)

    async def _copy(self, reader: Reader, arrival: Arrival) -> None:
        """Send a message to the history of its partition, and make room for the next when it is confirmed."""
        partition = self._partitions.get(arrival.routing_key.rpartition(".")[2], 0)
        if partition not in self._copied:
            queue = self._histories[partition]
            await play(self._lock, queue, [declarations.partition_queue(queue)])
            self._copied.add(partition)
        if self._between:
            self._both.setdefault(partition, Counter())[message_id(arrival)] += 1
        self._send(self._histories[partition], copied(arrival), arrival.body, partial(reader.done, arrival.tag))

    async def _end(self) -> None:
        for partition in self._copied:
            properties, body = history.end(self._name, self._both.get(partition, {}))
            self._send(self._histories[partition], properties, body)
            self._send(self._own[partition], history.through(self._name), b"")
        while self._copying:
            await asyncio.wait(self._copying)
        self._check()

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

    async def _next(self) -> tuple[Reader, Arrival]:
        while not self._arrivals:
            self._check()
            self._woken.clear()
            try:
                async with asyncio.timeout(_PATIENCE):
                    await self._woken.wait()
            except TimeoutError:
                raise BackendUnavailable(
                    f"{self._log}: RabbitMQ has sent nothing of it for {_PATIENCE:.0f} s."
                ) from None
        self._check()
        return self._arrivals.popleft()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _arrived(self, reader: Reader, _offset: int, arrival: Arrival) -> None:
        self._arrivals.append((reader, arrival))
        self._woken.set()

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._woken.set()

    def _failed(self, failed: asyncio.Future[BridgeError]) -> None:
        self._fail(failed.result())

    def _unlocked(self, ended: asyncio.Future[BaseException]) -> None:
        self._fail(of_channel(ended.result(), self._log))
