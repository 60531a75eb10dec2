"""The producer side: judge a message, complete it, choose its partition, publish it, say what became of its wishes."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from uuid_utils import uuid7

from adapters.base import Adapter, Partitioned, Stored, Support
from bridge.engine.clock import Clock
from bridge.engine.counters import Counters
from bridge.engine.names import check_name
from bridge.engine.partition import partition_of
from bridge.engine.policy import Policy
from bridge.engine.quota import Quota
from bridge.errors import (
    BridgeError,
    FieldUnsupported,
    HeaderInvalid,
    HeaderMissing,
    OutcomeUnknown,
    PartitionUnknown,
    TooManyInFlight,
)
from bridge.message import FIELDS, PRIORITIES, Field, Message

DELAY_MAX: Final = 366 * 24 * 3600 * 1000
"""The longest way ahead a message may be due, ms: "any length up to a year"."""
_EXACTLY_ONCE: Final = 2
_TRACE_ID: Final = slice(3, 35)
"""Where a W3C traceparent holds its trace id."""
_ASKING: Final = tuple(f for f in FIELDS if f.asks)
_ASKING_AT: Final = tuple((Message._fields.index(f.attribute), f.name) for f in _ASKING)
_IGNORED: Final = "ignored"
_REQUIRED: Final = tuple(f for f in FIELDS if f.required)
_BY_LOWER_NAME: Final = {f.name.lower(): f for f in _ASKING}

Applied = Mapping[str, str]


class Produced(NamedTuple):
    """What the producer is told: where the message is, and how each field it carried was honoured."""

    message: Message
    """As it was stored, completed by the bridge; of a batch without its body."""
    stored: Stored
    applied: Applied
    """Field name -> `native`, `emulated` or `ignored`."""


class Producer:
    """Publishes for every client of the bridge."""

    def __init__(self, adapter: Adapter, clock: Clock, policy: Policy, counters: Counters) -> None:
        self._adapter = adapter
        self._clock = clock
        self._policy = policy
        self._counters = counters
        self._quota = Quota(policy.quota) if policy.quota else None
        # asked once: isinstance with a run-time protocol costs 12 us
        self._partitions_of = adapter.partitions if isinstance(adapter, Partitioned) else None
        self._how = {f.name: _reported(adapter.features.fields[f.name]) for f in _ASKING}
        self._spread: dict[str, int] = {}

    async def produce(self, message: Message, require: Sequence[Field], peer: str) -> Produced:
        """Publish one message and wait until it is stored. Raises the error tree."""
        message, applied, future = await self._publish(message, require, peer)
        stored = future.result() if future.done() else await self._stored(future)
        self._counters.produced += 1
        return Produced(message, stored, applied)

    async def produce_all(
        self, messages: Sequence[Message | BridgeError], require: Sequence[Field], peer: str
    ) -> list[Produced | BridgeError]:
        """Publish a batch in order, each message judged on its own; all of them travel to the backend together.

        The results are without bodies. Those are the backend's from then on, and it lets go of them once they are
        written: 64 batches of 100 KiB at once took 20 MiB more.
        """
        started = await self._publish_all(messages, require, peer)
        del messages
        await self._wait([s[2] for s in started if not isinstance(s, BridgeError)])
        results: list[Produced | BridgeError] = []
        for start in started:
            if isinstance(start, BridgeError):
                results.append(start)
                continue
            message, applied, future = start
            try:
                results.append(Produced(message, self._outcome(future), applied))
            except BridgeError as error:
                results.append(error)
            else:
                self._counters.produced += 1
        return results

    async def bury(self, message: Message) -> None:
        """Publish a dead letter: completed already, past every limit that is there to slow clients down."""
        if self._partitions_of is not None:
            partitions = await self._partitions_of(message.destination)
            message = message._replace(partition=self._place(message, partitions))
        await self._stored(self._adapter.publish(message))

    async def _publish_all(
        self, messages: Sequence[Message | BridgeError], require: Sequence[Field], peer: str
    ) -> list[tuple[Message, Applied, asyncio.Future[Stored]] | BridgeError]:
        started: list[tuple[Message, Applied, asyncio.Future[Stored]] | BridgeError] = []
        for message in messages:
            if isinstance(message, BridgeError):
                started.append(message)
                continue
            try:
                published, applied, future = await self._publish(message, require, peer)
            except BridgeError as error:
                started.append(error)
            else:
                started.append((published._replace(body=b""), applied, future))
        return started

    async def _publish(
        self, message: Message, require: Sequence[Field], peer: str
    ) -> tuple[Message, Applied, asyncio.Future[Stored]]:
        check_name(message.destination, "x-oms-h-destination")
        wall = self._clock.wall()
        partitions = None if self._partitions_of is None else await self._partitions_of(message.destination)
        applied = self._applied(message)
        if require:
            self._check_required(require, applied)
        message = self._complete(message, wall, peer, partitions)
        if self._quota is not None:
            self._quota.take(message.destination, self._clock.mono())
        expires = message.expires
        if expires is not None and expires <= max(wall, message.due):
            # "If it expires before it is due it is accepted and dropped, and counted."
            self._counters.expired += 1
            dropped = asyncio.get_running_loop().create_future()
            dropped.set_result(Stored(message.partition, None))
            return message, applied, dropped
        return message, applied, self._start(message)

    def _start(self, message: Message) -> asyncio.Future[Stored]:
        """Hand the message to the backend and count it in flight until its future is done."""
        counters, policy, size = self._counters, self._policy, len(message.body)
        if counters.in_flight >= policy.in_flight or counters.in_flight_bytes + size > policy.in_flight_bytes:
            raise TooManyInFlight(
                f"{counters.in_flight} messages with {counters.in_flight_bytes} bytes are being published;"
                f" at most {policy.in_flight} with {policy.in_flight_bytes} may be."
            )
        future = self._adapter.publish(message)
        if not future.done():
            counters.in_flight += 1
            counters.in_flight_bytes += size
            future.add_done_callback(lambda done: self._landed(size, done))
        return future

    def _landed(self, size: int, future: asyncio.Future[Stored]) -> None:
        _retrieve(future)  # whoever waited may have left
        self._counters.in_flight -= 1
        self._counters.in_flight_bytes -= size

    async def _stored(self, future: asyncio.Future[Stored]) -> Stored:
        await self._wait((future,))
        return self._outcome(future)

    async def _wait(self, futures: Sequence[asyncio.Future[Stored]]) -> None:
        """Wait for all of them together, so that a batch too is answered within one timeout."""
        if pending := [f for f in futures if not f.done()]:
            # wait, not wait_for: a client that gives up must not withdraw what the backend is already storing
            await asyncio.wait(pending, timeout=self._policy.produce_timeout / 1000)

    def _outcome(self, future: asyncio.Future[Stored]) -> Stored:
        if not future.done():
            future.add_done_callback(_retrieve)
            raise OutcomeUnknown(f"The backend has not answered for {self._policy.produce_timeout} ms.")
        return future.result()

    def _complete(self, message: Message, wall: int, peer: str, partitions: int | None) -> Message:
        """Fill in what the client left out, replace what only the bridge may say, drop what has no meaning."""
        if self._policy.strict:
            for field in _REQUIRED:
                if getattr(message, field.attribute) is None:
                    raise HeaderMissing(f"x-oms-h-{field.name.lower()} is required in strict mode.")
        born = wall if message.born_timestamp is None else message.born_timestamp
        if message.delay_time and born + message.delay_time > wall + DELAY_MAX:
            raise HeaderInvalid(f"x-oms-h-delaytime: a message may be due at most {DELAY_MAX} ms from now.")
        trace_id, parent = message.trace_id, message.traceparent
        if parent is not None and trace_id is None:
            trace_id = parent[_TRACE_ID]
        return message._replace(
            message_id=message.message_id or str(uuid7()),
            born_timestamp=born,
            born_host=message.born_host or peer,
            store_timestamp=wall,
            store_host=self._policy.store_host,
            priority=message.priority if message.priority in PRIORITIES else None,
            partition=message.partition if partitions is None else self._place(message, partitions),
            trace_id=trace_id,
            delivery_count=None,
        )

    def _place(self, message: Message, partitions: int) -> int:
        """Choose: "An explicit `partition` wins; else murmur2(messageKey) mod N; else spread"."""
        if message.partition is not None:
            if message.partition >= partitions:
                raise PartitionUnknown(
                    f"x-oms-h-partition: {message.destination} has the partitions 0 to {partitions - 1}."
                )
            return message.partition
        if message.message_key is not None:
            return partition_of(message.message_key, partitions)
        # a turn per destination: with one for all, two that are written in turns would each get half of the partitions
        self._spread[message.destination] = turn = (self._spread.get(message.destination, -1) + 1) % partitions
        return turn

    def _applied(self, message: Message) -> Applied:
        """How each field that the client set is honoured; what has no meaning or no support is ignored."""
        applied = {name: self._how[name] for index, name in _ASKING_AT if message[index] is not None}
        if message.qos == _EXACTLY_ONCE:
            applied["qos"] = _IGNORED
        if message.priority is not None and message.priority not in PRIORITIES:
            applied["priority"] = _IGNORED
        return applied

    def _check_required(self, require: Sequence[Field], applied: Applied) -> None:
        for field in require:
            if applied.get(field.name, self._how[field.name]) == _IGNORED:
                raise FieldUnsupported(f"x-oms-require: {field.name} cannot be honoured here; nothing was stored.")


def read_require(text: str | None) -> Sequence[Field]:
    """Read `x-oms-require: delayTime,priority`. Raises `HeaderInvalid` for a name that asks for nothing."""
    if not text:
        return ()
    names = [name.strip().lower() for name in text.split(",")]
    for name in names:
        if name not in _BY_LOWER_NAME:
            known = ", ".join(f.name for f in _ASKING)
            raise HeaderInvalid(f"x-oms-require: {name[:80]!a} is not one of {known}.")
    return [_BY_LOWER_NAME[name] for name in names]


def _reported(support: Support) -> str:
    return _IGNORED if support is Support.UNSUPPORTED else support.value


def _retrieve(future: asyncio.Future[Stored]) -> None:
    """Look at a late result so that its exception is not reported as never retrieved."""
    if not future.cancelled():
        future.exception()
