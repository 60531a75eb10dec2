"""Push streams: leases live as long as they do, and no longer."""

import pytest

from .conversation import Conversation, Target, refused
from .streaming import pushing

pytestmark = pytest.mark.slow_on_brokers

LEASE = 300


async def test_leases_are_renewed_while_the_stream_lives(talk: Conversation) -> None:
    """
    > Leases renew while the stream lives;
    """
    for number in range(3):
        await talk.produce(b"%d" % number)
    async with pushing(talk, leasemills=LEASE) as push:
        first, second, third = await push.take_all(3)
        await push.nothing(wait=4 * LEASE)
        await talk.nothing()
        await push.settle("ack", first.receipt)
        await talk.ack(second.receipt)
        await push.nothing(wait=4 * LEASE)
        await push.settle("ack", third.receipt)
    await talk.nothing()


@pytest.mark.wire
async def test_a_lease_that_is_extended_on_the_same_connection_goes_on(talk: Conversation) -> None:
    """
    > Leases renew while the stream lives;

    > `nack` takes `x-oms-delaymills`, `extend` takes `x-oms-leasemills`.
    """
    await talk.produce(b"mine")
    async with pushing(talk, leasemills=LEASE) as push:
        pushed = await push.take()
        await push.settle("extend", pushed.receipt, leasemills=4 * LEASE)
        await push.nothing(wait=6 * LEASE)
        await talk.nothing()
        await push.settle("ack", pushed.receipt)
    await talk.nothing()


async def test_a_nack_on_the_same_connection_makes_the_message_ready_after_its_delay(talk: Conversation) -> None:
    """
    > (nack: after its delay).
    """
    await talk.produce(b"again")
    async with pushing(talk) as push:
        for count in (1, 2, 3):
            pushed = await push.take()
            assert pushed.count == count
            await push.settle("nack", pushed.receipt, delaymills=300 * (count - 1))


@pytest.mark.parametrize("how", ["reset", "closed", "ended"])
async def test_what_was_not_acknowledged_goes_back_at_once_however_the_stream_ends(
    talk: Conversation, how: str
) -> None:
    """
    > the end of a push stream

    > when it ends, what was not acknowledged goes back at once.

    > deliveryCount is 1 on the first delivery, and one more on each.
    """
    for number in range(3):
        await talk.produce(b"%d" % number)
    lease = LEASE if how == "ended" else 900_000
    async with pushing(talk, leasemills=lease, maxmessages=3 if how == "ended" else 4) as push:
        first, second, third = await push.take_all(3)
        await push.settle("ack", second.receipt)
        if how == "reset":
            push.frames.reset(push.number)
        elif how == "closed":
            push.frames.hang_up()
        else:
            assert await push.end() == {"end": "maxmessages"}
        back = [await talk.take() for _ in range(2)]
        assert {(taken.body, taken.count) for taken in back} == {(first.body, 2), (third.body, 2)}
        refused(await talk.settle("ack", first.receipt), 410, "lease-ended")
        for taken in back:
            await talk.ack(taken.receipt)
    await talk.nothing()


@pytest.mark.wire
async def test_what_goes_back_comes_on_another_stream_at_once(talk: Conversation) -> None:
    """
    > when it ends, what was not acknowledged goes back at once.
    """
    await talk.produce(b"again")
    async with pushing(talk, leasemills=900_000) as push:
        assert (await push.take()).count == 1
        async with pushing(talk) as successor:
            await successor.nothing()
            push.frames.hang_up()
            pushed = await successor.take()
            assert (pushed.body, pushed.count) == (b"again", 2)


async def test_a_reader_that_stops_reading_stops_the_bridge_from_fetching(talk: Conversation, bridge: Target) -> None:
    """
    > The HTTP/2 window is the back-pressure: a reader that stops reading stops the bridge from fetching.
    """
    size = min(50_000, bridge.limit("body"))
    for _ in range(60):
        await talk.produce(bytes(size))
    async with pushing(talk, ack="false", window=1000) as push:
        await push.head()
        left = 0
        while (await talk.get(ack="false", waitmills=500)).status_code == 200:
            left += 1
        assert left >= 30, f"{60 - left} messages of {size} bytes are gone"
        assert len(push.frames.body_of(push.number)) <= 1000


@pytest.mark.wire
async def test_at_most_once_a_message_is_settled_before_its_first_byte_is_read(talk: Conversation) -> None:
    """
    > - **At most once**: without ack the message is settled before its bytes are sent.
    """
    await talk.produce(b"never read")
    async with pushing(talk, ack="false", leasemills=100, window=0) as push:
        await push.head()
        await talk.nothing(wait=400)
    await talk.nothing(wait=400)
