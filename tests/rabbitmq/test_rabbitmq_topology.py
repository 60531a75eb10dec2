"""What is declared in a real RabbitMQ for a destination: once, by the first one, and again if it was removed."""

import asyncio
from random import random
from uuid import uuid4

import pytest

from adapters.amqp.messages import Outgoing
from adapters.amqp.properties import Properties
from adapters.rabbitmq.options import Existing, Options, parse
from adapters.rabbitmq.publish.confirm_channel import is_missing, is_unroutable
from adapters.rabbitmq.topology import declarations, names
from adapters.rabbitmq.topology.destinations import Destinations
from adapters.rabbitmq.topology.names import Source
from bridge.errors import BackendUnavailable, DestinationInvalid, DestinationUnknown, Refused
from tests.rabbitmq.rooms import message, rooms

PARTITIONS = 3


@pytest.fixture
def options(rabbitmq_url: str) -> Options:
    return parse(f"{rabbitmq_url}?prefix=t{uuid4().hex[:8]}.&partitions={PARTITIONS}")


@pytest.fixture
def orders() -> str:
    return f"orders-{uuid4().hex[:8]}"


async def test_every_key_reaches_each_group_once(options: Options, orders: str) -> None:
    """Keys of partitions go to those, with words before them or not; all others to partition 0."""
    keys = {"p0": 0, "p1": 1, "p2": 2, "0.0.0.p2": 2, "x.p1": 1, "p3": 0, "p01": 0, "": 0, "a.b": 0, "p1.a": 0, "P1": 0}
    expected = [sorted(key.encode() for key, at in keys.items() if at == partition) for partition in range(PARTITIONS)]
    async with rooms(options) as bridge:
        early = await bridge.sources(orders, "early")
        for key in keys:
            await bridge.publisher.send(Outgoing(orders, key, Properties(), key.encode()))
        for sources in (early, await bridge.sources(orders, "late")):
            assert [sorted(bodies) for bodies in await bridge.read(sources)] == expected


async def _found_or_created(destinations: Destinations, destination: str) -> int:
    """Ask as the engine does."""
    await asyncio.sleep(random() / 50)  # noqa: S311
    try:
        return await destinations.partitions(destination, create=False)
    except DestinationUnknown:
        return await destinations.partitions(destination, create=True)


async def test_many_who_ask_share_one_question(options: Options, orders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rooms(options) as bridge:
        opened = 0
        channel = bridge.declaring.channel

        async def counted() -> object:
            nonlocal opened
            opened += 1
            return await channel()

        monkeypatch.setattr(bridge.declaring, "channel", counted)
        assert await asyncio.gather(*(bridge.destinations.partitions(orders) for _ in range(50))) == [PARTITIONS] * 50
        assert await bridge.destinations.partitions(orders) == PARTITIONS
        assert opened == 1
        await asyncio.gather(*(_found_or_created(bridge.destinations, f"{orders}.found") for _ in range(50)))
        assert opened == 2, "what is found while it is created is not declared a second time meanwhile"
        asking = asyncio.create_task(bridge.destinations.partitions(f"{orders}.other"))
        await asyncio.sleep(0)
        asking.cancel()
        assert await bridge.destinations.partitions(f"{orders}.other") == PARTITIONS


async def test_an_exchange_that_was_deleted_is_made_again(options: Options, orders: str) -> None:
    async with rooms(options) as bridge:
        sources = await bridge.sources(orders)
        await bridge.send(orders, [b"0"])
        await bridge.ask("exchange_delete", exchange=orders)
        with pytest.raises(BackendUnavailable) as refusal:
            await bridge.publish(message(orders, b"nowhere"))
        assert is_missing(refusal.value)
        await bridge.send(orders, [b"1"])
        assert (await bridge.read(sources))[0] == [b"0", b"1"]
        assert (await bridge.read(await bridge.sources(orders, "late")))[0] == [b"0", b"1"]


async def test_another_connection_is_told_everything_anew(options: Options, orders: str) -> None:
    async with rooms(options) as bridge:
        sources = await bridge.sources(orders)
        await bridge.ask("exchange_delete", exchange=orders)
        links = (bridge.declaring, bridge.consuming)
        came = [asyncio.Event() for _ in links]
        for link, event in zip(links, came, strict=True):
            link.on_connected.append(event.set)
        await bridge.lose()
        for event in came:  # in any order
            await event.wait()
        await bridge.send(orders, [b"1"])
        assert (await bridge.read(sources))[0] == [b"1"]


async def test_names_that_cannot_be_destinations(options: Options) -> None:
    async with rooms(options) as bridge:
        for name in ("orders.log", "orders.parts", "orders.rest", f"{options.prefix}orders"):
            with pytest.raises(DestinationInvalid):
                await bridge.destinations.partitions(name)


async def test_a_long_name_is_cut(options: Options) -> None:
    stem = uuid4().hex + "x" * 216
    async with rooms(options) as bridge:
        for orders, group in ((f"{stem}a", "g" * 249), (f"{stem}b", "g" * 248)):
            sources = await bridge.sources(orders, group)
            assert all(len(source.queue) <= names.NAME_MAX for source in sources)
            await bridge.send(orders, [orders[-1:].encode()])
            assert (await bridge.read(sources, orders))[0] == [orders[-1:].encode()]


async def test_where_nothing_is_created(options: Options, orders: str) -> None:
    async with rooms(options) as maker, rooms(options._replace(create=False)) as bridge:
        with pytest.raises(DestinationUnknown):
            await bridge.destinations.partitions(orders)
        await maker.send(orders, [b"0"])
        await bridge.catalogue.catch_up()
        assert await bridge.destinations.partitions(orders) == PARTITIONS
        assert (await bridge.read(await bridge.sources(orders)))[0] == [b"0"]
        await maker.ask("exchange_delete", exchange=orders)
        with pytest.raises(DestinationUnknown):
            await bridge.sources(orders)
        with pytest.raises(DestinationUnknown):
            await bridge.destinations.partitions(orders)
        maker.destinations.forget(orders)
        assert await maker.destinations.partitions(orders) == PARTITIONS
        assert await bridge.destinations.partitions(orders) == PARTITIONS


async def test_an_exchange_of_another_type_is_left_alone(options: Options, orders: str) -> None:
    """The answer says why; once the operator has named it, it is used as it is."""
    async with rooms(options) as bridge:
        await bridge.ask("exchange_declare", exchange=orders, exchange_type="fanout", durable=True)
        with pytest.raises(Refused, match="declared differently"):
            await bridge.destinations.partitions(orders)
    async with rooms(options._replace(destinations={orders: Existing(exchange=orders)})) as bridge:
        assert await bridge.destinations.partitions(orders) == 1
        await bridge.send(orders, [b"0"])
        assert await bridge.read(await bridge.sources(orders)) == [[b"0"]]


async def test_names_that_exist_already(options: Options) -> None:
    """An exchange has its own log and groups; a queue is what every group reads."""
    name = f"billing-{uuid4().hex[:8]}"
    invoices, refunds, legacy = (f"{kind}-{uuid4().hex[:8]}" for kind in ("invoices", "refunds", "legacy"))
    known = {
        invoices: Existing(exchange=name, routing_key="invoice.created"),
        refunds: Existing(exchange=name),
        legacy: Existing(queue=f"{name}.q"),
    }
    async with rooms(options._replace(destinations=known)) as bridge:
        for destination in known:
            with pytest.raises(DestinationUnknown):
                await bridge.sources(destination)
        await bridge.ask("exchange_declare", exchange=name, exchange_type="direct", durable=True)
        await bridge.ask("queue_declare", queue=f"{name}.q", durable=True)
        for destination in known:
            assert await bridge.destinations.partitions(destination) == 1
        await bridge.publisher.send(Outgoing(name, "invoice.created", Properties(), b"native"))
        await bridge.send(invoices, [b"old"])
        await bridge.send(refunds, [b"refund"])
        await bridge.send(legacy, [b"job"])
        assert await bridge.sources(legacy) == [Source(0, f"{name}.q", shared=True)]
        assert (await bridge.ask("queue_declare", queue=f"{name}.q", passive=True)).message_count == 1
        assert await bridge.read(await bridge.sources(invoices)) == [[b"native", b"old"]]
        assert await bridge.read(await bridge.sources(refunds)) == [[b"refund"]]


async def test_without_a_log_nobody_takes_what_comes_before_the_first_group(options: Options, orders: str) -> None:
    told = options._replace(destinations={orders: Existing(log=False)})
    async with rooms(told) as bridge:
        await bridge.destinations.partitions(orders)
        with pytest.raises(BackendUnavailable) as refusal:
            await bridge.publish(message(orders, b"nowhere"))
        assert is_unroutable(refusal.value)
        assert declarations.log(orders, bridge.destinations.log_bytes(orders)) == []
