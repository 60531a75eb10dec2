import asyncio
from typing import Any

import pytest

from adapters.base import Delivery, Outcome
from bridge.engine.destination_names import SubscriptionKey
from bridge.engine.engine import Engine, Pulled
from bridge.engine.options import EngineOptions
from bridge.engine.produced import Produced
from bridge.engine.pull_and_prefetch import PullRequest
from bridge.errors import (
    BackendFull,
    BackendUnavailable,
    BodyInvalid,
    BodyTooLarge,
    BridgeError,
    DestinationInvalid,
    DestinationUnknown,
    Draining,
    LeaseEnded,
    OutcomeUnknown,
    ReceiptInvalid,
    TooManyInFlight,
)
from bridge.message import Message
from tests.calls import produce, settled
from tests.unit.engine.fakes import FakeAdapter, FakePartitionedAdapter, FakeSubscription, delivery
from tests.unit.engine.virtual import LoopClock, turns, until

APP = SubscriptionKey("orders", "app")
LEASE = 30_000


class MonitoredAdapter(FakePartitionedAdapter):
    """An adapter that knows of an outage."""

    not_ready_reason: str | None = None


class EngineBench:
    """An engine with its adapter and clock at hand."""

    def __init__(self, clock: LoopClock, *backlog: Delivery, **options: object) -> None:
        self.clock = clock
        self.adapter = FakePartitionedAdapter()
        self.adapter.backlogs["orders", "app"] = list(backlog)
        self.engine = Engine(self.adapter, clock, EngineOptions("bridge:8080")._replace(**options))  # type: ignore[arg-type]

    async def started(self) -> "EngineBench":
        await self.engine.start()
        return self

    @property
    def subscription(self) -> FakeSubscription:
        return self.adapter.of()

    async def produce(self, message: Message, peer: str = "") -> Produced:
        return await produce(self.engine, message, (), peer)

    async def pull(
        self, wait: int = 0, *, ack: bool = True, name: SubscriptionKey = APP, lease: int = LEASE
    ) -> Pulled | None:
        return await settled(self.engine.pull(name, PullRequest(lease, wait), ack=ack))

    async def got(self, wait: int = 0, *, ack: bool = True, name: SubscriptionKey = APP, lease: int = LEASE) -> Pulled:
        pulled = await self.pull(wait, ack=ack, name=name, lease=lease)
        assert pulled is not None
        return pulled

    async def receipt(self, lease: int = LEASE) -> str:
        pulled = await self.got(lease=lease)
        assert pulled.receipt is not None
        return pulled.receipt

    def waiting(self, wait: int = 10_000) -> asyncio.Task[Pulled | None]:
        return asyncio.ensure_future(self.pull(wait))


async def test_a_pulled_message_says_its_count_and_its_lease(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(7, attempts=2)).started()
    pulled = await bench.got()
    assert pulled.message.delivery_count == 3
    assert pulled.receipt is not None
    assert pulled.lease_until == clock.wall() + LEASE


async def test_leases_are_reported_to_a_durable_backend_only(clock: LoopClock) -> None:
    for durable in (True, False):
        bench = EngineBench(clock, delivery(7))
        bench.adapter.features = bench.adapter.features._replace(durable=durable)
        await bench.started()
        await bench.got()
        await turns()
        assert bench.subscription.reported(Outcome.LEASED) == ([7] if durable else [])
        await bench.engine.close()


async def test_a_message_is_born_where_its_client_is(clock: LoopClock) -> None:
    bench = await EngineBench(clock).started()
    await bench.produce(Message("orders"), "10.0.0.7:4242")
    await bench.engine.produce([Message("orders")], (), "10.0.0.8:17")
    assert [message.born_host for message in bench.adapter.published] == ["10.0.0.7:4242", "10.0.0.8:17"]


async def test_without_ack_a_message_is_settled_before_it_is_sent(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(7)).started()
    pulled = await bench.got(ack=False)
    assert pulled.receipt is None
    assert bench.subscription.reported(Outcome.SETTLED) == [7]
    pulled.undo()
    assert await bench.pull() is None


@pytest.mark.parametrize("error", [BackendUnavailable("away"), OutcomeUnknown("late")])
async def test_a_message_that_could_not_be_settled_is_not_sent_and_not_lost(
    clock: LoopClock, error: BridgeError
) -> None:
    bench = await EngineBench(clock, delivery(7)).started()
    (await bench.got()).undo()
    failures: list[Any] = [error]
    bench.subscription.settle_failures = failures
    with pytest.raises(type(error)):
        await bench.pull(ack=False)
    assert (await bench.got()).message.delivery_count == 1


async def test_a_client_that_leaves_while_its_message_is_settled_does_not_lose_it(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(7)).started()
    (await bench.got()).undo()
    bench.subscription.slow = True
    task = asyncio.ensure_future(bench.pull(ack=False))
    await turns()
    task.cancel()
    await turns()
    assert (await bench.got()).message.delivery_count == 1


async def test_an_answer_that_never_arrived_gives_its_message_back_uncounted(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(7)).started()
    (await bench.got()).undo()
    assert (await bench.got()).message.delivery_count == 1


async def test_an_old_answer_s_undo_does_not_take_a_later_lease(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(7)).started()
    first = await bench.got(lease=1000)
    await asyncio.sleep(1)
    later = await bench.receipt()
    first.undo()
    await bench.engine.leases.ack([later], None)
    assert bench.subscription.reported(Outcome.SETTLED) == [7]


async def test_an_acknowledgement_settles_and_doing_it_twice_is_fine(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(7)).started()
    receipt = await bench.receipt()
    await bench.engine.leases.ack([receipt], APP)
    await bench.engine.leases.ack([receipt, receipt], None)
    assert bench.subscription.reported(Outcome.SETTLED) == [7]


async def test_two_acknowledgements_at_once_are_both_fine(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(7)).started()
    receipt = await bench.receipt()
    bench.subscription.slow = True
    both = asyncio.gather(*(bench.engine.leases.ack([receipt], None) for _ in range(2)))
    await turns()
    with pytest.raises(LeaseEnded):
        bench.engine.leases.nack([receipt], 0, None)
    bench.subscription.confirm()
    await both
    assert bench.engine.counters.settled == 1


async def test_an_ended_lease_is_reported_and_its_message_delivered_again(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(7)).started()
    receipt = await bench.receipt(lease=1000)
    await asyncio.sleep(1)
    with pytest.raises(LeaseEnded):
        await bench.engine.leases.ack([receipt], None)
    assert (await bench.got()).message.delivery_count == 2


async def test_a_settlement_that_fails_is_raised_and_may_be_repeated(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(7)).started()
    receipt = await bench.receipt()
    bench.subscription.settle_failures = [BackendUnavailable("away")]
    with pytest.raises(BackendUnavailable):
        await bench.engine.leases.ack([receipt], None)
    await bench.engine.leases.ack([receipt], None)


async def test_a_receipt_of_another_process_has_ended(clock: LoopClock) -> None:
    other = await (await EngineBench(clock, delivery(7)).started()).receipt()
    with pytest.raises(LeaseEnded):
        await (await EngineBench(clock).started()).engine.leases.ack([other], None)


async def test_a_receipt_of_another_group_is_refused_where_one_is_named(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(7)).started()
    receipt = await bench.receipt()
    with pytest.raises(ReceiptInvalid):
        bench.engine.leases.nack([receipt], 0, SubscriptionKey("orders", "other"))
    with pytest.raises(ReceiptInvalid):
        bench.engine.leases.extend([receipt], 5, SubscriptionKey("orders", "other"))
    with pytest.raises(ReceiptInvalid):
        await bench.engine.leases.ack([receipt], SubscriptionKey("payments", "app"))
    await bench.engine.leases.ack([receipt], APP)


async def test_of_several_receipts_the_bad_ones_are_named_and_the_others_done(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(1), delivery(2), delivery(3)).started()
    good, ended, also_good = await bench.receipt(), await bench.receipt(lease=1000), await bench.receipt()
    await asyncio.sleep(1)
    with pytest.raises(LeaseEnded) as refused:
        await bench.engine.leases.ack([good, ended, "forged", also_good], None)
    assert bench.subscription.reported(Outcome.SETTLED) == [1, 3]
    assert ended in refused.value.detail
    assert "forged" in refused.value.detail
    assert good not in refused.value.detail


@pytest.mark.parametrize("error", [BackendUnavailable("gone"), OutcomeUnknown("late"), RuntimeError("a defect")])
async def test_a_group_that_cannot_settle_does_not_stop_the_others(clock: LoopClock, error: Exception) -> None:
    bench = await EngineBench(clock, delivery(1), delivery(2)).started()
    bench.adapter.backlogs["orders", "other"] = [delivery(1)]
    first, second = await bench.receipt(), await bench.receipt()
    other = (await bench.got(name=SubscriptionKey("orders", "other"))).receipt
    assert other is not None
    failures: list[Any] = [error]
    bench.subscription.settle_failures = failures
    with pytest.raises(BridgeError) as refused:
        await bench.engine.leases.ack([first, other, second], None)
    assert (first in refused.value.detail, second in refused.value.detail) == (True, True)
    assert other not in refused.value.detail
    assert refused.value.status == getattr(error, "status", 500)
    assert bench.adapter.of(group="other").reported(Outcome.SETTLED) == [1]
    await bench.engine.leases.ack([first, other, second], None)
    assert bench.subscription.reported(Outcome.SETTLED) == [1, 2]


async def test_the_same_goes_for_nack_and_extend(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(1), delivery(2)).started()
    first, second = await bench.receipt(), await bench.receipt()
    with pytest.raises(ReceiptInvalid):
        bench.engine.leases.extend(["forged", first], 60_000, None)
    await asyncio.sleep(40)
    with pytest.raises(LeaseEnded):
        bench.engine.leases.nack([second, first], 0, None)
    assert (await bench.got()).message.delivery_count == 2


async def test_a_nack_delays_and_an_acknowledged_message_cannot_be_given_back(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(1)).started()
    bench.engine.leases.nack([await bench.receipt()], 5000, APP)
    pulled = await bench.got(10_000)
    assert clock.mono() == 1_005_000
    assert pulled.receipt is not None
    await bench.engine.leases.ack([pulled.receipt], None)
    with pytest.raises(LeaseEnded, match="acknowledged already"):
        bench.engine.leases.nack([pulled.receipt], 0, None)


async def test_names_are_checked() -> None:
    assert SubscriptionKey.checked("orders", "app") == APP
    for source, group, header in (
        *(("", "app", "x-oms-source"), ("orders", "", "x-oms-consumerid")),
        *(("__x", "app", "x-oms-source"), ("orders", "a b", "x-oms-consumerid")),
    ):
        with pytest.raises(DestinationInvalid, match=f"^{header}: "):
            SubscriptionKey.checked(source, group)


async def test_waiting_pulls_are_limited(clock: LoopClock) -> None:
    bench = await EngineBench(clock, waiting_pulls=2).started()
    waiting = [bench.waiting() for _ in range(2)]
    await turns()
    with pytest.raises(TooManyInFlight):
        await bench.pull(1000)
    assert await bench.pull() is None
    assert await bench.pull(name=SubscriptionKey("orders", "opened by this pull")) is None
    await asyncio.gather(*waiting)
    assert await bench.pull(1000) is None


# The dead.


async def test_a_message_delivered_too_often_goes_to_the_dead_letter_destination(clock: LoopClock) -> None:
    given = delivery(7, 15, message_key="k", expire_time=clock.wall() + 10**7, delay_time=5, properties={"a": "b"})
    bench = await EngineBench(clock, given).started()
    bench.engine.leases.nack([await bench.receipt()], 0, None)
    await turns()
    (letter,) = bench.adapter.published
    assert letter.destination == "orders.dlq"
    assert letter.properties == {
        "a": "b",
        "oms-dead-letter-reason": "max-deliveries",
        "oms-dead-letter-source": "orders",
        "oms-dead-letter-group": "app",
        "oms-dead-letter-count": "16",
        "oms-dead-letter-expiretime": str(given.message.expire_time),
    }
    assert (letter.body, letter.message_id, letter.message_key) == (b"7", "m7", "k")
    assert (letter.delay_time, letter.expire_time) == (None, None)
    assert letter.partition is not None
    assert bench.subscription.reported(Outcome.SETTLED) == [7]
    assert await bench.pull() is None


async def test_the_original_is_settled_only_once_the_dead_letter_is_confirmed(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(7), max_deliveries=1).started()
    receipt = await bench.receipt()
    bench.adapter.publish_failures = [BackendFull("full")]
    bench.engine.leases.nack([receipt], 0, None)
    await turns()
    assert bench.subscription.reported(Outcome.SETTLED) == []
    await asyncio.sleep(5)
    await turns()
    assert len(bench.adapter.published) == 2
    assert bench.subscription.reported(Outcome.SETTLED) == [7]


async def test_a_dead_letter_that_is_not_answered_is_written_again(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(7), max_deliveries=1, produce_timeout=1000).started()
    receipt = await bench.receipt()
    bench.adapter.slow = True
    bench.engine.leases.nack([receipt], 0, None)
    await asyncio.sleep(5)
    assert bench.subscription.reported(Outcome.SETTLED) == []
    bench.adapter.slow = False
    await asyncio.sleep(5)
    assert bench.subscription.reported(Outcome.SETTLED) == [7]


async def test_a_message_that_is_too_large_with_the_reason_is_dead_lettered_without_it(
    clock: LoopClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench = await EngineBench(clock, delivery(7, properties={"a": "b"}), max_deliveries=1).started()
    receipt = await bench.receipt()
    bench.adapter.publish_failures = [BodyTooLarge("max.message.bytes")]
    bench.engine.leases.nack([receipt], 0, None)
    await turns()
    assert [letter.properties.get("a") for letter in bench.adapter.published] == ["b", "b"]
    assert bench.adapter.published[1].properties == {"a": "b"}
    assert bench.subscription.reported(Outcome.SETTLED) == [7]
    (record,) = [each for each in caplog.records if "without its reason" in each.message]
    assert record.__dict__["oms-dead-letter-reason"] == "max-deliveries"


async def test_a_dead_letter_is_never_dead_lettered_again(clock: LoopClock) -> None:
    bench = await EngineBench(clock, max_deliveries=1).started()
    graves = SubscriptionKey("orders.dlq", "app")
    bench.adapter.backlogs[graves] = [delivery(7)]
    for count in range(1, 40):
        pulled = await bench.got(name=graves)
        assert pulled.message.delivery_count == count
        assert pulled.receipt is not None
        bench.engine.leases.nack([pulled.receipt], 0, None)
    assert bench.adapter.published == []


async def test_a_long_destination_has_a_dead_letter_destination_too(clock: LoopClock) -> None:
    bench = await EngineBench(clock, max_deliveries=1).started()
    name = SubscriptionKey("x" * 249, "app")
    bench.adapter.backlogs[name] = [delivery(7)]
    pulled = await bench.got(name=name)
    assert pulled.receipt is not None
    bench.engine.leases.nack([pulled.receipt], 0, None)
    await turns()
    assert len(bench.adapter.published[0].destination) == 249
    assert bench.adapter.published[0].properties["oms-dead-letter-source"] == "x" * 249


# Joining and leaving.


async def test_pulls_that_come_together_join_once(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(1), delivery(2)).started()
    bench.adapter.may_subscribe.clear()
    pulls = [bench.waiting(0) for _ in range(3)]
    await turns()
    bench.adapter.may_subscribe.set()
    assert [p is not None for p in await asyncio.gather(*pulls)] == [True, True, False]
    assert len(bench.adapter.subscriptions["orders", "app"]) == 1


@pytest.mark.parametrize(("wait", "passed"), [(55_000, 55_000), (50_000, 55_000), (1_000, 11_000)])
async def test_a_pull_that_opens_its_group_is_answered_before_proxies_give_up(
    clock: LoopClock, wait: int, passed: int
) -> None:
    bench = await EngineBench(clock).started()
    bench.adapter.may_subscribe.clear()
    began, pull = clock.mono(), bench.waiting(wait)
    await asyncio.sleep(10)
    bench.adapter.may_subscribe.set()
    assert await pull is None
    assert clock.mono() - began == passed


async def test_a_failed_subscription_fails_all_waiting_pulls_and_the_next_one_retries(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(1)).started()
    bench.adapter.may_subscribe.clear()
    bench.adapter.subscribe_failures = [DestinationUnknown("no such queue")]
    pulls = [bench.waiting(0) for _ in range(2)]
    await turns()
    bench.adapter.may_subscribe.set()
    assert [type(r) for r in await asyncio.gather(*pulls, return_exceptions=True)] == [DestinationUnknown] * 2
    assert await bench.pull() is not None


async def test_a_cancelled_pull_does_not_cancel_the_subscription_of_others(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(1)).started()
    bench.adapter.may_subscribe.clear()
    leaver, stayer = bench.waiting(0), bench.waiting(0)
    await turns()
    leaver.cancel()
    await turns()
    bench.adapter.may_subscribe.set()
    assert await stayer is not None


async def test_a_failed_subscription_without_waiting_pulls_is_not_logged(
    clock: LoopClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench = await EngineBench(clock).started()
    bench.adapter.may_subscribe.clear()
    bench.adapter.subscribe_failures = [BackendUnavailable("away")]
    pull = bench.waiting(0)
    await turns()
    pull.cancel()
    await turns()
    bench.adapter.may_subscribe.set()
    await turns()
    assert bench.engine._groups._groups == {}
    assert caplog.records == []


async def test_an_idle_group_is_closed_and_opened_again_by_the_next_pull(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(1, attempts=3), delivery(2)).started()
    receipt = await bench.receipt()
    bench.engine.leases.nack([receipt], 0, None)
    await asyncio.sleep(500)
    first = bench.subscription
    assert first.closed
    assert [(d.position, d.attempts) for d in first.outcomes[-1][1]] == [(1, 4), (2, 0)]
    assert bench.engine.groups == ()
    with pytest.raises(LeaseEnded):
        await bench.engine.leases.ack([receipt], None)
    assert (await bench.got()).message.delivery_count == 5
    assert bench.subscription is not first


async def test_a_pull_joins_again_while_the_old_subscription_is_still_closing(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(1)).started()
    (await bench.got()).undo()
    first = bench.subscription
    first.may_close.clear()
    await asyncio.sleep(500)
    assert not first.closed
    assert bench.engine.groups == ()
    pull = bench.waiting()
    await turns()
    assert not pull.done()
    first.may_close.set()
    assert await pull is not None


async def test_a_group_in_use_stays_open(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(1)).started()
    await bench.receipt(lease=10**9)
    await asyncio.sleep(1000)
    assert len(bench.engine.groups) == 1
    for _ in range(20):
        await bench.pull(60_000)
    assert not bench.subscription.closed


async def test_an_idle_group_that_fails_to_close_does_not_keep_the_others_open(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(1)).started()
    (await bench.got()).undo()
    await bench.pull(name=SubscriptionKey("orders", "other"))
    bench.subscription.settle_failures = [BackendUnavailable("away")]
    await asyncio.sleep(500)
    assert bench.engine.groups == ()
    await bench.pull()
    await asyncio.sleep(500)
    assert bench.engine.groups == ()


# Starting and stopping.


async def test_before_its_backend_has_started_the_bridge_says_so(clock: LoopClock) -> None:
    bench = EngineBench(clock)
    assert bench.engine.not_ready_reason is not None
    with pytest.raises(BackendUnavailable, match="not started yet"):
        await bench.pull()
    with pytest.raises(BackendUnavailable, match="not started yet"):
        await bench.produce(Message("orders"))
    with pytest.raises(BackendUnavailable, match="not started yet"):
        await bench.engine.produce([], (), "")


async def test_an_unavailable_backend_is_retried_and_not_ready_reason_says_why(clock: LoopClock) -> None:
    bench = EngineBench(clock)
    bench.adapter.start_failures = [BackendUnavailable("nobody listens on 9092"), BackendUnavailable("no leader")]
    await bench.engine.start()
    assert bench.engine.not_ready_reason == "nobody listens on 9092"
    with pytest.raises(BackendUnavailable, match="9092"):
        await bench.pull()
    await asyncio.sleep(0.3)
    assert bench.engine.not_ready_reason == "no leader"
    assert not bench.engine.start_ended.is_set()
    await asyncio.sleep(0.5)
    assert bench.engine.not_ready_reason is None
    assert bench.engine.start_ended.is_set()
    assert bench.engine.start_error is None
    assert bench.adapter.starts == 3
    assert await bench.pull() is None


async def test_a_backend_that_stays_away_is_tried_every_five_seconds(clock: LoopClock) -> None:
    bench = EngineBench(clock)
    bench.adapter.start_failures = [BackendUnavailable("away") for _ in range(100)]
    await bench.engine.start()
    await asyncio.sleep(100)
    assert 20 <= bench.adapter.starts <= 25
    await asyncio.sleep(3600)
    assert bench.engine.not_ready_reason is None
    assert bench.adapter.starts == 101


@pytest.mark.parametrize("error", [ValueError("a wrong setting"), BodyInvalid("a corrupt journal")])
async def test_an_error_that_a_retry_cannot_help_is_raised(clock: LoopClock, error: Exception) -> None:
    bench = EngineBench(clock)
    bench.adapter.start_failures = [error]
    with pytest.raises(type(error)):
        await bench.engine.start()
    assert bench.adapter.starts == 1


async def test_an_error_that_a_retry_cannot_help_ends_the_retries(clock: LoopClock) -> None:
    bench = EngineBench(clock)
    bench.adapter.start_failures = [BackendUnavailable("away"), BodyInvalid("a corrupt journal")]
    await bench.engine.start()
    await asyncio.sleep(60)
    assert bench.engine.not_ready_reason == "a corrupt journal"
    assert bench.engine.start_ended.is_set()
    assert str(bench.engine.start_error) == "a corrupt journal"
    assert bench.adapter.starts == 2


async def test_readiness_follows_the_backend_and_requests_go_on(
    clock: LoopClock, caplog: pytest.LogCaptureFixture
) -> None:
    """One sentence in the log for each change; the time in which a connection to another broker succeeds is none."""
    bench = EngineBench(clock)
    bench.adapter = adapter = MonitoredAdapter()
    bench.engine = Engine(adapter, clock, EngineOptions("bridge:8080"))
    await bench.started()
    caplog.clear()
    for _ in range(2):
        adapter.not_ready_reason = "the broker restarts"
        await asyncio.sleep(1)
        adapter.not_ready_reason = None
        await asyncio.sleep(1)
    assert not caplog.records
    for reason in ("nothing listens there", "nothing listens there", "the login is refused"):
        adapter.not_ready_reason = reason
        await asyncio.sleep(3)
        assert bench.engine.not_ready_reason == reason
        await bench.produce(Message("orders"))
        assert await bench.pull() is None
    adapter.not_ready_reason = None
    await asyncio.sleep(1)
    assert bench.engine.not_ready_reason is None
    said = [(record.getMessage(), getattr(record, "reason", None)) for record in caplog.records]
    assert said == [
        ("the backend is not ready", "nothing listens there"),
        ("the backend is not ready", "the login is refused"),
        ("the backend is ready", None),
    ]


async def test_draining_ends_waiting_pulls_and_refuses_new_ones(clock: LoopClock) -> None:
    bench = await EngineBench(clock).started()
    pulls = [bench.waiting() for _ in range(3)]
    await turns()
    bench.engine.drain()
    assert await asyncio.gather(*pulls) == [None, None, None]
    assert clock.mono() == 1_000_000
    with pytest.raises(Draining):
        await bench.pull()
    await bench.produce(Message("orders"))


async def test_a_pull_that_is_still_joining_when_the_bridge_drains_does_not_wait(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(1)).started()
    bench.adapter.may_subscribe.clear()
    pull = bench.waiting(60_000)
    await turns()
    bench.engine.drain()
    with pytest.raises(Draining):
        await pull
    assert clock.mono() == 1_000_000
    assert bench.engine._groups._groups == {}


async def test_a_client_that_leaves_while_its_pull_is_joining_is_cancelled_also_when_the_bridge_drains(
    clock: LoopClock,
) -> None:
    bench = await EngineBench(clock).started()
    bench.adapter.may_subscribe.clear()
    pull = bench.waiting()
    await turns()
    bench.engine.drain()
    pull.cancel()
    await turns()
    assert pull.cancelled()


async def test_draining_twice_does_not_cancel_a_subscription_twice(clock: LoopClock) -> None:
    bench = await EngineBench(clock).started()
    ended = []

    async def slow_to_end() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(2)
            ended.append(clock.mono())

    bench.adapter.may_subscribe.wait = slow_to_end  # type: ignore[method-assign, assignment]
    pull = bench.waiting()
    await turns()
    bench.engine.drain()
    await turns()
    await bench.engine.close()
    with pytest.raises(Draining):
        await pull
    assert ended == [1_002_000]


async def test_draining_does_not_interrupt_a_closing_that_a_subscription_waits_for(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(1), group_idle=1000).started()
    (await bench.got()).undo()
    bench.subscription.slow = True
    await until(lambda: bench.subscription.unconfirmed, step=1)
    left = bench.subscription
    pull = bench.waiting()
    await turns()
    bench.engine.drain()
    with pytest.raises(Draining):
        await pull
    assert not left.closed
    left.confirm()
    await bench.engine.close()
    assert left.closed


async def test_acknowledgements_are_taken_while_the_bridge_drains(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(1)).started()
    receipt = await bench.receipt()
    bench.engine.drain()
    await bench.engine.leases.ack([receipt], None)
    assert bench.subscription.reported(Outcome.SETTLED) == [1]


async def test_closing_releases_every_lease_uncounted_and_closes_the_backend(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(1, attempts=2), delivery(2)).started()
    receipt = await bench.receipt()
    await bench.engine.close()
    assert [(d.position, d.attempts) for d in bench.subscription.outcomes[-1][1]] == [(1, 2), (2, 0)]
    assert bench.adapter.closed
    with pytest.raises(LeaseEnded):
        await bench.engine.leases.ack([receipt], None)
    assert not [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]


async def test_closing_closes_the_backend_also_when_a_group_fails_to_close(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(1)).started()
    await bench.receipt()
    await bench.pull(name=SubscriptionKey("orders", "other"))
    bench.subscription.settle_failures = [BackendUnavailable("away")]
    await bench.engine.close()
    assert bench.adapter.closed


async def test_closing_does_not_wait_until_a_group_is_joined(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(1)).started()
    bench.adapter.may_subscribe.clear()
    pull = bench.waiting()
    await turns()
    await bench.engine.close()
    assert bench.adapter.closed
    assert bench.adapter.subscriptions == {}
    with pytest.raises(Draining):
        await pull


async def test_closing_gives_back_what_was_fetched_by_a_group_that_has_just_been_joined(clock: LoopClock) -> None:
    for turn in range(8):
        bench = await EngineBench(clock, delivery(1)).started()
        bench.adapter.may_subscribe.clear()
        pull = bench.waiting()
        await turns()
        bench.adapter.may_subscribe.set()
        await turns(turn)
        await bench.engine.close()
        assert bench.adapter.closed
        pulled = (await asyncio.gather(pull, return_exceptions=True))[0]
        assert isinstance(pulled, Draining | Pulled)
        if bench.adapter.subscriptions:
            assert [d.position for d in bench.subscription.backlog] == [1]


async def test_closing_waits_for_an_idle_group_that_is_being_closed(clock: LoopClock) -> None:
    bench = await EngineBench(clock, delivery(1)).started()
    (await bench.got()).undo()
    bench.subscription.slow = True
    await until(lambda: bench.subscription.unconfirmed, step=1)
    closing = asyncio.ensure_future(bench.engine.close())
    await turns()
    assert not bench.adapter.closed
    bench.subscription.confirm()
    await closing
    assert bench.subscription.closed
    assert bench.adapter.closed


async def test_closing_without_a_start_closes_the_backend(clock: LoopClock) -> None:
    engine = Engine(adapter := FakeAdapter(), clock, EngineOptions("bridge:8080"))
    await engine.close()
    assert adapter.closed
