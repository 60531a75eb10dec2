"""Passes messages to the backend: checks each, completes it, chooses its partition, counts it."""

import asyncio
from collections.abc import Sequence
from typing import Final

from adapters.base import Adapter, Buffering, Published, PublishesMany, Stored
from bridge.engine.batch import Batch, Publish, is_delayed, is_expired
from bridge.engine.client_limits import INTERNAL, DelayedShare, Quota, Share
from bridge.engine.clock import Clock, StoredWaits, ignore_result, stored_result
from bridge.engine.counters import OTHER, Counters, Counts, LabelCounts
from bridge.engine.destination_names import check_destination
from bridge.engine.destination_registry import DestinationRegistry
from bridge.engine.field_support import Applied, FieldSupport, check_ids, check_properties
from bridge.engine.options import EngineOptions
from bridge.engine.produced import Outcome, Produced, Result, WaitingMessage
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
        self._publish_many = adapter.publish_many if isinstance(adapter, PublishesMany) else self._publish_each
        if isinstance(adapter, Buffering):
            adapter.unsent_timeout = options.produce_timeout
        self._waits = StoredWaits(options.produce_timeout)
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

    async def send(self, batch: Batch) -> None:
        """Pass the messages of a batch to the backend, all of them together, and set its outcomes."""
        batch.wall = self._clock.wall()
        for message in batch.take():
            if isinstance(message, BridgeError):
                batch.outcomes.append(message)
                continue
            destination = message.destination
            try:
                partitions = batch.partitions.get(destination)
                if partitions is None:
                    check_destination(destination)
                applied, size = self._judge(message, batch)
                if partitions is None:
                    partitions = self._destinations.known(destination)
                    if partitions is None:
                        self._pass_on(batch)
                        batch.partitions.clear()
                        partitions = await self._partitions(message, batch.client)
                        batch.wall = self._clock.wall()
                        self._check_in_flight(size, batch)  # again: others may have been sent meanwhile
                    batch.partitions[destination] = partitions
                self._add(batch, message, size, applied, partitions)
            except BridgeError as error:
                batch.outcomes.append(error)
        self._pass_on(batch)

    def until_stored(self, publish: Publish) -> Publish:
        """Return the step that waits until the backend has stored a batch or refused it, and sets the results."""

        async def stored(batch: Batch) -> None:
            await publish(batch)
            waiting = [each.future for each in batch.outcomes if isinstance(each, WaitingMessage)]
            if waiting:
                await self._waits.until_stored(waiting)
            batch.results = [self._result(each) for each in batch.outcomes]

        return stored

    def stored_before(self, message: Message, offset: int | None) -> Produced:
        """Return the result of a message that was stored before a restart. `offset`: None if it is delayed."""
        stored, applied = Stored(message.partition, offset), self._support.applied(message)
        host = message.store_host or self._options.store_host
        return Produced(message.message_id or "", message.store_timestamp or 0, host, stored, applied)

    def judge_prepared(self, message: Message, require: Sequence[Field], peer: str) -> tuple[Message, Applied, int]:
        """Judge a message of a transaction, and complete it except for what its commit sets.

        Returns also which fields apply, and the bytes that it counts in limits. Raises as a produce. If the destination
        is not known, comes before `find_destination`.
        """
        batch = Batch((), require, peer)
        batch.wall = self._clock.wall()
        check_destination(message.destination)
        applied, size = self._judge(message, batch)
        if partitions := self._destinations.known(message.destination):
            self._check_partition(message, partitions)
        return batch.complete_prepared(message), applied, size

    def knows(self, destination: str) -> bool:
        """Whether a destination is known to exist."""
        return self._destinations.known(destination) is not None

    async def find_destination(self, message: Message, client: str) -> None:
        """Create the destination of a message if it does not exist. Raises as a produce."""
        if partitions := await self._partitions(message, client):
            self._check_partition(message, partitions)

    def _check_partition(self, message: Message, partitions: int) -> None:
        """Raise `PartitionUnknown` if the message names a partition that its destination does not have."""
        if message.partition is not None:
            self._partitioner.choose(message, partitions)

    async def complete_prepared(self, messages: Sequence[Message], wall: int) -> list[Message | None]:
        """Complete the messages of a transaction that is committed now; None: the message has expired.

        Raises the errors of `DestinationRegistry.partitions`.
        """
        batch = Batch((), (), INTERNAL)
        batch.wall = wall
        counts: dict[str, int] = {}
        for each in messages:
            if each.destination not in counts:
                known = self._destinations.known(each.destination)
                counts[each.destination] = await self._partitions(each, INTERNAL) if known is None else known
        whole = [
            batch.complete(each, self._options.store_host, self._partitioner.choose(each, counts[each.destination]))
            for each in messages
        ]
        return [None if is_expired(each) else each for each in whole]

    def count_committed(self, messages: Sequence[Message | None], client: str) -> None:
        """Count the messages of a transaction of a client that is committed."""
        for message in messages:
            self._counters.produced += 1
            if message is None:
                self._counters.expired += 1
                continue
            self.counts[message.destination].stored += 1
            if is_delayed(message):
                self.delayed.add(client, message.destination, message.size, message.due)

    async def _partitions(self, message: Message, client: str) -> int:
        return await self._destinations.partitions(message.destination, client, message.partition)

    def _result(self, outcome: Outcome | None) -> Result:
        if isinstance(outcome, (Produced, BridgeError)):
            return outcome
        if not isinstance(outcome, WaitingMessage):
            raise outcome or AssertionError("a message was not passed to the backend")
        message_id, store_timestamp, applied, future, is_duplicate = outcome
        try:
            stored = stored_result(future, self._options.produce_timeout)
        except BridgeError as error:
            return error
        if is_duplicate:
            self._counters.duplicates += 1
        else:
            self._counters.produced += 1
        return Produced(message_id, store_timestamp, self._options.store_host, stored, applied, is_duplicate)

    def _judge(self, message: Message, batch: Batch) -> tuple[Applied, int]:
        """Raise what refuses a message to a valid destination. Comes first: publishing may create the destination.

        Returns which fields apply, and the bytes that the message counts in limits.
        """
        if message.message_id is not None or message.transaction_id is not None:
            check_ids(message)
        applied, size = self._support.applied(message), message.size
        if batch.require:
            self._support.check_required(batch.require, applied)
        if self._options.strict:
            for field in _REQUIRED:
                if getattr(message, field.attribute) is None:
                    raise HeaderMissing(f"x-oms-h-{field.name.lower()} is required in strict mode.")
        if message.properties:
            check_properties(message, self._property_refusal)
        if message.delay_time:
            wall = batch.wall
            born = wall if message.born_timestamp is None else message.born_timestamp
            if born + message.delay_time > wall + DELAY_MAX:
                raise HeaderInvalid(f"x-oms-h-delaytime: a message may be due at most {DELAY_MAX} ms from now.")
            self.delayed.check(batch.client, size, wall)
        self._check_in_flight(size, batch)
        if self._quota is not None:
            self._quota.take(message.destination, self._clock.mono())
        return applied, size

    def _add(self, batch: Batch, message: Message, size: int, applied: Applied, partitions: int) -> None:
        """Add a message that was judged to what is passed to the backend next."""
        partition = self._partitioner.choose(message, partitions)
        message = batch.complete(message, self._options.store_host, partition)
        if (message.expire_time or message.delay_time) and self._is_dropped(message, size, batch.client):
            batch.outcomes.append(self._dropped(message, applied))
            return
        batch.unsent.append(message)
        batch.unsent_facts.append((len(batch.outcomes), size, applied))
        batch.unsent_bytes += size
        batch.outcomes.append(None)

    def _pass_on(self, batch: Batch) -> None:
        """Pass the messages of a batch to the backend that are not there yet."""
        if not batch.unsent:
            return
        unsent, facts = batch.unsent, batch.unsent_facts
        batch.unsent, batch.unsent_facts, batch.unsent_bytes = [], [], 0
        for message, (index, size, applied), each in zip(unsent, facts, self._publish_many(unsent), strict=True):
            batch.outcomes[index] = self._outcome_of(message, size, applied, batch.client, each)

    def _publish_each(self, messages: Sequence[Message]) -> Sequence[Published]:
        return [self._adapter.publish(message) for message in messages]

    def _outcome_of(self, message: Message, size: int, applied: Applied, client: str, published: Published) -> Outcome:
        """Return the result of a message that was passed to the backend; until it is stored it counts as in flight."""
        message_id, store_timestamp = message.message_id or "", message.store_timestamp or 0
        if isinstance(published, Stored):
            self._counters.produced += 1
            self.counts[message.destination].stored += 1
            return Produced(message_id, store_timestamp, self._options.store_host, published, applied)
        if isinstance(published, asyncio.Future):
            if not published.done():
                self._count_in_flight(size, self.counts[message.destination], published)
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
        return Produced(message.message_id or "", store_timestamp, self._options.store_host, stored, applied)

    def _release_unstored(
        self, client: str, destination: str, size: int, due: int, future: asyncio.Future[Stored]
    ) -> None:
        if future.cancelled() or future.exception() is not None:
            self.delayed.remove(client, destination, size, due)

    def _check_in_flight(self, size: int, batch: Batch) -> None:
        """Raise if one more message of `size` bytes would be too many in flight, those of its batch included.

        The batch is sent before it is too much: what the backend stores at once is never in flight.
        """
        counters, options = self._counters, self._options
        messages = counters.in_flight + len(batch.unsent)
        in_bytes = counters.in_flight_bytes + batch.unsent_bytes
        if messages < options.in_flight and (not in_bytes or in_bytes + size <= options.in_flight_bytes):
            return  # one message always fits
        if batch.unsent:
            self._pass_on(batch)
            self._check_in_flight(size, batch)
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


def _result_of(future: asyncio.Future[Stored]) -> Stored | Exception:
    try:
        return future.result()
    except Exception as error:  # noqa: BLE001 - a result as well
        return error
