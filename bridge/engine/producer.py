"""The producer side: validates a message, fills in fields, chooses the partition, publishes, reports field support."""

import asyncio
from collections.abc import Sequence
from typing import Final

from adapters.base import Adapter, Buffering, Published, PublishesMany, Stored
from bridge.engine.client_limits import INTERNAL, DelayedShare, Quota, Share, client_of
from bridge.engine.clock import Clock, ignore_result, stored_result, wait_until_stored
from bridge.engine.counters import OTHER, Counters, Counts, LabelCounts
from bridge.engine.destination_names import check_destination
from bridge.engine.destination_registry import NO_PARTITIONS, DestinationRegistry
from bridge.engine.field_support import Applied, FieldSupport, check_properties
from bridge.engine.message_names import check_ids
from bridge.engine.options import EngineOptions
from bridge.engine.produce_batch_and_results import (
    Batch,
    Outcome,
    Produced,
    ProduceRequest,
    WaitingMessage,
    is_delayed,
    is_expired,
)
from bridge.engine.recent_messages import RecentMessages
from bridge.errors import (
    BridgeError,
    HeaderInvalid,
    HeaderMissing,
    TooManyInFlight,
)
from bridge.message import FIELDS, Field, Message

DELAY_MAX: Final = 366 * 24 * 3600 * 1000
"""How far ahead a message may be due, ms: "any length up to a year"."""
_REQUIRED: Final = tuple(f for f in FIELDS if f.required)


class Producer:
    """Publishes for every client of the bridge."""

    def __init__(
        self,
        adapter: Adapter,
        clock: Clock,
        options: EngineOptions,
        counters: Counters,
        destinations: DestinationRegistry,
    ) -> None:
        self._adapter = adapter
        share = options.client_share
        self.recent = RecentMessages(options.dedup_window, options.dedup_bytes, share) if options.dedup_window else None
        """Notes what the backend does with each message; None: messages are not deduplicated."""
        self._publish_many = adapter.publish_many if isinstance(adapter, PublishesMany) else self._publish_each
        if isinstance(adapter, Buffering):
            adapter.unsent_timeout = options.produce_timeout
        self._clock = clock
        self._options = options
        self._counters = counters
        self._quota = Quota(options.quota) if options.quota else None
        self._destinations = destinations
        self.delayed = DelayedShare(
            Share(options.delayed, share, "delayed messages", "limits.delayed"),
            Share(options.delayed_bytes, share, "bytes of delayed messages", "limits.delayed_bytes"),
        )
        """What clients have delayed at this bridge."""
        self._support = FieldSupport(adapter.features.fields)
        self._property_refusal = adapter.features.property_refusal
        self._partitioner = destinations.partitioner
        self.counts = LabelCounts(options.metric_labels, OTHER)
        """By destination."""

    async def produce(
        self, messages: Sequence[Message | BridgeError], require: Sequence[Field], peer: str
    ) -> list[Produced | BridgeError]:
        """Publish messages: one result for each, in the same order. All of them go to the backend together.

        `require` are the fields that must be honoured, `peer` is the client's host, for bornHost. A message that is an
        error already is its own result. While the backend stores them nothing here holds their bodies, so that its
        copy is the last one and can be freed once it is written: 64 batches of 100 KiB at once took 20 MiB more.
        """
        outcomes = await self._publish_all(messages, require, peer)
        messages = ()
        await wait_until_stored(
            [outcome.future for outcome in outcomes if isinstance(outcome, WaitingMessage)],
            self._options.produce_timeout,
        )
        results: list[Produced | BridgeError] = []
        for outcome in outcomes:
            if isinstance(outcome, (Produced, BridgeError)):
                results.append(outcome)
                continue
            try:
                results.append(self._stored(outcome))
            except BridgeError as error:
                results.append(error)
        return results

    async def result_of(self, waiting: WaitingMessage) -> Produced:
        """Wait until a message that was published before is stored. Raises as `produce` does."""
        await wait_until_stored([waiting.future], self._options.produce_timeout)
        return self._result(waiting)

    def stored_before(self, message: Message, offset: int | None) -> Produced:
        """Return the result of a message that was stored before a restart. `offset`: None if it is delayed."""
        stored, applied = Stored(message.partition, offset), self._support.applied(message)
        host = message.store_host or self._options.store_host
        return Produced(message.message_id or "", message.store_timestamp or 0, host, stored, applied)

    def judge_prepared(self, message: Message, require: Sequence[Field], peer: str) -> tuple[Message, Applied, int]:
        """Judge a message of a transaction, and complete it except for what its commit sets.

        Returns also which fields apply, and the bytes that it counts in limits. Raises as `produce`. If the destination
        is not known, comes before `find_destination`.
        """
        request = self._request(require, peer)
        check_destination(message.destination)
        applied, size = self._judge(message, request)
        if partitions := self._destinations.known(message.destination):
            self._check_partition(message, partitions)
        return request.complete_prepared(message), applied, size

    def knows(self, destination: str) -> bool:
        """Whether a destination is known to exist."""
        return self._destinations.known(destination) is not None

    async def find_destination(self, message: Message, peer: str) -> None:
        """Create the destination of a message if it does not exist. Raises as `produce`."""
        if partitions := await self._partitions(message, self._request((), peer)):
            self._check_partition(message, partitions)

    def _check_partition(self, message: Message, partitions: int) -> None:
        """Raise `PartitionUnknown` if the message names a partition that its destination does not have."""
        if message.partition is not None:
            self._partitioner.choose(message, partitions)

    async def complete_prepared(self, messages: Sequence[Message], wall: int) -> list[Message | None]:
        """Complete the messages of a transaction that is committed now; None: the message has expired.

        Raises the errors of `DestinationRegistry.partitions`.
        """
        request = ProduceRequest((), "", INTERNAL, wall)
        counts: dict[str, int] = {}
        for each in messages:
            if each.destination not in counts:
                known = self._destinations.known(each.destination)
                counts[each.destination] = await self._partitions(each, request) if known is None else known
        whole = [self._complete(each, request, counts[each.destination]) for each in messages]
        return [None if is_expired(each) else each for each in whole]

    def count_committed(self, messages: Sequence[Message | None], client: str) -> None:
        """Count the messages of a transaction of a client that is committed."""
        for message in messages:
            self._counters.produced += 1
            if message is None:
                self._counters.expired += 1
                continue
            self.counts.of(message.destination).stored += 1
            if is_delayed(message):
                self.delayed.add(client, message.destination, message.size, message.due)

    async def _publish_all(
        self, messages: Sequence[Message | BridgeError], require: Sequence[Field], peer: str
    ) -> list[Outcome]:
        batch = Batch(self._request(require, peer))
        for message in messages:
            if isinstance(message, BridgeError):
                batch.outcomes.append(message)
                continue
            try:
                destination = message.destination
                if destination not in batch.partitions:
                    check_destination(destination)
                applied, size = self._judge(message, batch.request, batch)
                if (partitions := batch.partitions.get(destination)) is None:
                    partitions = self._destinations.known(destination)
                    if partitions is None:
                        self._send(batch)
                        batch.partitions.clear()
                        partitions = await self._partitions(message, batch.request)
                        batch.request = self._request(require, peer)
                        self._check_in_flight(size)  # again: others may have been sent meanwhile
                    batch.partitions[destination] = partitions
                self._add(batch, message, size, applied, partitions)
            except BridgeError as error:
                batch.outcomes.append(error)
        self._send(batch)
        return [outcome for outcome in batch.outcomes if outcome is not None]

    def _request(self, require: Sequence[Field], peer: str) -> ProduceRequest:
        return ProduceRequest(require, peer, client_of(peer), self._clock.wall())

    async def _partitions(self, message: Message, request: ProduceRequest) -> int:
        return await self._destinations.partitions(message.destination, request.client, message.partition)

    def _stored(self, outcome: WaitingMessage | Exception) -> Produced:
        if isinstance(outcome, Exception):
            raise outcome
        produced = self._result(outcome)
        self._counters.produced += 1
        return produced

    def _result(self, waiting: WaitingMessage) -> Produced:
        message_id, store_timestamp, applied, future = waiting
        stored = stored_result(future, self._options.produce_timeout)
        return Produced(message_id, store_timestamp, self._options.store_host, stored, applied)

    def _judge(self, message: Message, request: ProduceRequest, batch: Batch | None = None) -> tuple[Applied, int]:
        """Raise what refuses a message to a valid destination. Comes first: publishing may create the destination.

        Returns which fields apply, and the bytes that the message counts in limits.
        """
        check_ids(message)
        applied, size = self._support.applied(message), message.size
        if request.require:
            self._support.check_required(request.require, applied)
        if self._options.strict:
            for field in _REQUIRED:
                if getattr(message, field.attribute) is None:
                    raise HeaderMissing(f"x-oms-h-{field.name.lower()} is required in strict mode.")
        if message.properties:
            check_properties(message, self._property_refusal)
        if message.delay_time:
            wall = request.wall
            born = wall if message.born_timestamp is None else message.born_timestamp
            if born + message.delay_time > wall + DELAY_MAX:
                raise HeaderInvalid(f"x-oms-h-delaytime: a message may be due at most {DELAY_MAX} ms from now.")
            self.delayed.check(request.client, size, wall)
        self._check_in_flight(size, batch)
        if self._quota is not None:
            self._quota.take(message.destination, self._clock.mono())
        return applied, size

    def _add(self, batch: Batch, message: Message, size: int, applied: Applied, partitions: int) -> None:
        """Add a message that was judged to its batch."""
        request = batch.request
        message = self._complete(message, request, partitions)
        if (message.expire_time or message.delay_time) and self._is_dropped(message, size, request.client):
            batch.outcomes.append(self._dropped(message, applied))
            return
        batch.unsent.append((len(batch.outcomes), message, size, applied))
        batch.unsent_bytes += size
        batch.outcomes.append(None)

    def _send(self, batch: Batch) -> None:
        """Pass the messages of a batch to the backend that are not there yet."""
        if not batch.unsent:
            return
        unsent, batch.unsent, batch.unsent_bytes = batch.unsent, [], 0
        published = self._publish_many([message for _, message, _, _ in unsent])
        for (index, message, size, applied), each in zip(unsent, published, strict=True):
            outcome = self._outcome_of(message, size, applied, batch.request.client, each)
            if self.recent:
                self.recent.passed(message, outcome)
            batch.outcomes[index] = outcome

    def _publish_each(self, messages: Sequence[Message]) -> Sequence[Published]:
        return [self._adapter.publish(message) for message in messages]

    def _outcome_of(self, message: Message, size: int, applied: Applied, client: str, published: Published) -> Outcome:
        """Return the result of a message that was passed to the backend; until it is stored it counts as in flight."""
        message_id, store_timestamp = message.message_id or "", message.store_timestamp or 0
        if isinstance(published, Stored):
            self._counters.produced += 1
            self.counts.of(message.destination).stored += 1
            return Produced(message_id, store_timestamp, self._options.store_host, published, applied)
        if isinstance(published, asyncio.Future):
            if not published.done():
                self._count_in_flight(size, self.counts.of(message.destination), published)
                if is_delayed(message):
                    destination, due = message.destination, message.due
                    published.add_done_callback(
                        lambda done: self._release_unstored(client, destination, size, due, done)
                    )
                return WaitingMessage(message_id, store_timestamp, applied, published)
            return self._outcome_of(message, size, applied, client, _result_of(published))
        if is_delayed(message):
            self.delayed.remove(client, message.destination, size, message.due)
        return published

    def _is_dropped(self, message: Message, size: int, client: str) -> bool:
        """Whether a message will never be delivered; one that is delayed is counted.

        "If it expires before it is due it is accepted and dropped, and counted."
        """
        if message.expire_time and is_expired(message):
            self._counters.expired += 1
            return True
        if is_delayed(message):
            self.delayed.add(client, message.destination, size, message.due)
        return False

    def _dropped(self, message: Message, applied: Applied) -> Produced:
        self._counters.produced += 1
        store_timestamp = message.store_timestamp or 0
        stored = Stored(message.partition, None)
        dropped = Produced(message.message_id or "", store_timestamp, self._options.store_host, stored, applied)
        if self.recent:
            self.recent.passed(message, dropped)
        return dropped

    def _release_unstored(
        self, client: str, destination: str, size: int, due: int, future: asyncio.Future[Stored]
    ) -> None:
        if future.cancelled() or future.exception() is not None:
            self.delayed.remove(client, destination, size, due)

    def _check_in_flight(self, size: int, batch: Batch | None = None) -> None:
        """Raise if one more message of `size` bytes would be too many in flight, those of its batch included.

        The batch is sent before it is too much: what the backend stores at once is never in flight.
        """
        counters, options = self._counters, self._options
        messages, in_bytes = counters.in_flight, counters.in_flight_bytes
        if batch is not None:
            messages += len(batch.unsent)
            in_bytes += batch.unsent_bytes
        if messages < options.in_flight and (not in_bytes or in_bytes + size <= options.in_flight_bytes):
            return  # one message always fits
        if batch is not None and batch.unsent:
            self._send(batch)
            self._check_in_flight(size)
            return
        raise TooManyInFlight(
            f"{messages} messages with {in_bytes} bytes are being published;"
            f" at most {options.in_flight} with {options.in_flight_bytes} may be."
        )

    def _count_in_flight(self, size: int, counts: Counts, future: asyncio.Future[Stored]) -> None:
        """Count a message in flight until its future is done."""
        self._counters.in_flight += 1
        self._counters.in_flight_bytes += size
        future.add_done_callback(lambda done: self._on_publish_done(size, counts, done))

    def _on_publish_done(self, size: int, counts: Counts, future: asyncio.Future[Stored]) -> None:
        ignore_result(future)  # the client may have disconnected
        if not future.cancelled() and future.exception() is None:
            counts.stored += 1
        self._counters.in_flight -= 1
        self._counters.in_flight_bytes -= size

    def _complete(self, message: Message, request: ProduceRequest, partitions: int) -> Message:
        partition = message.partition if partitions == NO_PARTITIONS else self._partitioner.choose(message, partitions)
        return request.complete(message, self._options.store_host, partition)


def _result_of(future: asyncio.Future[Stored]) -> Stored | Exception:
    try:
        return future.result()
    except Exception as error:  # noqa: BLE001 - a result as well
        return error
