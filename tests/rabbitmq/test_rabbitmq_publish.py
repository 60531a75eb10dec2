"""What becomes of a message: stored, not stored, or unknown; and one mistake touches no other message."""

import asyncio
import re
from collections.abc import Iterator
from uuid import uuid4

import pytest
from pika import BasicProperties

from adapters.amqp.messages import Outgoing
from adapters.base import Stored
from adapters.rabbitmq.publish import publisher
from adapters.rabbitmq.publish.confirm_channel import is_missing, is_unroutable
from bridge.errors import (
    BackendFull,
    BackendUnavailable,
    BodyTooLarge,
    DestinationUnknown,
    HeaderInvalid,
    HeadersTooLarge,
    NotStored,
    OutcomeUnknown,
    Refused,
)
from tests.brokers.provide import own_rabbitmq
from tests.brokers.rabbitmq import RabbitMQ
from tests.rabbitmq.linked import Desk, desk, outcomes, until

FRAME = 131_072
LIMIT = 1 << 20
PASSWORD = "narrow"  # noqa: S105 - of a broker that ends with the tests
STORED = Stored(None, None)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """One to stop, and that takes no large messages and few channels."""
    settings = {"max_message_size": str(LIMIT), "channel_max": "20"}
    with own_rabbitmq(tmp_path_factory.mktemp("publish") / "rabbit", settings=settings) as rabbit:
        yield rabbit


def gone(result: Stored | BaseException) -> bool:
    return isinstance(result, NotStored) and is_missing(result)


async def proven(to: Desk, exchange: str) -> None:
    """Have a channel of the exchange that has taken a message."""
    await to.send(exchange)
    await until(lambda: to.publisher._routes[exchange, ""]._verified)


async def test_stored_in_order_whatever_their_size(rabbitmq_url: str) -> None:
    async with desk(rabbitmq_url) as to:
        exchange = await to.exchange()
        queue = await to.queue(exchange)
        sizes = [0, 1, FRAME - 9, FRAME - 8, FRAME - 7, 2 * FRAME, 1_000_000, *range(100)]
        bodies = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
        sent = [to.send(exchange, body) for body in bodies]
        assert await outcomes(sent) == [STORED] * len(bodies)
        assert await to.take(queue, len(bodies)) == bodies


async def test_whoever_waits_is_told_what_was_asked_for(rabbitmq_url: str) -> None:
    async with desk(rabbitmq_url) as to:
        queue = await to.queue()
        outgoing = Outgoing("", queue, BasicProperties(), b"")
        assert await to.publisher.send(outgoing, stored=Stored(3, None)) == Stored(3, None)


async def test_many_at_once_over_many_exchanges(rabbitmq_url: str) -> None:
    async with desk(rabbitmq_url) as to:
        exchanges = [await to.exchange() for _ in range(20)]
        queues = [await to.queue(exchange) for exchange in exchanges]
        sent = [to.send(exchange, b"%d" % number) for number in range(100) for exchange in exchanges]
        assert set(await outcomes(sent)) == {STORED}
        for queue in queues:
            assert await to.take(queue, 100) == [b"%d" % number for number in range(100)]


async def test_what_no_queue_takes_is_not_stored(rabbitmq_url: str) -> None:
    async with desk(rabbitmq_url) as to:
        exchange = await to.exchange()
        queue = await to.queue(exchange, "in")
        for _ in range(2):  # first on a new channel, then on one that has taken messages
            keys = ["out", "in", "out", "out", "in"]
            results = await outcomes([to.send(exchange, routing_key=key) for key in keys])
            assert [is_unroutable(result) for result in results if isinstance(result, NotStored)] == [True] * 3
            assert [keys[at] for at, result in enumerate(results) if result == STORED] == ["in", "in"]
        assert await to.held(queue) == 4


async def test_a_missing_exchange_touches_no_other_message(rabbitmq_url: str) -> None:
    told: list[str] = []
    async with desk(rabbitmq_url) as to:
        to.publisher.on_exchange_missing = told.append
        exchange = await to.exchange()
        queue = await to.queue(exchange)
        missing = f"none-{uuid4().hex}"
        sent = [to.send(missing if number % 3 == 0 else exchange) for number in range(300)]
        results = await outcomes(sent)
        assert all(gone(result) for result in results[::3])
        assert {result for at, result in enumerate(results) if at % 3} == {STORED}
        assert await to.held(queue) == 200
        assert set(told) == {missing}


async def test_an_exchange_deleted_under_load(rabbitmq_url: str) -> None:
    """Whatever is said to be stored is, whatever is said not to be stored is not, and it goes on automatically."""
    told: list[str] = []
    async with desk(rabbitmq_url) as to:
        to.publisher.on_exchange_missing = told.append
        exchange, other = await to.exchange(), await to.exchange()
        queue, other_queue = await to.queue(exchange), await to.queue(other)
        await proven(to, exchange)
        await proven(to, other)
        sent: list[asyncio.Future[Stored]] = []

        async def load() -> None:
            while not told:
                sent.extend((to.send(exchange, b"%d" % len(sent)), to.send(other, b"%d" % (len(sent) + 1))))
                await asyncio.sleep(0)

        loading = asyncio.ensure_future(load())
        await until(lambda: len(sent) > 200)
        await to.beside.ask(exchange, "exchange_delete", exchange=exchange)
        await loading
        results = await outcomes(sent)
        assert sum(gone(result) for result in results) >= 1
        assert told[0] == exchange

        stored = {int(body) for body in await to.take(queue, await to.held(queue)) if body != b"x"}
        stored |= {int(body) for body in await to.take(other_queue, await to.held(other_queue)) if body != b"x"}
        for number, result in enumerate(results):
            if result == STORED:
                assert number in stored
            elif isinstance(result, NotStored):
                assert number not in stored
            else:
                assert isinstance(result, OutcomeUnknown)
        results = await outcomes([to.send((exchange, other)[number % 2]) for number in range(50)])
        assert all(gone(result) for result in results[::2])
        assert set(results[1::2]) == {STORED}
        await to.beside.ask(exchange, "exchange_declare", exchange=exchange, exchange_type="topic")
        await to.beside.ask(queue, "queue_bind", queue=queue, exchange=exchange, routing_key="#")
        assert await to.send(exchange) == STORED


async def test_what_came_before_and_after_the_mistake_is_stored(rabbitmq_url: str) -> None:
    """Each exchange and each queue has its own channel: one that is closed touches the messages of no other."""
    async with desk(rabbitmq_url) as to:
        exchange = await to.exchange()
        queue = await to.queue()
        await to.queue(exchange)
        await proven(to, exchange)
        await to.send("", routing_key=queue)
        await to.beside.ask(exchange, "exchange_delete", exchange=exchange)
        sent = [to.send("", b"before", routing_key=queue), to.send(exchange), to.send("", b"after", routing_key=queue)]
        before, at, after = await outcomes(sent)
        assert gone(at)
        assert before == after == STORED
        assert await to.take(queue, 3) == [b"x", b"before", b"after"]


async def test_messages_wait_in_order_while_the_channel_is_opened_again(rabbitmq_url: str) -> None:
    async with desk(rabbitmq_url) as to:
        exchange = await to.exchange()
        await to.queue(exchange)
        await proven(to, exchange)
        await to.beside.ask(exchange, "exchange_delete", exchange=exchange)
        assert gone(*await outcomes([to.send(exchange)]))
        await to.beside.ask(exchange, "exchange_declare", exchange=exchange, exchange_type="topic", auto_delete=True)
        queue = await to.queue(exchange)
        assert to.publisher._routes[exchange, ""].channel is None, "it was closed over the exchange"
        sent = [to.send(exchange, b"%d" % number) for number in range(50)]
        assert set(await outcomes(sent)) == {STORED}
        assert await to.take(queue, 50) == [b"%d" % number for number in range(50)]


async def test_more_exchanges_than_channels(rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The channel of the one that was used least recently goes to the next; messages stay in order."""
    monkeypatch.setattr(publisher, "_CHANNELS", 3)
    async with desk(rabbitmq_url) as to:
        exchanges = [await to.exchange() for _ in range(10)]
        queues = [await to.queue(exchange) for exchange in exchanges]
        channels = set()
        for number in range(5):
            for exchange in exchanges:
                sent = [to.send(exchange, b"%d" % each) for each in (2 * number, 2 * number + 1)]
                assert await outcomes(sent) == [STORED] * 2
                channels.add(to.publisher._routes[exchange, ""].channel)
        assert len(channels) == len(to.publisher._routes) == 3
        kept = list(to.publisher._routes)
        assert kept == [(exchange, "") for exchange in exchanges[-3:]]
        assert await to.send(exchanges[-3]) == STORED, "it is known: it keeps its channel"
        assert await to.send(exchanges[0]) == STORED
        assert [exchange for exchange, _ in to.publisher._routes] == [exchanges[-1], exchanges[-3], exchanges[0]]
        missing = to.send(f"none-{uuid4().hex}")
        assert gone(*await outcomes([missing]))
        for at, queue in enumerate(queues):
            assert (await to.take(queue, 10 + (at in {0, 7})))[:10] == [b"%d" % number for number in range(10)]
        sent = [to.send(exchange) for exchange in exchanges]
        assert await outcomes(sent) == [STORED] * 10, "all at once: none waits for a channel of another"


@pytest.mark.extended
async def test_more_exchanges_than_channels_that_the_broker_allows(broker: RabbitMQ) -> None:
    async with desk(broker.url) as to:
        for _ in range(25):
            exchange = await to.exchange()
            await to.queue(exchange)
            assert await to.send(exchange) == STORED
        assert len(to.publisher._routes) == 10


async def test_what_would_end_the_connection_is_not_written(rabbitmq_url: str) -> None:
    cases = (
        (BasicProperties(headers={"h": "x" * FRAME}), HeadersTooLarge),
        (BasicProperties(headers={"h": 1.5}), HeaderInvalid),
        (BasicProperties(message_id="x" * 256), HeaderInvalid),
    )
    async with desk(rabbitmq_url) as to:
        exchange = await to.exchange()
        queue = await to.queue(exchange)
        for properties, error in cases:
            for _ in range(2):
                wrong = to.publisher.send(Outgoing(exchange, "p0", properties, b"wrong"))
                results = await outcomes([wrong, to.send(exchange), to.send(exchange)])
                assert isinstance(results[0], error), properties
                assert results[1:] == [STORED] * 2, properties
            unwaited = to.publisher.send(Outgoing(exchange, "p0", properties, b"wrong"), confirmed=False)
            assert isinstance((await outcomes([unwaited]))[0], error), "it is certain at once"
            assert await to.take(queue, 4) == [b"x"] * 4, properties


async def test_a_queue_that_is_full(rabbitmq_url: str) -> None:
    """Through an exchange others may have stored it; the default exchange leads to one queue."""
    async with desk(rabbitmq_url) as to:
        exchange = await to.exchange()
        queue = f"q-{uuid4().hex}"
        full = {"x-max-length": 1, "x-overflow": "reject-publish"}
        await to.beside.ask(queue, "queue_declare", queue=queue, durable=True, arguments=full)
        await to.beside.ask(queue, "queue_bind", queue=queue, exchange=exchange, routing_key="#")
        await proven(to, exchange)
        nacked, *others = await outcomes([to.send(exchange) for _ in range(5)])
        assert isinstance(nacked, OutcomeUnknown)
        assert all(isinstance(other, OutcomeUnknown | NotStored) for other in others)
        tried, *untried = await outcomes([to.send(exchange) for _ in range(5)])
        assert isinstance(tried, OutcomeUnknown)
        assert all(isinstance(other, NotStored) for other in untried)
        direct = await outcomes([to.send("", routing_key=queue) for _ in range(5)])
        assert isinstance(direct[0], BackendFull)
        assert all(isinstance(other, NotStored) for other in direct)
        await to.beside.ask(queue, "queue_purge", queue=queue)
        assert await to.send(exchange) == STORED


async def test_a_full_queue_fails_no_message_to_another_queue(rabbitmq_url: str) -> None:
    """The default exchange leads to all queues: clients' existing ones and the bridge's own."""
    async with desk(rabbitmq_url) as to:
        queue, full = await to.queue(), f"q-{uuid4().hex}"
        rejecting = {"x-max-length": 1, "x-overflow": "reject-publish", "x-expires": 600_000}
        await to.beside.ask(full, "queue_declare", queue=full, durable=True, arguments=rejecting)
        assert await to.send("", routing_key=full) == STORED
        assert isinstance((await outcomes([to.send("", routing_key=full)]))[0], BackendFull)
        sent = [to.send("", routing_key=(full, queue)[number % 2]) for number in range(200)]
        results = await outcomes(sent)
        assert set(results[1::2]) == {STORED}
        assert any(isinstance(result, BackendFull) for result in results[::2])
        assert await to.held(queue) == 100


async def test_what_nobody_wants_confirmed_is_done_at_once(rabbitmq_url: str) -> None:
    async with desk(rabbitmq_url) as to:
        exchange = await to.exchange()
        queue = await to.queue(exchange)
        await proven(to, exchange)
        sent = [to.send(exchange, b"%d" % number, confirmed=False) for number in range(3000)]
        assert all(future.done() for future in sent[:1000])
        assert not sent[-1].done()  # memory is bounded: from some number on it is waited for
        await outcomes(sent)
        assert await to.take(queue, 3001) == [b"x", *(b"%d" % number for number in range(3000))]
        missing = to.send(f"none-{uuid4().hex}", confirmed=False)
        await asyncio.wait((missing,))
        assert is_missing(missing.exception())


async def test_closing_waits_for_what_was_accepted(rabbitmq_url: str) -> None:
    async with desk(rabbitmq_url) as to:
        exchange = await to.exchange()
        queue = await to.queue(exchange)
        sent = [to.send(exchange) for _ in range(500)]
        await to.publisher.close()
        assert set(await outcomes(sent)) == {STORED}
        assert await to.held(queue) == 500
        assert isinstance((await outcomes([to.send(exchange)]))[0], BackendUnavailable)


@pytest.mark.extended
async def test_no_permission_on_one_exchange(broker: RabbitMQ) -> None:
    broker.ctl("add_user", "narrow", PASSWORD)
    broker.ctl("set_permissions", "narrow", ".*", "x-.*", ".*")
    async with desk(broker.url_of(user="narrow", password=PASSWORD), broker.url) as to:
        exchange = await to.exchange()
        queue = await to.queue(exchange)
        forbidden = f"forbidden-{uuid4().hex}"
        await to.beside.ask(forbidden, "exchange_declare", exchange=forbidden, exchange_type="fanout")
        sent = [to.send(forbidden if number % 3 == 0 else exchange) for number in range(300)]
        results = await outcomes(sent)
        assert all(isinstance(result, Refused) and forbidden in result.detail for result in results[::3])
        assert {result for at, result in enumerate(results) if at % 3} == {STORED}
        assert await to.held(queue) == 200
        broker.ctl("set_permissions", "narrow", ".*", ".*", ".*")
        to_forbidden = await to.queue(forbidden)
        assert await to.send(forbidden) == STORED
        assert await to.held(to_forbidden) == 1


@pytest.mark.extended
async def test_a_message_larger_than_the_broker_takes(broker: RabbitMQ) -> None:
    async with desk(broker.url) as to:
        exchange = await to.exchange()
        queue = await to.queue(exchange)
        assert await to.send(exchange, b"x" * LIMIT) == STORED
        sizes = [LIMIT + 1, LIMIT]
        for _ in range(3):
            large, fits = await outcomes([to.send(exchange, b"x" * size) for size in sizes])
            assert isinstance(large, BodyTooLarge)
            assert fits == STORED or isinstance(fits, NotStored)
        assert await to.send(exchange) == STORED
        assert await to.held(queue) >= 2


@pytest.mark.extended
async def test_an_alarm(broker: RabbitMQ) -> None:
    """What comes after `connection.blocked` is refused at once; what was under way is stored when the alarm ends."""
    async with desk(broker.url) as to:
        exchange = await to.exchange()
        queue = await to.queue(exchange)
        await proven(to, exchange)
        broker.ctl("set_vm_memory_high_watermark", "0.0000001")
        try:
            under_way = to.send(exchange, b"under way")
            await until(lambda: to.link.blocked is not None)
            refused = to.send(exchange, b"refused")
            assert refused.done()
            error = refused.exception()
            assert isinstance(error, BackendUnavailable)
            assert "memory" in error.detail
            assert error.retry_after
            assert not under_way.done()
        finally:
            broker.ctl("set_vm_memory_high_watermark", "0.4")
        assert await under_way == STORED
        await until(lambda: to.link.blocked is None)
        assert await to.send(exchange, b"again") == STORED
        assert await to.take(queue, 3) == [b"x", b"under way", b"again"]


@pytest.mark.extended
async def test_a_connection_that_is_lost(broker: RabbitMQ) -> None:
    async with desk(broker.url) as to:
        kept = f"x-{uuid4().hex}"
        await to.beside.ask(kept, "exchange_declare", exchange=kept, exchange_type="topic", durable=True)
        queue = await to.queue(kept)
        await proven(to, kept)
        sent = [to.send(kept, b"%d" % number) for number in range(2000)]
        waiting = to.send(f"new-{uuid4().hex}")
        await until(lambda: any(future.done() for future in sent))
        broker.kill()
        results = await outcomes([*sent, waiting])
        assert all(result == STORED or isinstance(result, OutcomeUnknown) for result in results[:-1])
        assert isinstance(results[-1], OutcomeUnknown | NotStored | DestinationUnknown)  # or the broker was quick
        refused = to.send(kept)
        assert isinstance(refused.exception(), BackendUnavailable)
        broker.start()
        await until(lambda: to.link.up)
        assert await to.send(kept, b"after") == STORED
    async with desk(broker.url) as after:
        there = {int(body) for body in await after.take(queue, await after.held(queue)) if re.fullmatch(rb"\d+", body)}
        assert {number for number, result in enumerate(results[:-1]) if result == STORED} <= there
