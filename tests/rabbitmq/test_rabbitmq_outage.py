"""What was not sent when the connection is lost, or during an alarm, waits, and is sent in order when that is over."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest
from pika import BasicProperties

from adapters.amqp.link import Link
from adapters.amqp.messages import Outgoing
from adapters.base import Delivery, Stored
from adapters.rabbitmq.adapter import RabbitMQAdapter
from adapters.rabbitmq.consume.repeated_arrivals import RepeatedArrivals
from adapters.rabbitmq.headers import STORED as STORED_AT
from adapters.rabbitmq.options import parse
from adapters.rabbitmq.publish.confirm_channel import PendingPublish
from adapters.rabbitmq.publish.publisher import Publisher, RouteChannel
from adapters.rabbitmq.topology import destinations
from bridge.errors import BackendUnavailable, NotStored, OutcomeUnknown
from tests.brokers.rabbitmq import RabbitMQ
from tests.rabbitmq.bridged import backend
from tests.rabbitmq.linked import SECONDS, Desk, desk, outcomes, until
from tests.rabbitmq.waiting import completed

STORED = Stored(None, None)
NO_MEMORY, SOME_MEMORY = "0.0000001", "0.4"
"""Parts of the machine's memory from which on RabbitMQ accepts no messages: always, and as it comes."""


def patient(publisher: Publisher, exchange: str, body: bytes, seconds: float = SECONDS) -> asyncio.Future[Stored]:
    """Publish a message that waits for the broker."""
    properties = BasicProperties(message_id=uuid4().hex, delivery_mode=2)
    deadline = asyncio.get_running_loop().time() + seconds
    return publisher.send(Outgoing(exchange, "p0", properties, body), deadline=deadline)


async def lose(to: Desk) -> None:
    """Lose the connection of the publisher."""
    lost: list[Exception] = []
    to.link.on_lost.append(lost.append)
    connection = to.link._connection
    assert connection is not None
    connection.abort()
    await until(lambda: bool(lost))


async def test_messages_that_were_sent_and_not_confirmed_are_sent_again_in_order(rabbitmq_url: str) -> None:
    """Whether the broker had read them or not; consumers drop the second copies."""
    async with desk(rabbitmq_url) as to:
        exchange = await to.exchange()
        queue = await to.queue(exchange)
        await to.send(exchange)
        sent = []
        for number in range(500):
            headers = {STORED_AT: number}
            properties = BasicProperties(message_id=uuid4().hex, headers=headers, delivery_mode=2)
            deadline = asyncio.get_running_loop().time() + SECONDS
            outgoing = Outgoing(exchange, "p0", properties, b"%d" % number)
            sent.append(to.publisher.send(outgoing, deadline=deadline, resend=number != 100))
            if number % 100 == 99:
                await asyncio.sleep(0)
        refused = to.send(exchange, b"by the bridge")
        await lose(to)
        assert isinstance(refused.exception(), OutcomeUnknown)
        later = patient(to.publisher, exchange, b"500")
        unsure, *answers = await outcomes([sent.pop(100), *sent, later])
        assert unsure == STORED or isinstance(unsure, OutcomeUnknown)
        assert answers == [STORED] * 500
        seen = RepeatedArrivals()
        came = [arrival.body for arrival in await to.arrivals(queue, b"500") if not seen.repeats(arrival)]
        assert [body for body in came if body not in {b"x", b"by the bridge", b"100"}] == [
            b"%d" % number for number in range(501) if number != 100
        ]


async def test_a_message_that_was_sent_and_waits_too_long_to_be_sent_again_is_unknown() -> None:
    sent = PendingPublish(Outgoing("x", "p0", BasicProperties(), b"x"), stored=STORED, deadline=0.0, resend=True)
    publisher = Publisher(parse("amqp://127.0.0.1:1"), Link(parse("amqp://127.0.0.1:1"), "test"))
    RouteChannel(publisher).send_again([sent])
    (error,) = await outcomes([sent.done])
    assert isinstance(error, OutcomeUnknown)
    assert "may have stored it" in error.detail


@pytest.mark.parametrize("proven", [True, False], ids=["an exchange that is known", "a new one"])
async def test_messages_wait_for_a_lost_connection_in_order(rabbitmq_url: str, *, proven: bool) -> None:
    async with desk(rabbitmq_url) as to:
        exchange = await to.exchange()
        queue = await to.queue(exchange)
        if proven:
            await to.send(exchange)
        await lose(to)
        sent = [patient(to.publisher, exchange, b"%d" % number) for number in range(100)]
        refused = to.send(exchange, b"by the bridge")
        assert isinstance(refused.exception(), BackendUnavailable), "only what a client waits for is kept"
        await until(lambda: to.link.up)
        sent += [patient(to.publisher, exchange, b"%d" % number) for number in range(100, 200)]
        assert await outcomes(sent) == [STORED] * 200
        assert await to.take(queue, 200 + proven) == [*[b"x"] * proven, *(b"%d" % number for number in range(200))]
        assert not any(route.waiting for route in to.publisher._routes.values())


async def test_messages_wait_whose_exchange_was_being_tried(rabbitmq_url: str) -> None:
    """The connection is lost before the first message to an exchange is written: it and those behind it wait."""
    async with desk(rabbitmq_url) as to:
        exchange = await to.exchange()
        queue = await to.queue(exchange)
        sent = [patient(to.publisher, exchange, b"%d" % number) for number in range(50)]
        await asyncio.sleep(0)  # a channel is being opened for the first one
        await lose(to)
        sent += [patient(to.publisher, exchange, b"%d" % number) for number in range(50, 100)]
        assert await outcomes(sent) == [STORED] * 100
        assert await to.take(queue, 100) == [b"%d" % number for number in range(100)]


async def test_a_message_that_has_waited_too_long_is_not_stored() -> None:
    options = parse("amqp://127.0.0.1:1")  # nothing listens there
    publisher = Publisher(options, Link(options, "test"))
    waiting = patient(publisher, "x", b"x" * 100, seconds=SECONDS)
    late = patient(publisher, "x", b"x" * 100, seconds=0.01)
    (error,) = await outcomes([late])
    assert isinstance(error, BackendUnavailable)
    assert not waiting.done()
    assert len(publisher._routes["x", ""].waiting) == 1, "the memory of the other one is free"
    await publisher.close()
    assert isinstance(waiting.exception(), NotStored)


@asynccontextmanager
async def adapter(url: str) -> AsyncIterator[RabbitMQAdapter]:
    """An adapter with a new prefix, closed at the end."""
    found = RabbitMQAdapter(parse(backend(url, partitions=2)))
    try:
        await found.start()
        yield found
    finally:
        await found.close()


def nobody(_partitions: object) -> Sequence[Delivery]:
    """Give nothing back."""
    return ()


@pytest.mark.extended
async def test_an_adapter_waits_for_a_broker_that_is_restarted(
    stoppable_rabbitmq: RabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A known destination, one that is new, and messages that are delayed."""
    monkeypatch.setattr(destinations, "REQUEST_TIMEOUT", SECONDS * 1000)  # the broker may start slowly
    known, new = f"known-{uuid4().hex[:8]}", f"new-{uuid4().hex[:8]}"
    async with adapter(stoppable_rabbitmq.url) as to:
        await to.partitions(known)
        groups = {known: await to.subscribe(known, "app", nobody)}
        assert await to.publish(completed(known, b"before", partition=0)) == Stored(0, None)
        await asyncio.to_thread(stoppable_rabbitmq.stop)
        await until(lambda: not to._publishing.up and not to._consuming.up)
        assert to.known_partitions(known) == 2
        sent = [to.publish(completed(known, b"%d" % number, partition=0)) for number in range(50)]
        sent += [to.publish(completed(known, b"delayed", delay=500, partition=0))]
        asking = asyncio.create_task(to.partitions(new))
        await asyncio.sleep(0.3)
        assert not any(future.done() for future in sent)
        assert not asking.done()
        await asyncio.to_thread(stoppable_rabbitmq.start)
        assert await outcomes(sent) == [Stored(0, None)] * 50 + [STORED]
        assert await asking == 2
        bodies: list[bytes] = []
        async with asyncio.timeout(SECONDS):
            while not {b"49", b"delayed"} <= set(bodies):
                bodies += [each.message.body for each in await groups[known].fetch(100, 1 << 20)]
        assert [body for body in bodies if body.isdigit()] == [b"%d" % number for number in range(50)]


@pytest.mark.extended
async def test_messages_wait_for_the_end_of_an_alarm(stoppable_rabbitmq: RabbitMQ) -> None:
    """The connection stays, too: nothing is asked on it that the broker does not read."""
    async with desk(stoppable_rabbitmq.url) as to:
        exchange = await to.exchange()
        queue = await to.queue(exchange)
        await to.send(exchange)
        lost: list[Exception] = []
        to.link.on_lost.append(lost.append)
        await asyncio.to_thread(stoppable_rabbitmq.ctl, "set_vm_memory_high_watermark", NO_MEMORY)
        try:
            under_way = patient(to.publisher, exchange, b"under way")
            await until(lambda: to.link.blocked is not None)
            with pytest.raises(BackendUnavailable, match="memory"):
                await to.link.channel()
            late = patient(to.publisher, exchange, b"late", seconds=0.01)
            (error,) = await outcomes([late])
            assert isinstance(error, BackendUnavailable)
            assert "memory" in error.detail
            waiting = [patient(to.publisher, exchange, b"%d" % number) for number in range(20)]
            new = await to.exchange()
            new_queue = await to.queue(new)
            waiting += [patient(to.publisher, new, b"new")]
            assert not under_way.done()
        finally:
            await asyncio.to_thread(stoppable_rabbitmq.ctl, "set_vm_memory_high_watermark", SOME_MEMORY)
        assert await outcomes([under_way, *waiting]) == [STORED] * 22
        assert await to.take(queue, 22) == [b"x", b"under way", *(b"%d" % number for number in range(20))]
        assert await to.take(new_queue, 1) == [b"new"]
        assert not lost


@pytest.mark.extended
async def test_a_connection_on_which_a_channel_is_asked_for_survives_an_alarm(stoppable_rabbitmq: RabbitMQ) -> None:
    """The alarm begins after the question: it is answered when the alarm is over, and the connection stays."""
    async with desk(stoppable_rabbitmq.url) as to:
        exchange = await to.exchange()
        await to.queue(exchange)
        await to.send(exchange)
        await asyncio.to_thread(stoppable_rabbitmq.ctl, "set_vm_memory_high_watermark", NO_MEMORY)
        try:
            under_way = to.send(exchange)  # from here on the broker reads nothing
            await asyncio.sleep(0)
            with pytest.raises(BackendUnavailable, match="memory"):
                await to.link.channel()  # as long as a request may take
            assert to.link.up
            assert not under_way.done()
        finally:
            await asyncio.to_thread(stoppable_rabbitmq.ctl, "set_vm_memory_high_watermark", SOME_MEMORY)
        (result,) = await outcomes([under_way])
        assert not isinstance(result, OutcomeUnknown), "the connection was not given up"
        assert result == STORED


@pytest.mark.extended
async def test_a_queue_that_rabbitmq_fails_to_create_ends_neither_publishing_nor_consuming(
    stoppable_rabbitmq: RabbitMQ,
) -> None:
    """RabbitMQ closes the connection on which the queue was declared, with 541 INTERNAL_ERROR."""
    destination = f"orders-{uuid4().hex[:8]}"
    [folder] = stoppable_rabbitmq.nodes[0].data.glob("*/quorum/*")
    async with adapter(stoppable_rabbitmq.url) as to:
        await to.partitions(destination)
        group = await to.subscribe(destination, "app", nobody)
        lost: list[BackendUnavailable] = []
        for link in (to._publishing, to._consuming):
            link.on_lost.append(lost.append)
        away = folder.rename(folder.with_name("away"))
        folder.touch()  # no quorum queue can be created
        try:
            with pytest.raises(BackendUnavailable, match="541 INTERNAL_ERROR"):
                await to.subscribe(destination, "late", nobody)
        finally:
            folder.unlink()
            away.rename(folder)
        assert await to.publish(completed(destination, b"stored", partition=0)) == Stored(0, None)
        async with asyncio.timeout(SECONDS):
            assert [each.message.body for each in await group.fetch(1, 1 << 20)] == [b"stored"]
        assert not lost
