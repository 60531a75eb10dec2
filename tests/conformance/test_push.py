"""Push streams: how much comes, and when they end."""

import asyncio

import pytest

from .conversation import Conversation, Target, fetched, now, refused
from .streaming import Push, connected, pushing


async def test_many_messages_come_on_one_response(talk: Conversation) -> None:
    """
    > Many messages on one response, with the pull headers

    > `x-oms-maxmessages`,
    """
    for number in range(30):
        await talk.produce(b"%d" % number)
    async with pushing(talk, ack="false", maxmessages=20) as push:
        found = await push.take_all(20)
        assert await push.end() == {"end": "maxmessages"}
    assert len({pushed.body for pushed in found}) == 20
    assert {(pushed.count, pushed.receipt) for pushed in found} == {(1, "")}
    async with pushing(talk, ack="false", waitmills=0) as push:
        rest = await push.take_all(10)
        assert await push.end() == {"end": "waitmills"}
    assert not {pushed.body for pushed in rest} & {pushed.body for pushed in found}


async def test_the_head_comes_at_once_and_a_late_message_wakes_the_stream(talk: Conversation) -> None:
    """
    > Many messages on one response, with the pull headers

    > `x-oms-waitmills` (end after this much silence; absent: stay open).
    """
    async with pushing(talk) as push:
        head = await push.head()
        assert (head.status, head.body) == (200, b"")
        assert head.headers[b"x-oms-version"].startswith(b"1.")
        assert head.headers[b"cache-control"] == b"no-store"
        await push.nothing(wait=500)
        for body in (b"late", b"later"):
            await talk.produce(body)
            assert (await push.take()).body == body


@pytest.mark.wire
async def test_a_stream_may_come_without_any_header(talk: Conversation) -> None:
    """
    > Every request header of pull and push may also come as a query parameter without the `x-oms-` prefix
    > (`?version=1.0.0&source=orders&consumerid=app&ack=true`), because a browser's `EventSource` cannot set headers;
    """
    await talk.produce(b"here")
    query = f"version=1.0.0&source={talk.destination}&consumerid={talk.group}&ack=true&credit=1&leasemills=500"
    # under ack the stream ends when the message is acknowledged or its lease is over, so the lease is short
    answer = await talk.http.get(f"/v1/push?{query}&maxmessages=1&waitmills=0", timeout=20)
    assert answer.status_code == 200
    assert b"here" in answer.content


@pytest.mark.wire
async def test_a_header_and_a_parameter_of_a_stream_that_differ_are_refused(talk: Conversation) -> None:
    """
    > a header wins, both with different values is a 400.
    """
    answer = await talk.http.get("/v1/push?credit=5", headers={"x-oms-credit": "6", "x-oms-version": "1.0.0"})
    assert "credit" in refused(answer, 400, "header-repeated")


@pytest.mark.wire
async def test_what_a_stream_cannot_do_is_refused(talk: Conversation, subtests: pytest.Subtests) -> None:
    """
    > Many messages on one response, with the pull headers
    """
    await talk.produce(b"kept")
    usual = {"version": "1.0.0", "source": talk.destination, "consumerid": talk.group, "ack": "true"}
    for name, value in (
        ("credit", "0"),
        ("credit", "1001"),
        ("credit", "many"),
        ("maxmessages", "0"),
        ("maxmessages", str(2**63)),
        ("waitmills", "-1"),
        ("leasemills", "0"),
        ("ack", "perhaps"),
        ("requestid", "r"),
    ):
        with subtests.test(f"{name}: {value}"):
            params = {f"x-oms-{n}": v for n, v in (usual | {name: value}).items()}
            answer = await talk.http.get("/v1/push", headers=params, timeout=20)
            assert name in refused(answer, 400, "header-invalid")
    assert (await talk.take()).count == 1


@pytest.mark.wire
async def test_what_a_stream_cannot_do_without_is_missed(talk: Conversation, subtests: pytest.Subtests) -> None:
    """
    > Many messages on one response, with the pull headers
    """
    usual = {"version": "1.0.0", "source": talk.destination, "consumerid": talk.group}
    for name in usual:
        with subtests.test(name):
            params = {f"x-oms-{n}": v for n, v in usual.items() if n != name}
            answer = await talk.http.get("/v1/push", headers=params, timeout=20)
            assert name in refused(answer, 400, "header-missing")


@pytest.mark.wire
async def test_a_stream_acknowledges_the_receipts_that_it_brings_along(talk: Conversation) -> None:
    """
    > `x-oms-receipt` (acknowledge the previous message in the same round trip),

    > Many messages on one response, with the pull headers
    """
    for number in range(3):
        await talk.produce(b"%d" % number)
    taken = [await talk.take(leasemills=2_000) for _ in range(2)]
    async with pushing(talk, receipt=", ".join(t.receipt for t in taken), credit=3) as push:
        assert (await push.take()).body not in {t.body for t in taken}
        await push.nothing(wait=2_300)
    answer = await talk.http.get(
        "/v1/push",
        headers={
            "x-oms-version": "1.0.0",
            "x-oms-source": talk.destination,
            "x-oms-consumerid": talk.group,
            "x-oms-receipt": "guessed",
        },
    )
    refused(answer, 400, "receipt-invalid")


async def test_no_more_than_the_credit_is_unacknowledged(talk: Conversation) -> None:
    """
    > and `x-oms-credit` (unacknowledged messages allowed, default 64),
    """
    for number in range(6):
        await talk.produce(b"%d" % number)
    async with pushing(talk, credit=2) as push:
        first, second = await push.take_all(2)
        await push.nothing()
        await push.settle("ack", first.receipt)
        third = await push.take()
        await push.nothing()
        await talk.ack(f"{second.receipt},{third.receipt}")
        fourth, fifth = await push.take_all(2)
        await push.nothing()
        await push.settle("nack", fourth.receipt, delaymills=60_000)
        sixth = await push.take()
        await push.nothing()
    assert len({each.body for each in (first, second, third, fourth, fifth, sixth)}) == 6


@pytest.mark.wire
async def test_the_default_credit_is_sixty_four(talk: Conversation) -> None:
    """
    > and `x-oms-credit` (unacknowledged messages allowed, default 64),
    """
    for number in range(66):
        await talk.produce(b"%d" % number)
    async with pushing(talk) as push:
        await push.take_all(64)
        await push.nothing()
        assert len((await talk.take()).body) > 0


@pytest.mark.wire
async def test_without_ack_there_is_no_credit_to_run_out_of(talk: Conversation) -> None:
    """
    > and `x-oms-credit` (unacknowledged messages allowed, default 64),

    > Without ack the message is settled before it is sent (at most once);
    """
    for number in range(5):
        await talk.produce(b"%d" % number)
    async with pushing(talk, ack="false", credit=1) as push:
        assert {pushed.receipt for pushed in await push.take_all(5)} == {""}
    await talk.nothing()


@pytest.mark.wire
async def test_large_bodies_use_up_the_credit_sooner(bridge: Target, talk: Conversation) -> None:
    """
    > and `x-oms-credit` (unacknowledged messages allowed, default 64),
    """
    size = 600_000
    if bridge.limit("body") < size:
        pytest.skip("the bridge takes no bodies of this size")
    for _ in range(6):
        await talk.produce(bytes(size))
    async with pushing(talk) as push:
        first, _ = await push.take_all(2)
        await push.nothing()
        await push.settle("ack", first.receipt)
        await push.take()
        await push.nothing()
        await talk.take()


@pytest.mark.wire
async def test_after_its_last_message_a_stream_waits_for_the_acknowledgements(talk: Conversation) -> None:
    """
    > `x-oms-maxmessages`,
    """
    for number in range(3):
        await talk.produce(b"%d" % number)
    async with pushing(talk, maxmessages=2) as push:
        first, second = await push.take_all(2)
        await push.settle("ack", first.receipt)
        await push.nothing()
        await push.settle("ack", second.receipt)
        assert await push.end() == {"end": "maxmessages"}
    assert (await talk.take()).count == 1


@pytest.mark.wire
async def test_after_its_last_message_a_stream_waits_no_longer_than_the_leases(talk: Conversation) -> None:
    """
    > `x-oms-maxmessages`,

    > when it ends, what was not acknowledged goes back at once.
    """
    await talk.produce(b"leased")
    begun = now()
    async with pushing(talk, maxmessages=1, leasemills=700) as push:
        pushed = await push.take()
        assert await push.end() == {"end": "maxmessages"}
        assert begun + 650 <= now()
    refused(await talk.settle("ack", pushed.receipt), 410, "lease-ended")
    again = await talk.take()
    assert (again.body, again.count) == (b"leased", 2)


@pytest.mark.wire
async def test_silence_ends_a_stream_and_each_message_breaks_it(talk: Conversation) -> None:
    """
    > `x-oms-waitmills` (end after this much silence; absent: stay open).
    """
    async with pushing(talk, ack="false", waitmills=1_500) as push:
        await push.head()
        await asyncio.sleep(0.8)
        last = now()
        await talk.produce(b"noise")
        assert (await push.take()).body == b"noise"
        assert await push.end() == {"end": "waitmills"}
        assert now() >= last + 1_490


@pytest.mark.wire
async def test_silence_does_not_count_while_there_is_no_credit(talk: Conversation) -> None:
    """
    > `x-oms-waitmills` (end after this much silence; absent: stay open).
    """
    await talk.produce(b"slow work")
    async with pushing(talk, credit=1, waitmills=200) as push:
        pushed = await push.take()
        await push.nothing(wait=700)
        await push.settle("ack", pushed.receipt)
        assert await push.end() == {"end": "waitmills"}


@pytest.mark.wire
async def test_no_silence_at_all_drains_what_is_there(talk: Conversation) -> None:
    """
    > `x-oms-waitmills` (end after this much silence; absent: stay open).
    """
    async with pushing(talk, waitmills=0) as push:
        assert await push.end() == {"end": "waitmills"}
    for number in range(5):
        await talk.produce(b"%d" % number)
    async with pushing(talk, waitmills=0) as push:
        found = await push.take_all(5)
        await push.settle("ack", *(pushed.receipt for pushed in found))
        assert await push.end() == {"end": "waitmills"}
    await talk.nothing()


@pytest.mark.wire
async def test_the_longest_wait_that_is_allowed_never_ends_a_stream(talk: Conversation) -> None:
    """
    > `x-oms-waitmills` (end after this much silence; absent: stay open).
    """
    async with pushing(talk, waitmills=2**63 - 1, maxmessages=2**63 - 1) as push:
        await push.nothing()
        await talk.produce(b"here")
        assert (await push.take()).body == b"here"


async def test_two_streams_and_a_pull_share_a_group(talk: Conversation) -> None:
    """
    > Consumers of one group share its messages.
    """
    async with pushing(talk, ack="false") as first, pushing(talk, ack="false") as second:
        await first.head()
        await second.head()
        pulling = asyncio.create_task(talk.take(ack="false"))
        await asyncio.sleep(0.2)
        async with talk.beside() as producer:
            for number in range(3):
                await producer.produce(b"%d" % number)
        bodies = [(await first.take()).body, (await second.take()).body, (await pulling).body]
    assert sorted(bodies) == [b"0", b"1", b"2"]


async def test_streams_of_one_connection_do_not_hold_each_other_up(talk: Conversation) -> None:
    """
    > Many messages on one response, with the pull headers
    """
    with connected(talk) as frames:
        accept = [(b"accept", b"application/x-ndjson")]
        streams = [Push(talk, frames, accept, {"consumerid": f"g{number}"}) for number in range(5)]
        for stream in streams:
            assert (await stream.head()).status == 200
        for body in (b"1", b"2"):
            await talk.produce(body, messagekey="k")
            for stream in streams:
                pushed = await stream.take()
                assert pushed.body == body
                await stream.settle("ack", pushed.receipt)


async def test_the_next_of_a_key_comes_once_the_one_before_is_settled_also_on_a_stream(
    bridge: Target, talk: Conversation
) -> None:
    """
    > - **Order**: messages with the same messageKey reach a group in the order they were stored, also while others
    > are in flight,

    > also after a redelivery: the next message of a key waits until the one before it is settled.
    """
    bridge.need("messageKey")
    for number in range(3):
        await talk.produce(b"%d" % number, messagekey="k")
    async with pushing(talk) as push:
        first = await push.take()
        await push.nothing()
        await push.settle("nack", first.receipt)
        again = await push.take()
        assert (again.body, again.count) == (b"0", 2)
        for body in (b"1", b"2"):
            await push.settle("ack", again.receipt)
            again = await push.take()
            assert (again.body, again.count) == (body, 1)
    async with pushing(talk, ack="false", consumerid="another") as push:
        assert [pushed.body for pushed in await push.take_all(3)] == [b"0", b"1", b"2"]


async def test_the_higher_priority_goes_first_also_on_a_stream(bridge: Target, talk: Conversation) -> None:
    """
    > - **Priority**: among messages ready for delivery the higher goes first.
    """
    bridge.need("priority")
    await talk.join()
    for priority in (3, 9, 1, 7, 10, 2):
        await talk.produce(b"%d" % priority, priority=priority)
    await fetched()
    async with pushing(talk) as push:
        assert [int(pushed.body) for pushed in await push.take_all(6)] == [10, 9, 7, 3, 2, 1]


async def test_a_delayed_message_comes_on_an_open_stream_when_it_is_due(bridge: Target, talk: Conversation) -> None:
    """
    > Never delivered early;
    """
    bridge.need("delayTime")
    async with pushing(talk) as push:
        await push.head()
        born = now()
        await talk.produce(b"later", borntimestamp=born, delaytime=700)
        assert (await push.take()).body == b"later"
        assert now() >= born + 700


async def test_an_expired_message_is_never_sent_also_not_once_there_is_credit(
    bridge: Target, talk: Conversation
) -> None:
    """
    > - **Expiry**: never handed out after expireTime,

    > also not as a redelivery;
    """
    bridge.need("expireTime")
    async with pushing(talk, credit=1) as push:
        await talk.produce(b"short-lived", expiretime=now() + 2000)
        first = await push.take()
        await talk.produce(b"shorter-lived", expiretime=now() + 1000)
        await asyncio.sleep(2.2)
        await push.settle("nack", first.receipt)
        await push.nothing()
        await talk.produce(b"long-lived")
        assert (await push.take()).body == b"long-lived"
