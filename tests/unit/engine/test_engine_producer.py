import asyncio
import gc
import time
from collections.abc import Sequence
from sys import getrefcount
from uuid import UUID

import pytest

from adapters.base import Delivery, Published, Stored, Support
from bridge.engine.batch import Batch
from bridge.engine.client_limits import Quota
from bridge.engine.clock import SystemClock
from bridge.engine.counters import Counters
from bridge.engine.dead_letters_and_deferrals import DeadLetterWriter
from bridge.engine.destination_names import NAME_MAX, SubscriptionKey, dead_letter_of
from bridge.engine.destination_registry import DestinationRegistry
from bridge.engine.entries_and_receipts import Entry
from bridge.engine.field_support import Applied
from bridge.engine.options import EngineOptions
from bridge.engine.partitioner import partition_of
from bridge.engine.produced import Produced
from bridge.engine.producer import DELAY_MAX, Producer
from bridge.errors import (
    BackendFull,
    BackendUnavailable,
    BodyInvalid,
    BodyTooLarge,
    BridgeError,
    DestinationInvalid,
    FieldUnsupported,
    HeaderInvalid,
    HeaderMissing,
    LimitReached,
    OutcomeUnknown,
    PartitionUnknown,
    QuotaExceeded,
    TooManyInFlight,
)
from bridge.message import FIELDS, LONG_MAX, Field, Message
from tests.calls import only
from tests.unit.engine.fakes import FakeAdapter, FakePartitionedAdapter
from tests.unit.engine.virtual import LoopClock, turns

PARENT = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


class ProducerBench:
    """A producer with its adapter, clock and counters at hand."""

    def __init__(self, adapter: FakeAdapter, clock: LoopClock, **options: object) -> None:
        self.adapter = adapter
        self.counters = Counters()
        self.options = EngineOptions("bridge:8080")._replace(**options)  # type: ignore[arg-type]
        destinations = DestinationRegistry(adapter, clock, self.options)
        self.producer = Producer(adapter, clock, self.options, self.counters, destinations)
        self.dead_letters = DeadLetterWriter(adapter, destinations, self.options.produce_timeout)

    async def produce(self, message: Message, require: str = "", peer: str = "10.0.0.7") -> Produced:
        required = [field for field in FIELDS if field.name.lower() in require.lower().split(", ")] if require else ()
        return only(await self.publish([message], required, peer))

    async def refused(self, *messages: Message, require: str = "") -> list[type[BridgeError]]:
        """Return the errors of messages, one by one, that are all refused."""
        errors = []
        for message in messages:
            with pytest.raises(BridgeError) as raised:
                await self.produce(message, require)
            errors.append(type(raised.value))
        return errors

    async def produce_all(self, *messages: Message | BridgeError) -> Sequence[Produced | BridgeError]:
        return await self.publish(messages, (), "10.0.0.7")

    async def publish(
        self, messages: Sequence[Message | BridgeError], require: Sequence[Field], peer: str
    ) -> Sequence[Produced | BridgeError]:
        batch = Batch(messages, require, peer)
        messages = ()
        await self.producer.until_stored(self.producer.send)(batch)
        return batch.results

    def all_landed(self) -> bool:
        return (self.counters.in_flight, self.counters.in_flight_bytes) == (0, 0)


def orders(**fields: object) -> Message:
    return Message("orders", b"body")._replace(**fields)  # type: ignore[arg-type]


async def test_what_the_client_left_out_is_filled_in(clock: LoopClock) -> None:
    bench = ProducerBench(FakeAdapter(), clock)
    produced = await bench.produce(orders())
    [message] = bench.adapter.published
    assert message.message_id is not None
    assert UUID(message.message_id).version == 7
    assert (message.born_timestamp, message.born_host) == (clock.wall(), "10.0.0.7")
    assert (message.store_timestamp, message.store_host) == (clock.wall(), "bridge:8080")
    assert produced == Produced(message.message_id, clock.wall(), "bridge:8080", Stored(None, 0), Applied(()))


async def test_what_the_client_set_is_kept(clock: LoopClock) -> None:
    given = orders(message_id="m", born_timestamp=5, born_host="h", trace_id="t", properties={"a": "b"})
    bench = ProducerBench(FakeAdapter(), clock)
    await bench.produce(given)
    [message] = bench.adapter.published
    assert message._replace(store_timestamp=None, store_host=None) == given


async def test_only_the_bridge_says_where_and_when_it_stored(clock: LoopClock) -> None:
    given = orders(store_timestamp=1, store_host="liar", delivery_count=7)
    bench = ProducerBench(FakeAdapter(), clock)
    await bench.produce(given)
    [message] = bench.adapter.published
    assert (message.store_timestamp, message.store_host) == (clock.wall(), "bridge:8080")
    assert message.delivery_count is None


@pytest.mark.parametrize("absent", ["message_id", "born_timestamp", "born_host"])
async def test_strict_mode_demands_what_the_binding_requires(clock: LoopClock, absent: str) -> None:
    bench = ProducerBench(FakeAdapter(), clock, strict=True)
    whole = orders(message_id="m", born_timestamp=5, born_host="h")
    await bench.produce(whole)
    with pytest.raises(HeaderMissing, match=absent.replace("_", "")):
        await bench.produce(whole._replace(**{absent: None}))  # type: ignore[arg-type]
    assert len(bench.adapter.published) == 1


@pytest.mark.parametrize("priority", [0, 11, 2**31 - 1])
async def test_a_priority_out_of_range_is_ignored_and_reported(clock: LoopClock, priority: int) -> None:
    bench = ProducerBench(FakeAdapter(), clock)
    produced = await bench.produce(orders(priority=priority))
    assert bench.adapter.published[0].priority is None
    assert produced.applied == {"priority": "ignored"}
    with pytest.raises(FieldUnsupported):
        await bench.produce(orders(priority=priority), "priority")


@pytest.mark.parametrize("priority", [1, 5, 10])
async def test_a_priority_in_range_is_kept(clock: LoopClock, priority: int) -> None:
    bench = ProducerBench(FakeAdapter(), clock)
    produced = await bench.produce(orders(priority=priority), "priority")
    assert (bench.adapter.published[0].priority, produced.applied) == (priority, {"priority": "native"})


async def test_each_field_that_was_set_is_reported(clock: LoopClock) -> None:
    adapter = FakeAdapter(delayTime=Support.EMULATED, transactionId=Support.UNSUPPORTED)
    produced = await ProducerBench(adapter, clock).produce(
        orders(delay_time=5, transaction_id="t", qos=1, traceparent=PARENT)
    )
    assert produced.applied == {"delayTime": "emulated", "transactionId": "ignored", "qos": "native"}


async def test_exactly_once_is_ignored_and_reported(clock: LoopClock) -> None:
    bench = ProducerBench(FakeAdapter(), clock)
    assert (await bench.produce(orders(qos=2))).applied == {"qos": "ignored"}
    with pytest.raises(FieldUnsupported):
        await bench.produce(orders(qos=2), "qos")
    assert len(bench.adapter.published) == 1


async def test_a_required_field_that_cannot_be_honoured_stores_nothing(clock: LoopClock) -> None:
    bench = ProducerBench(FakeAdapter(delayTime=Support.UNSUPPORTED), clock)
    for message in (orders(delay_time=5), orders()):
        with pytest.raises(FieldUnsupported):
            await bench.produce(message, "priority, delaytime")
    assert bench.adapter.published == []


async def test_an_invalid_destination_is_refused(subtests: pytest.Subtests, clock: LoopClock) -> None:
    cases: list[str] = ["", ".", "..", "a b", "ü", "x" * 250, "__internal", "amq.topic", "oms.queue_key"]
    for destination in cases:
        with subtests.test(destination=destination):
            bench = ProducerBench(FakeAdapter(), clock)
            with pytest.raises(DestinationInvalid):
                await bench.produce(Message(destination))
            assert bench.adapter.published == []


async def test_an_explicit_partition_wins(clock: LoopClock) -> None:
    produced = await ProducerBench(FakePartitionedAdapter(8), clock).produce(orders(partition=7, message_key="a"))
    assert produced.stored.partition == 7


async def test_an_unknown_partition_is_refused(clock: LoopClock) -> None:
    bench = ProducerBench(FakePartitionedAdapter(8), clock)
    with pytest.raises(PartitionUnknown):
        await bench.produce(orders(partition=8))
    assert bench.adapter.published == []


async def test_a_key_chooses_its_partition(clock: LoopClock) -> None:
    bench = ProducerBench(FakePartitionedAdapter(8), clock)
    for key in ("", "a", "customer-17", "ü"):
        assert (await bench.produce(orders(message_key=key))).stored.partition == partition_of(key, 8)


async def test_messages_without_a_key_spread_over_all_partitions_evenly(clock: LoopClock) -> None:
    bench = ProducerBench(FakePartitionedAdapter(8), clock)
    used = [(await bench.produce(orders())).stored.partition for _ in range(80)]
    assert used == list(range(8)) * 10, "in turns, from the first one on"


async def test_two_destinations_written_in_turns_each_use_all_partitions(clock: LoopClock) -> None:
    bench = ProducerBench(FakePartitionedAdapter(2), clock)
    used = {(name, (await bench.produce(Message(name))).stored.partition) for _ in range(4) for name in ("a", "b")}
    assert used == {("a", 0), ("a", 1), ("b", 0), ("b", 1)}


async def test_without_partitions_nothing_is_chosen(clock: LoopClock) -> None:
    adapter = FakeAdapter(partition=Support.UNSUPPORTED)
    produced = await ProducerBench(adapter, clock).produce(orders(partition=3))
    assert (adapter.published[0].partition, produced.applied) == (3, {"partition": "ignored"})


@pytest.mark.parametrize(("expires", "delay"), [(-1, None), (0, None), (500, 501), (500, 500)])
async def test_a_message_that_expires_before_it_is_due_is_accepted_dropped_and_counted(
    clock: LoopClock, expires: int, delay: int | None
) -> None:
    bench = ProducerBench(FakePartitionedAdapter(), clock)
    born = clock.wall() - 1000 if delay is None else clock.wall()
    produced = await bench.produce(
        orders(born_timestamp=born, expire_time=clock.wall() + expires, delay_time=delay, partition=3)
    )
    assert produced.stored == Stored(3, None)
    assert bench.adapter.published == []
    assert bench.counters.expired == 1


async def test_expire_time_up_to_born_timestamp_means_never(clock: LoopClock) -> None:
    bench = ProducerBench(FakeAdapter(), clock)
    await bench.produce(orders(born_timestamp=clock.wall() - 1000, expire_time=clock.wall() - 1000))
    await bench.produce(orders(expire_time=0, delay_time=1000))
    assert len(bench.adapter.published) == 2


async def test_a_delay_lasts_up_to_a_year_from_now(clock: LoopClock) -> None:
    bench = ProducerBench(FakeAdapter(), clock)
    await bench.produce(orders(delay_time=DELAY_MAX))
    await bench.produce(orders(delay_time=DELAY_MAX + 1000, born_timestamp=clock.wall() - 1000))
    for wrong in (orders(delay_time=DELAY_MAX + 1), orders(delay_time=1, born_timestamp=LONG_MAX)):
        with pytest.raises(HeaderInvalid, match="delaytime"):
            await bench.produce(wrong)
    assert len(bench.adapter.published) == 2


async def test_a_traceparent_names_the_trace_where_nobody_did(clock: LoopClock) -> None:
    bench = ProducerBench(FakeAdapter(), clock)
    await bench.produce(orders(traceparent=PARENT))
    await bench.produce(orders(traceparent=PARENT, trace_id="mine"))
    assert [message.trace_id for message in bench.adapter.published] == ["a" * 32, "mine"]


async def test_messages_in_flight_are_limited_and_counted_until_they_land(clock: LoopClock) -> None:
    bench = ProducerBench(FakeAdapter(), clock, in_flight=2)
    bench.adapter.slow = True
    pending = [asyncio.ensure_future(bench.produce(orders(priority=5))) for _ in range(2)]
    await turns()
    assert (bench.counters.in_flight, bench.counters.in_flight_bytes) == (2, 2 * orders().size)
    with pytest.raises(TooManyInFlight) as refused:
        await bench.produce(orders())
    assert refused.value.retry_safe
    bench.adapter.pending[0].set_result(Stored(None, 0))
    bench.adapter.pending[1].set_exception(BackendUnavailable("away"))
    produced = await pending[0]
    assert (produced.stored.offset, produced.applied) == (0, {"priority": "native"})
    with pytest.raises(BackendUnavailable):
        await pending[1]
    assert bench.all_landed()
    assert len(bench.adapter.published) == 2
    assert bench.counters.produced == 1
    assert bench.producer.counts["orders"].stored == 1


async def test_bytes_in_flight_are_limited(clock: LoopClock) -> None:
    limit = orders(body=b"x" * 6).size + orders(body=b"x" * 4).size
    bench = ProducerBench(FakeAdapter(), clock, in_flight_bytes=limit)
    bench.adapter.slow = True
    first = asyncio.ensure_future(bench.produce(orders(body=b"x" * 6)))
    await turns()
    with pytest.raises(TooManyInFlight):
        await bench.produce(orders(body=b"x" * 5))
    second = asyncio.ensure_future(bench.produce(orders(body=b"x" * 4)))
    await turns()
    for future in bench.adapter.pending:
        future.set_result(Stored(None, 0))
    await asyncio.gather(first, second)
    assert bench.all_landed()


async def test_headers_count_as_bytes_in_flight_and_one_message_always_fits(clock: LoopClock) -> None:
    bench = ProducerBench(FakeAdapter(), clock, in_flight_bytes=1000)
    bench.adapter.slow = True
    large = asyncio.ensure_future(bench.produce(orders(properties={"p": "x" * 1000})))
    await turns()
    with pytest.raises(TooManyInFlight):
        await bench.produce(orders())
    bench.adapter.pending[0].set_result(Stored(None, 0))
    await large
    assert bench.all_landed()


async def test_a_message_stored_at_once_is_never_in_flight(clock: LoopClock) -> None:
    bench = ProducerBench(FakeAdapter(), clock, in_flight=1)
    for _ in range(3):
        await bench.produce(orders())
    assert bench.all_landed()
    assert bench.counters.produced == 3


async def test_a_failure_at_once_is_raised(clock: LoopClock) -> None:
    bench = ProducerBench(FakeAdapter(), clock)
    bench.adapter.publish_failures = [BackendUnavailable("away")]
    with pytest.raises(BackendUnavailable):
        await bench.produce(orders())
    assert bench.all_landed()
    assert bench.counters.produced == 0


async def test_a_backend_that_does_not_answer_leaves_the_outcome_unknown_and_the_message_there(
    clock: LoopClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench = ProducerBench(FakeAdapter(), clock, produce_timeout=2000)
    bench.adapter.slow = True
    begun = clock.mono()
    with pytest.raises(OutcomeUnknown):
        await bench.produce(orders())
    assert clock.mono() - begun == 2000
    (future,) = bench.adapter.pending
    assert not future.cancelled()
    assert bench.counters.in_flight == 1
    future.set_exception(BackendUnavailable("late"))
    await turns()
    assert bench.all_landed()
    bench.adapter.pending.clear()
    del future
    gc.collect()
    assert caplog.records == []


async def test_a_buffering_adapter_waits_as_long_as_the_engine(clock: LoopClock) -> None:
    class BufferingAdapter(FakeAdapter):
        unsent_timeout = 0

        def publish(self, message: Message) -> asyncio.Future[Stored]:
            future = super().publish(message)
            loop = asyncio.get_running_loop()
            loop.call_later(self.unsent_timeout / 1000, future.set_exception, BackendUnavailable("not sent"))
            return future

    adapter = BufferingAdapter()
    bench = ProducerBench(adapter, clock, produce_timeout=2000)
    adapter.slow = True
    begun = clock.mono()
    with pytest.raises(BackendUnavailable, match="not sent"):
        await bench.produce(orders())
    assert clock.mono() - begun == 2000
    assert bench.all_landed()


async def test_a_client_that_leaves_does_not_withdraw_its_message(
    clock: LoopClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench = ProducerBench(FakeAdapter(), clock)
    bench.adapter.slow = True
    task = asyncio.ensure_future(bench.produce(orders()))
    await turns()
    task.cancel()
    await turns()
    del task
    (future,) = bench.adapter.pending
    assert not future.cancelled()
    future.set_exception(BackendUnavailable("late"))
    await turns()
    assert bench.all_landed()
    bench.adapter.pending.clear()
    del future
    gc.collect()
    assert caplog.records == []


async def test_a_batch_keeps_its_order_and_judges_each_message_on_its_own(clock: LoopClock) -> None:
    bench = ProducerBench(FakePartitionedAdapter(2), clock)
    bench.adapter.publish_failures = [None, BackendUnavailable("away"), None]
    results = await bench.produce_all(
        orders(message_id="1"),
        BodyInvalid("was no message"),
        orders(message_id="2", partition=9),
        orders(message_id="3"),
        orders(message_id="4"),
    )
    assert [type(r).__name__ for r in results] == [
        *("Produced", "BodyInvalid", "PartitionUnknown", "BackendUnavailable", "Produced")
    ]
    assert [m.message_id for m in bench.adapter.published] == ["1", "3", "4"]
    assert bench.counters.produced == 2


async def test_a_batch_travels_together_and_times_out_as_one(clock: LoopClock) -> None:
    bench = ProducerBench(FakeAdapter(), clock, produce_timeout=2000)
    bench.adapter.slow = True
    begun = clock.mono()
    batch = asyncio.ensure_future(bench.produce_all(*[orders()] * 50))
    await turns(100)
    assert len(bench.adapter.pending) == 50
    bench.adapter.pending[7].set_result(Stored(None, 7))
    results = await batch
    assert clock.mono() - begun == 2000
    assert [isinstance(r, OutcomeUnknown) for r in results] == [i != 7 for i in range(50)]


async def test_a_batch_that_waits_holds_no_bodies(clock: LoopClock) -> None:
    bench = ProducerBench(FakeAdapter(), clock)
    bench.adapter.slow = True
    body = bytes(5)
    before = getrefcount(body)
    batch = asyncio.ensure_future(bench.publish([orders(body=body)], (), ""))
    await turns()
    assert getrefcount(body) == before + 1, "the adapter holds it"
    bench.adapter.published.clear()
    assert getrefcount(body) == before
    bench.adapter.pending[0].set_result(Stored(None, 0))
    assert [type(produced) for produced in await batch] == [Produced]


class PublishingMany(FakePartitionedAdapter):
    """Stores at once what is not sent to `slow`, and refuses what is sent to `full`."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[str | None]] = []
        self.known = {"orders", "slow", "full"}

    def publish_many(self, messages: Sequence[Message]) -> Sequence[Published]:
        self.calls.append([message.message_id for message in messages])
        return [self._publish(message) for message in messages]

    def _publish(self, message: Message) -> Published:
        self.slow = message.destination == "slow"
        if message.destination == "full":
            return BackendFull("full")
        future = self.publish(message)
        return future if self.slow else future.result()


async def test_a_batch_is_one_call_of_a_backend_that_publishes_many(clock: LoopClock) -> None:
    adapter = PublishingMany()
    bench = ProducerBench(adapter, clock)
    sent = [("orders", "1"), ("full", "2"), ("slow", "3"), ("orders", "4"), ("orders.dlq", "5")]
    batch = asyncio.ensure_future(
        bench.produce_all(*[Message(name, b"body", message_id=identity) for name, identity in sent])
    )
    await turns()
    assert adapter.calls == [["1", "2", "3", "4"]]
    assert (bench.counters.in_flight, bench.counters.in_flight_bytes) == (1, len("slow3body"))
    bench.adapter.pending[0].set_result(Stored(None, 7))
    results = await batch
    assert [getattr(result, "message_id", type(result)) for result in results] == [
        *("1", BackendFull, "3", "4", DestinationInvalid)
    ]
    assert bench.all_landed()
    assert bench.counters.produced == 3


async def test_a_batch_is_sent_in_pieces_that_may_be_in_flight(clock: LoopClock) -> None:
    adapter = PublishingMany()
    bench = ProducerBench(adapter, clock, in_flight=2, in_flight_bytes=2 * len("orders0body"))
    stored = [orders(message_id=str(number)) for number in range(5)]
    assert [type(result) for result in await bench.produce_all(*stored)] == [Produced] * 5
    assert adapter.calls == [["0", "1"], ["2", "3"], ["4"]]
    slow = [Message("slow", b"body", message_id=str(number)) for number in range(5)]
    batch = asyncio.ensure_future(bench.produce_all(*slow))
    await turns()
    assert adapter.calls[3:] == [["0", "1"]]
    for future in bench.adapter.pending:
        future.set_result(Stored(None, 0))
    assert [type(result) for result in await batch] == [*[Produced] * 2, *[TooManyInFlight] * 3]


async def test_a_batch_for_an_unknown_destination_keeps_its_order(clock: LoopClock) -> None:
    adapter = PublishingMany()
    adapter.existing = {"orders", "full", "slow"}
    bench = ProducerBench(adapter, clock)
    sent = [("orders", "1"), ("new", "2"), ("orders", "3"), ("new", "4")]
    await bench.produce_all(*[Message(name, b"", message_id=identity) for name, identity in sent])
    assert adapter.calls == [["1"], ["2", "3", "4"]], "the first one does not wait for the unknown destination"
    assert adapter.existing == {"orders", "full", "slow", "new"}


async def test_an_empty_batch_has_no_results(clock: LoopClock) -> None:
    assert await ProducerBench(FakeAdapter(), clock).produce_all() == []


async def test_a_dead_letter_goes_past_every_limit_for_clients(clock: LoopClock) -> None:
    bench = ProducerBench(FakePartitionedAdapter(), clock, in_flight=0, quota=1, strict=True)
    for _ in range(3):
        entry = Entry(Delivery(orders(message_key="a", born_timestamp=None), 3, 0, 16), 0)
        await bench.dead_letters.write(SubscriptionKey("orders", "app"), entry)
    assert [m.partition for m in bench.adapter.published] == [partition_of("a", 8)] * 3


async def test_a_backend_refuses_names_of_properties_to_clients_only(clock: LoopClock) -> None:
    adapter = FakePartitionedAdapter()
    adapter.existing = set()
    adapter.features = adapter.features._replace(
        property_refusal=lambda name: f"the property {name} is reserved." if name == "x-death" else None
    )
    bench = ProducerBench(adapter, clock)
    given = orders(properties={"region": "eu", "x-death": "1"})
    with pytest.raises(HeaderInvalid, match=r"^orders: the property x-death is reserved\.$"):
        await bench.produce(given)
    assert (adapter.existing, adapter.published) == (set(), [])
    await bench.dead_letters.write(SubscriptionKey("orders", "app"), Entry(Delivery(given, 3, 0, 16), 0))
    [dead] = adapter.published
    assert dead.properties.items() > given.properties.items()


async def test_a_message_that_is_refused_creates_nothing(clock: LoopClock) -> None:
    adapter = FakePartitionedAdapter(transactionId=Support.UNSUPPORTED)
    adapter.existing = set()
    bench = ProducerBench(adapter, clock, quota=1)
    late = orders(delay_time=DELAY_MAX + 1)
    assert await bench.refused(late, orders(partition=8), orders(destination="__a")) == [
        *(HeaderInvalid, PartitionUnknown, DestinationInvalid)
    ]
    assert await bench.refused(orders(transaction_id="t"), require="transactionId") == [FieldUnsupported]
    assert await bench.refused(orders()) == [QuotaExceeded]  # the message for an unknown partition counted
    assert await ProducerBench(adapter, clock, in_flight=0).refused(orders()) == [TooManyInFlight]
    strict = ProducerBench(adapter, clock, strict=True)
    assert await strict.refused(orders(born_timestamp=None)) == [HeaderMissing]
    assert (adapter.existing, adapter.published) == (set(), [])
    await asyncio.sleep(1)
    await bench.produce(orders(partition=7, body=b""))
    assert adapter.existing == {"orders"}


@pytest.mark.parametrize("name", ["oms-dead-letter-reason", "oms-dead-letter-"])
async def test_only_the_bridge_says_why_a_message_is_a_dead_letter(clock: LoopClock, name: str) -> None:
    adapters = FakePartitionedAdapter(), FakePartitionedAdapter()
    adapters[1].features = adapters[1].features._replace(property_refusal=lambda _: None)
    for adapter in adapters:
        bench = ProducerBench(adapter, clock)
        forged = orders(properties={"colour": "red", name: "x"})
        with pytest.raises(HeaderInvalid, match="orders: only the bridge sets properties that begin with oms-dead-let"):
            await bench.produce(forged)
        with pytest.raises(HeaderInvalid):
            bench.producer.judge_prepared(forged, (), "")
        refused, stored = await bench.produce_all(forged, orders(properties={"oms-dead": "1"}))
        assert isinstance(refused, HeaderInvalid)
        assert isinstance(stored, Produced)
        assert [message.properties for message in adapter.published] == [{"oms-dead": "1"}]


async def test_only_the_bridge_writes_dead_letters(clock: LoopClock) -> None:
    adapter = FakePartitionedAdapter()
    adapter.existing = {"orders"}
    bench = ProducerBench(adapter, clock, auto_create=False)
    long = dead_letter_of("a" * NAME_MAX)
    assert await bench.refused(orders(destination="orders.dlq"), orders(destination=long)) == [DestinationInvalid] * 2
    forged = {"oms-dead-letter-expiretime": "1", "oms-dead-letter-source": "bank", "colour": "red"}
    entry = Entry(Delivery(orders(properties=forged), 3, 0, 16), 0)
    for failures in ([], [BodyTooLarge("with its reason")]):
        adapter.publish_failures = list(failures)
        await bench.dead_letters.write(SubscriptionKey("orders", "app"), entry)
    first, _, without_reason = adapter.published
    assert (first.properties["oms-dead-letter-source"], first.properties["colour"]) == ("orders", "red")
    assert "oms-dead-letter-expiretime" not in first.properties
    assert without_reason.properties == {"colour": "red"}
    assert adapter.existing == {"orders", "orders.dlq"}, "auto_create is about clients"


async def test_one_client_does_not_use_up_the_delayed_messages_of_all(clock: LoopClock) -> None:
    bench = ProducerBench(FakePartitionedAdapter(), clock, delayed=4, client_share=50)

    async def delayed(peer: str, delay: int = 10_000) -> None:
        await bench.produce(orders(delay_time=delay), peer=peer)

    for _ in range(2):
        await delayed("10.0.0.1:5")
    with pytest.raises(LimitReached, match=r"10\.0\.0\.1 .* limits\.delayed"):
        await delayed("10.0.0.1:6")
    await bench.produce(orders(), peer="10.0.0.1:7")
    bench.adapter.publish_failures = [BackendFull("full")]
    with pytest.raises(BackendFull):
        await delayed("10.0.0.2:5")
    await asyncio.sleep(0)
    for _ in range(2):
        await delayed("10.0.0.2:5", 60_000)
    with pytest.raises(BackendFull, match="All clients"):
        await delayed("10.0.0.3:5")
    await asyncio.sleep(11)
    await delayed("10.0.0.1:5")
    with pytest.raises(LimitReached):
        await delayed("10.0.0.2:5")


async def test_one_client_does_not_use_up_the_bytes_of_delayed_messages(clock: LoopClock) -> None:
    bench = ProducerBench(FakePartitionedAdapter(), clock, delayed_bytes=400, client_share=50)

    async def delayed(peer: str, size: int, delay: int = 10_000) -> None:
        await bench.produce(Message("orders", bytes(size - len("orders")), delay_time=delay), peer=peer)

    await delayed("10.0.0.1:5", 150)
    bench.adapter.publish_failures = [BackendFull("full")]
    with pytest.raises(BackendFull, match="full"):
        await delayed("10.0.0.1:5", 50)
    await asyncio.sleep(0)
    await delayed("10.0.0.1:5", 50)
    with pytest.raises(LimitReached, match=r"10\.0\.0\.1 may have 200 bytes .* limits\.delayed_bytes"):
        await delayed("10.0.0.1:5", 6)
    await delayed("10.0.0.2:5", 200, 60_000)
    with pytest.raises(BackendFull, match="400 bytes of delayed messages"):
        await delayed("10.0.0.3:5", 6)
    await asyncio.sleep(11)
    await delayed("10.0.0.1:5", 200)


async def test_a_quota_refuses_what_is_too_much(clock: LoopClock) -> None:
    bench = ProducerBench(FakeAdapter(), clock, quota=2)
    for _ in range(2):
        await bench.produce(orders())
    with pytest.raises(QuotaExceeded) as refused:
        await bench.produce(orders())
    assert refused.value.retry_after == 1
    await bench.produce(Message("payments"))
    await asyncio.sleep(0.5)
    await bench.produce(orders())
    assert len(bench.adapter.published) == 4


def test_a_quota_lets_its_rate_through_each_second() -> None:
    quota = Quota(10)
    passed = 0
    for mono in range(0, 10_000, 7):
        try:
            quota.take("orders", mono)
        except QuotaExceeded:
            continue
        passed += 1
    assert 10 + 99 <= passed <= 10 + 100


def test_a_quota_counts_whole_messages() -> None:
    quota = Quota(1)
    quota.take("orders", 0)
    for mono in (1, 999):
        with pytest.raises(QuotaExceeded):
            quota.take("orders", mono)
    quota.take("orders", 1000)


def test_a_quota_saves_no_more_than_one_second() -> None:
    quota = Quota(3)
    quota.take("orders", 0)
    for _ in range(3):
        quota.take("orders", 10**9)
    with pytest.raises(QuotaExceeded):
        quota.take("orders", 10**9)


def test_a_quota_forgets_destinations_that_are_full_again() -> None:
    quota = Quota(2)
    for number in range(20_000):
        quota.take(f"d{number}", number)
    assert len(quota._buckets) == 1000, "those of the last second"
    quota.take("d19999", 19_999)
    with pytest.raises(QuotaExceeded):
        quota.take("d19999", 19_999)
    quota.take("d19001", 20_999)
    assert "d19002" not in quota._buckets
    quota.take("d19001", 20_999)
    with pytest.raises(QuotaExceeded, match="d19001 takes at most 2 messages a second"):
        quota.take("d19001", 20_999)


def test_a_message_forgets_two_destinations_at_most_however_many_there_are() -> None:
    """With more than 4,096 destinations in a second, each new one had the whole table built again."""
    quota = Quota(1)
    buckets = quota._buckets
    for number in range(50_000):
        quota.take(f"d{number}", 0)
    assert len(buckets) == 50_000, "all were used within this second"
    quota.take("d0", 5000)
    assert len(buckets) == 49_998
    for number in range(24_999):
        quota.take(f"new{number}", 5000)
    assert quota._buckets is buckets
    assert buckets.keys() == {"d0", *(f"new{number}" for number in range(24_999))}
    with pytest.raises(QuotaExceeded):
        quota.take("d0", 5999)


def test_the_system_clock_counts_whole_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_123_999_999)
    monkeypatch.setattr(time, "monotonic_ns", lambda: 5_999_999)
    clock = SystemClock()
    assert (clock.wall(), clock.mono()) == (1_700_000_000_123, 5)
