import asyncio
import gc
from uuid import UUID

import pytest

from adapters.base import Stored, Support
from bridge.engine.clock import SystemClock
from bridge.engine.counters import Counters
from bridge.engine.partition import partition_of
from bridge.engine.policy import Policy
from bridge.engine.producer import DELAY_MAX, Produced, Producer, read_require
from bridge.engine.quota import Quota
from bridge.errors import (
    BackendUnavailable,
    BodyInvalid,
    BridgeError,
    DestinationInvalid,
    FieldUnsupported,
    HeaderInvalid,
    HeaderMissing,
    OutcomeUnknown,
    PartitionUnknown,
    QuotaExceeded,
    TooManyInFlight,
)
from bridge.message import FIELDS, LONG_MAX, Message
from tests.unit.engine.fakes import FakeAdapter, FakePartitionedAdapter
from tests.unit.engine.virtual import LoopClock, turns

PARENT = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


class Bench:
    """A producer with its adapter, clock and counters at hand."""

    def __init__(self, adapter: FakeAdapter, clock: LoopClock, **policy: object) -> None:
        self.adapter = adapter
        self.counters = Counters()
        self.policy = Policy("bridge:8080")._replace(**policy)  # type: ignore[arg-type]
        self.producer = Producer(adapter, clock, self.policy, self.counters)

    async def produce(self, message: Message, require: str = "") -> Produced:
        return await self.producer.produce(message, read_require(require), "10.0.0.7")

    async def produce_all(self, *messages: Message | BridgeError) -> list[Produced | BridgeError]:
        return await self.producer.produce_all(messages, (), "10.0.0.7")

    def all_landed(self) -> bool:
        return (self.counters.in_flight, self.counters.in_flight_bytes) == (0, 0)


def orders(**fields: object) -> Message:
    return Message("orders", b"body")._replace(**fields)  # type: ignore[arg-type]


async def test_what_the_client_left_out_is_filled_in(clock: LoopClock) -> None:
    bench = Bench(FakeAdapter(), clock)
    message = (await bench.produce(orders())).message
    assert message.message_id is not None
    assert UUID(message.message_id).version == 7
    assert (message.born_timestamp, message.born_host) == (clock.wall(), "10.0.0.7")
    assert (message.store_timestamp, message.store_host) == (clock.wall(), "bridge:8080")
    assert bench.adapter.published == [message]


async def test_what_the_client_set_is_kept(clock: LoopClock) -> None:
    given = orders(message_id="m", born_timestamp=5, born_host="h", trace_id="t", properties={"a": "b"})
    message = (await Bench(FakeAdapter(), clock).produce(given)).message
    assert message._replace(store_timestamp=None, store_host=None) == given


async def test_only_the_bridge_says_where_and_when_it_stored(clock: LoopClock) -> None:
    given = orders(store_timestamp=1, store_host="liar", delivery_count=7)
    message = (await Bench(FakeAdapter(), clock).produce(given)).message
    assert (message.store_timestamp, message.store_host) == (clock.wall(), "bridge:8080")
    assert message.delivery_count is None


@pytest.mark.parametrize("absent", ["message_id", "born_timestamp", "born_host"])
async def test_strict_mode_demands_what_the_binding_requires(clock: LoopClock, absent: str) -> None:
    bench = Bench(FakeAdapter(), clock, strict=True)
    whole = orders(message_id="m", born_timestamp=5, born_host="h")
    await bench.produce(whole)
    with pytest.raises(HeaderMissing, match=absent.replace("_", "")):
        await bench.produce(whole._replace(**{absent: None}))  # type: ignore[arg-type]
    assert len(bench.adapter.published) == 1


@pytest.mark.parametrize("priority", [0, 11, 2**31 - 1])
async def test_a_priority_out_of_range_is_ignored_and_reported(clock: LoopClock, priority: int) -> None:
    bench = Bench(FakeAdapter(), clock)
    produced = await bench.produce(orders(priority=priority))
    assert produced.message.priority is None
    assert produced.applied == {"priority": "ignored"}
    with pytest.raises(FieldUnsupported):
        await bench.produce(orders(priority=priority), "priority")


@pytest.mark.parametrize("priority", [1, 5, 10])
async def test_a_priority_in_range_is_kept(clock: LoopClock, priority: int) -> None:
    produced = await Bench(FakeAdapter(), clock).produce(orders(priority=priority), "priority")
    assert (produced.message.priority, produced.applied) == (priority, {"priority": "native"})


async def test_what_became_of_each_field_is_said_for_those_that_came(clock: LoopClock) -> None:
    adapter = FakeAdapter(delayTime=Support.EMULATED, transactionId=Support.UNSUPPORTED)
    produced = await Bench(adapter, clock).produce(orders(delay_time=5, transaction_id="t", qos=1, traceparent=PARENT))
    assert produced.applied == {"delayTime": "emulated", "transactionId": "ignored", "qos": "native"}


async def test_exactly_once_is_what_nobody_promises(clock: LoopClock) -> None:
    bench = Bench(FakeAdapter(), clock)
    assert (await bench.produce(orders(qos=2))).applied == {"qos": "ignored"}
    with pytest.raises(FieldUnsupported):
        await bench.produce(orders(qos=2), "qos")
    assert len(bench.adapter.published) == 1


async def test_a_required_field_that_cannot_be_honoured_stores_nothing(clock: LoopClock) -> None:
    bench = Bench(FakeAdapter(delayTime=Support.UNSUPPORTED), clock)
    for message in (orders(delay_time=5), orders()):
        with pytest.raises(FieldUnsupported):
            await bench.produce(message, "priority, delaytime")
    assert bench.adapter.published == []


def test_require_names_fields_that_ask_for_something() -> None:
    assert [f.name for f in read_require("delayTime, PRIORITY")] == ["delayTime", "priority"]
    assert read_require(None) == read_require("") == ()
    assert len(read_require(",".join(f.name for f in FIELDS if f.asks))) == 11
    for wrong in ("speed", "delayTime,", ",", "destination", "ü"):
        with pytest.raises(HeaderInvalid):
            read_require(wrong)


@pytest.mark.parametrize("destination", ["", ".", "..", "a b", "ü", "x" * 250, "__internal", "amq.topic", "oms.lane"])
async def test_a_destination_that_no_backend_could_hold_is_refused(clock: LoopClock, destination: str) -> None:
    bench = Bench(FakeAdapter(), clock)
    with pytest.raises(DestinationInvalid):
        await bench.produce(Message(destination))
    assert bench.adapter.published == []


async def test_an_explicit_partition_wins(clock: LoopClock) -> None:
    produced = await Bench(FakePartitionedAdapter(8), clock).produce(orders(partition=7, message_key="a"))
    assert produced.stored.partition == 7


async def test_an_unknown_partition_is_refused(clock: LoopClock) -> None:
    bench = Bench(FakePartitionedAdapter(8), clock)
    with pytest.raises(PartitionUnknown):
        await bench.produce(orders(partition=8))
    assert bench.adapter.published == []


async def test_a_key_chooses_its_partition(clock: LoopClock) -> None:
    bench = Bench(FakePartitionedAdapter(8), clock)
    for key in ("", "a", "customer-17", "ü"):
        assert (await bench.produce(orders(message_key=key))).stored.partition == partition_of(key, 8)


async def test_messages_without_a_key_spread_over_all_partitions_evenly(clock: LoopClock) -> None:
    bench = Bench(FakePartitionedAdapter(8), clock)
    used = [(await bench.produce(orders())).stored.partition for _ in range(80)]
    assert sorted(p for p in used if p is not None) == sorted(list(range(8)) * 10)


async def test_two_destinations_written_in_turns_each_use_all_partitions(clock: LoopClock) -> None:
    bench = Bench(FakePartitionedAdapter(2), clock)
    used = {(name, (await bench.produce(Message(name))).stored.partition) for _ in range(4) for name in ("a", "b")}
    assert used == {("a", 0), ("a", 1), ("b", 0), ("b", 1)}


async def test_without_partitions_nothing_is_chosen(clock: LoopClock) -> None:
    adapter = FakeAdapter(partition=Support.UNSUPPORTED)
    produced = await Bench(adapter, clock).produce(orders(partition=3))
    assert (produced.message.partition, produced.applied) == (3, {"partition": "ignored"})


@pytest.mark.parametrize(("expires", "delay"), [(-1, None), (0, None), (500, 501), (500, 500)])
async def test_a_message_that_expires_before_it_is_due_is_accepted_dropped_and_counted(
    clock: LoopClock, expires: int, delay: int | None
) -> None:
    bench = Bench(FakePartitionedAdapter(), clock)
    born = clock.wall() - 1000 if delay is None else clock.wall()
    produced = await bench.produce(
        orders(born_timestamp=born, expire_time=clock.wall() + expires, delay_time=delay, partition=3)
    )
    assert produced.stored == Stored(3, None)
    assert bench.adapter.published == []
    assert bench.counters.expired == 1


async def test_expire_time_up_to_born_timestamp_means_never(clock: LoopClock) -> None:
    bench = Bench(FakeAdapter(), clock)
    await bench.produce(orders(born_timestamp=clock.wall() - 1000, expire_time=clock.wall() - 1000))
    await bench.produce(orders(expire_time=0, delay_time=1000))
    assert len(bench.adapter.published) == 2


async def test_a_delay_lasts_up_to_a_year_from_now(clock: LoopClock) -> None:
    bench = Bench(FakeAdapter(), clock)
    await bench.produce(orders(delay_time=DELAY_MAX))
    await bench.produce(orders(delay_time=DELAY_MAX + 1000, born_timestamp=clock.wall() - 1000))
    for wrong in (orders(delay_time=DELAY_MAX + 1), orders(delay_time=1, born_timestamp=LONG_MAX)):
        with pytest.raises(HeaderInvalid, match="delaytime"):
            await bench.produce(wrong)
    assert len(bench.adapter.published) == 2


async def test_a_traceparent_names_the_trace_where_nobody_did(clock: LoopClock) -> None:
    bench = Bench(FakeAdapter(), clock)
    assert (await bench.produce(orders(traceparent=PARENT))).message.trace_id == "a" * 32
    assert (await bench.produce(orders(traceparent=PARENT, trace_id="mine"))).message.trace_id == "mine"


async def test_messages_in_flight_are_limited_and_counted_until_they_land(clock: LoopClock) -> None:
    bench = Bench(FakeAdapter(), clock, in_flight=2)
    bench.adapter.slow = True
    pending = [asyncio.ensure_future(bench.produce(orders())) for _ in range(2)]
    await turns()
    assert (bench.counters.in_flight, bench.counters.in_flight_bytes) == (2, 8)
    with pytest.raises(TooManyInFlight) as refused:
        await bench.produce(orders())
    assert refused.value.retry_safe
    bench.adapter.pending[0].set_result(Stored(None, 0))
    bench.adapter.pending[1].set_exception(BackendUnavailable("gone"))
    assert (await pending[0]).stored.offset == 0
    with pytest.raises(BackendUnavailable):
        await pending[1]
    assert bench.all_landed()
    assert len(bench.adapter.published) == 2
    assert bench.counters.produced == 1


async def test_bytes_in_flight_are_limited(clock: LoopClock) -> None:
    bench = Bench(FakeAdapter(), clock, in_flight_bytes=10)
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


async def test_a_message_stored_at_once_is_never_in_flight(clock: LoopClock) -> None:
    bench = Bench(FakeAdapter(), clock, in_flight=1)
    for _ in range(3):
        await bench.produce(orders())
    assert bench.all_landed()
    assert bench.counters.produced == 3


async def test_a_failure_at_once_is_raised(clock: LoopClock) -> None:
    bench = Bench(FakeAdapter(), clock)
    bench.adapter.publish_failures = [BackendUnavailable("gone")]
    with pytest.raises(BackendUnavailable):
        await bench.produce(orders())
    assert bench.all_landed()
    assert bench.counters.produced == 0


async def test_a_backend_that_does_not_answer_leaves_the_outcome_unknown_and_the_message_there(
    clock: LoopClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(FakeAdapter(), clock, produce_timeout=2000)
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


async def test_a_client_that_leaves_does_not_withdraw_its_message(
    clock: LoopClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(FakeAdapter(), clock)
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
    bench = Bench(FakePartitionedAdapter(2), clock)
    bench.adapter.publish_failures = [None, BackendUnavailable("gone"), None]
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
    bench = Bench(FakeAdapter(), clock, produce_timeout=2000)
    bench.adapter.slow = True
    begun = clock.mono()
    batch = asyncio.ensure_future(bench.produce_all(*[orders()] * 50))
    await turns(100)
    assert len(bench.adapter.pending) == 50
    bench.adapter.pending[7].set_result(Stored(None, 7))
    results = await batch
    assert clock.mono() - begun == 2000
    assert [isinstance(r, OutcomeUnknown) for r in results] == [i != 7 for i in range(50)]


async def test_an_empty_batch_has_no_results(clock: LoopClock) -> None:
    assert await Bench(FakeAdapter(), clock).produce_all() == []


async def test_a_dead_letter_goes_past_every_limit_for_clients(clock: LoopClock) -> None:
    bench = Bench(FakePartitionedAdapter(), clock, in_flight=0, quota=1, strict=True)
    for _ in range(3):
        await bench.producer.bury(orders(message_key="a", born_timestamp=None))
    assert [m.partition for m in bench.adapter.published] == [partition_of("a", 8)] * 3


async def test_a_quota_refuses_what_is_too_much(clock: LoopClock) -> None:
    bench = Bench(FakeAdapter(), clock, quota=2)
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
    assert len(quota._buckets) <= 4096
    quota.take("d19999", 19_999)
    with pytest.raises(QuotaExceeded):
        quota.take("d19999", 19_999)


def test_the_system_clock_counts_milliseconds() -> None:
    clock = SystemClock()
    assert clock.wall() > 1_700_000_000_000
    assert clock.mono() <= clock.mono()
