"""Exchanges and queues that are deleted while a bridge uses them: it makes them anew, or says that it may not."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from adapters.rabbitmq.topology import names
from tests.conformance.conversation import Conversation, refused
from tests.rabbitmq.bridged import backend, bridged
from tests.trouble import PATIENCE, accepted, back_to, held, stored, taken

FEW = 2


@pytest.fixture
def native(rabbitmq_url: str) -> Iterator[BlockingChannel]:
    with closing(pika.BlockingConnection(pika.URLParameters(rabbitmq_url))) as connection:
        yield connection.channel()


@pytest.mark.extended
async def test_the_queues_are_deleted_under_a_consumer(
    tmp_path: Path, rabbitmq_url: str, native: BlockingChannel
) -> None:
    """The leases are over, what lay there is gone, and the group goes on with what comes from then on."""
    async with bridged(tmp_path, backend(rabbitmq_url, partitions=FEW)) as (bridge, talk):
        await talk.join()
        for number in range(10):
            await talk.produce(b"old %d" % number)
        leases = [await talk.take() for _ in range(3)]
        before = held(bridge)
        for partition in range(FEW):
            native.queue_delete(names.queue(talk.destination, talk.group, partition))
        for lease in leases:
            assert (await talk.settle("ack", lease.receipt)).status_code in {204, 410, 503, 504}
        await _all_come(talk)
        await back_to(bridge, before)


async def test_the_exchange_is_deleted_under_a_producer(
    tmp_path: Path, rabbitmq_url: str, native: BlockingChannel
) -> None:
    """It is made anew, bound as it was: groups and the log get what comes then."""
    async with bridged(tmp_path, backend(rabbitmq_url, partitions=FEW)) as (bridge, talk):
        await talk.join()
        await talk.produce(b"early", delaytime=200)  # what leads from the delays to the exchange goes with it, too
        assert await taken(talk, meanwhile=set()) == b"early"
        before = held(bridge)
        native.exchange_delete(talk.destination)
        await accepted(talk, b"new 0")
        for number in range(1, 10):
            await stored(talk, b"new %d" % number)
        await talk.produce(b"late", delaytime=300)
        bodies = [await taken(talk, meanwhile=set()) for _ in range(11)]
        assert bodies[-1] == b"late"
        assert sorted(bodies[:-1]) == [b"new %d" % number for number in range(10)]
        await talk.nothing()
        talk.group = "late-comer"
        bodies = [await taken(talk, meanwhile=set()) for _ in range(13)]
        assert len(set(bodies)) == 13, "the log has what was before and what was after"
        await talk.nothing()
        await back_to(bridge, before)


@pytest.mark.extended
async def test_everything_is_deleted_while_nothing_is_sent(
    tmp_path: Path, rabbitmq_url: str, native: BlockingChannel
) -> None:
    async with bridged(tmp_path, backend(rabbitmq_url, partitions=FEW)) as (bridge, talk):
        await talk.join()
        before = held(bridge)
        for partition in range(FEW):
            native.queue_delete(names.queue(talk.destination, talk.group, partition))
        for exchange in talk.destination, names.parts(talk.destination), names.rest(talk.destination):
            native.exchange_delete(exchange)
        native.queue_delete(names.log(talk.destination))
        await accepted(talk, b"the first")
        await _all_come(talk)
        await back_to(bridge, before)


async def test_a_deleted_exchange_is_unknown_where_none_is_made(
    tmp_path: Path, rabbitmq_url: str, native: BlockingChannel
) -> None:
    prefix = f"t{uuid4().hex[:8]}."
    async with bridged(tmp_path, backend(rabbitmq_url, partitions=FEW, prefix=prefix)) as (_, owner):
        await owner.join()
        async with bridged(tmp_path / "other", backend(rabbitmq_url, create="false", prefix=prefix)) as (_, talk):
            talk.destination = owner.destination
            await talk.produce(b"known")
            native.exchange_delete(talk.destination)
            async with asyncio.timeout(PATIENCE):
                while (answer := await talk.post(b"nowhere")).status_code == 503:
                    pass
            assert talk.destination in refused(answer, 404, "destination-unknown")
            await accepted(owner, b"there again")
            await accepted(talk, b"and here")
            assert {await taken(owner, meanwhile={503}) for _ in range(3)} == {b"known", b"there again", b"and here"}


async def test_an_existing_queue_is_deleted_and_made_again(
    tmp_path: Path, rabbitmq_url: str, native: BlockingChannel
) -> None:
    """The bridge never makes what is not its own, and goes on when another program has."""
    queue = f"legacy-{uuid4().hex[:8]}"
    native.queue_declare(queue, durable=True)
    file = tmp_path / "destinations.yaml"
    file.write_text(f"orders: {{queue: {queue}}}\n")
    async with bridged(tmp_path / "bridge", backend(rabbitmq_url, destinations=file)) as (bridge, talk):
        talk.destination = "orders"
        native.basic_publish("", queue, b"old")
        assert await taken(talk, meanwhile=set()) == b"old"
        before = held(bridge)
        native.queue_delete(queue)
        assert (await talk.get(waitmills=500)).status_code in {204, 404, 503}
        native.queue_declare(queue, durable=True)
        native.basic_publish("", queue, b"new")
        assert await taken(talk, meanwhile={404, 503}) == b"new"
        await back_to(bridge, before)
    native.queue_delete(queue)


async def _all_come(talk: Conversation) -> None:
    """Wait until the group is served again, and then make sure that nothing is missed and nothing comes twice."""
    async with asyncio.timeout(PATIENCE):
        body = b""
        while body != b"probe":
            await accepted(talk, b"probe")
            answer = await talk.get(waitmills=1000)
            assert answer.status_code in {200, 204, 503}, answer.text
            body = answer.content if answer.status_code == 200 else b""
        while (await talk.get(waitmills=200, ack="false")).status_code == 200:
            pass
    for number in range(20):
        await talk.produce(b"new %d" % number, messagekey=number)
    bodies = [await taken(talk, meanwhile=set()) for _ in range(20)]
    assert sorted(bodies) == sorted(b"new %d" % number for number in range(20))
