"""Groups that come late: what the log holds comes first, each message once and in its order, whatever goes on."""

import asyncio
from collections.abc import Callable
from itertools import count
from uuid import uuid4

import pytest

from adapters.amqp.messages import Arrival, Outgoing
from adapters.amqp.properties import Properties
from adapters.amqp.stream_consumer import Reader
from adapters.rabbitmq.group import late_messages
from adapters.rabbitmq.group.queues_and_history import END, marker
from adapters.rabbitmq.mapping import to_properties
from adapters.rabbitmq.options import Existing, Options, parse
from adapters.rabbitmq.topology import names
from adapters.rabbitmq.topology.names import Source
from adapters.rabbitmq.topology.shared_log import READ
from bridge.errors import BackendUnavailable, Refused
from tests.rabbitmq.rooms import LAST, Holder, Rooms, message, rooms, until

PARTITIONS = 3


@pytest.fixture
def options(rabbitmq_url: str) -> Options:
    return parse(f"{rabbitmq_url}?prefix=t{uuid4().hex[:8]}.&partitions={PARTITIONS}")


@pytest.fixture
def orders() -> str:
    return f"orders-{uuid4().hex[:8]}"


def numbered(amount: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + amount)]


def spread(bodies: list[bytes]) -> list[list[bytes]]:
    """Return what `Rooms.send` makes of them."""
    return [bodies[partition::PARTITIONS] for partition in range(PARTITIONS)]


def going_on(came: list[bytes], after: int, end: int) -> list[bytes]:
    """Return what the next holder of a partition may get, whose last one acknowledged so many and closed his channel.

    3.10.8 forgets the last acknowledgements of a channel that is closed right behind them (17 of 150, in 2 runs of some
    50): those messages come again, first and in their order. Nothing else may.
    """
    first = min(int(came[0]), after)
    return numbered(end - first, first)


async def test_what_was_before_comes_first_and_once(options: Options, orders: str) -> None:
    async with rooms(options) as bridge:
        await bridge.send(orders, numbered(600))
        sources = await bridge.sources(orders)
        assert [source.history for source in sources] == [names.history(orders, "app", n) for n in range(PARTITIONS)]
        await bridge.send(orders, numbered(300, 600))
        assert await bridge.read(sources) == spread(numbered(900))
        assert await bridge.there([str(source.history) for source in sources]) == set()
        plain = [source._replace(history=None) for source in sources]
        assert await bridge.sources(orders) == plain
        await bridge.send(orders, numbered(30))
        assert await bridge.read(plain) == spread(numbered(30))
    async with rooms(options) as bridge:
        assert await bridge.sources(orders) == plain
        assert bridge.catalogue.contents.group(orders, "app").history == ()


async def test_a_group_of_a_new_destination_has_no_history(options: Options, orders: str) -> None:
    async with rooms(options) as bridge:
        sources = await bridge.sources(orders)
        assert sources == [Source(n, names.queue(orders, "app", n)) for n in range(PARTITIONS)]
        await bridge.send(orders, numbered(30))
        assert await bridge.read(sources) == spread(numbered(30))


def bridged(partition: int, destination: str, body: bytes) -> Outgoing:
    properties, _ = to_properties(message(destination, body, partition))
    return Outgoing(destination, names.routing_key(partition), properties, body)


def native(partition: int, destination: str, body: bytes) -> Outgoing:
    """As any program may publish: without an id, with what streams lose (3.10.8), with keys that mean nothing here.

    What was delayed has digits in front of its partition.
    """
    keys = ("invoice.created", "0.0.0.0.0.0.0.0.0.orders.p1", "p2")
    headers = {"list": [1, "a"], "table": {"a": 1}, "text": "text", "CC": ["nobody"]}
    return Outgoing(destination, keys[partition], Properties(headers=headers, cluster_id="cluster"), body)


@pytest.mark.parametrize("bridges", [pytest.param(1, marks=pytest.mark.extended), 2])
@pytest.mark.parametrize("kind", [bridged, native])
async def test_nothing_is_missed_or_doubled_while_messages_come(
    options: Options, orders: str, bridges: int, kind: Callable[[int, str, bytes], Outgoing]
) -> None:
    """Several groups at once, so that many moments are tried."""
    stop = asyncio.Event()
    sent: list[list[bytes]] = [[] for _ in range(PARTITIONS)]

    async def produce(bridge: Rooms, partition: int) -> None:
        for number in count():
            if stop.is_set():
                return
            sent[partition].append(body := b"%d" % number)
            await bridge.publisher.send(kind(partition, orders, body))

    async with rooms(options) as producer, rooms(options) as one, rooms(options) as two:
        await producer.destinations.partitions(orders)
        producing = [asyncio.create_task(produce(producer, partition)) for partition in range(PARTITIONS)]
        await until(lambda: all(len(bodies) > 100 for bodies in sent))
        groups = [f"g{number}" for number in range(4)]
        asking = [one.sources(orders, group) for group in groups]
        if bridges > 1:
            asking += [two.sources(orders, group) for group in groups]
        found = await asyncio.gather(*asking)
        assert found[: len(groups)] == found[-len(groups) :]
        stop.set()
        await asyncio.gather(*producing)
        for sources in found[: len(groups)]:
            assert all(source.history for source in sources)
            assert await one.read(sources) == sent


async def test_a_copy_that_failed_half_way_is_made_anew(options: Options, orders: str) -> None:
    """It finds a foreign queue in its way."""
    async with rooms(options) as bridge:
        await bridge.send(orders, numbered(300), 0)
        await bridge.send(orders, numbered(300), 1)
        await bridge.ask("queue_declare", queue=names.history(orders, "app", 1), durable=True)
        with pytest.raises(Refused, match="declared differently"):
            await bridge.sources(orders)
        await bridge.send(orders, numbered(30, 300), 0)
        await bridge.ask("queue_delete", queue=names.history(orders, "app", 1))
        sources = await bridge.sources(orders)
        await bridge.send(orders, numbered(30, 330), 0)
        assert await bridge.read(sources) == [numbered(360), numbered(300), []]


async def test_a_bridge_dies_while_it_copies_and_another_goes_on(options: Options, orders: str) -> None:
    first = names.history(orders, "app", 0)
    async with rooms(options) as bridge:
        async with rooms(options) as victim:
            for part in range(10):
                await victim.send(orders, numbered(600, 600 * part))
            dying = asyncio.create_task(victim.sources(orders))
            waiting = asyncio.create_task(bridge.sources(orders))
            while not await bridge.there([first]):
                assert not dying.done()
        sources = await waiting
        await asyncio.wait((dying,))
        assert dying.cancelled() or dying.exception() is not None or dying.result() == sources
        await bridge.send(orders, numbered(300, 6000))
        assert await bridge.read(sources) == spread(numbered(6300))


async def test_a_bridge_that_reads_its_book_late_spoils_nothing(
    options: Options, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read that another one has begun with the group, and not yet that it is ready."""
    slow, held = Rooms(options), list[tuple[Reader, int, Arrival]]()
    arrived = slow.catalogue._log._arrived

    def late(reader: Reader, offset: int, arrival: Arrival) -> None:
        if held or b'"ready"' in arrival.body:
            held.append((reader, offset, arrival))
            if arrival.body != READ:
                return
            for each in held:
                arrived(*each)
            held.clear()
        else:
            arrived(reader, offset, arrival)

    monkeypatch.setattr(slow.catalogue._log, "_arrived", late)
    try:
        await slow.start()
        async with rooms(options) as bridge:
            await bridge.send(orders, numbered(30))
            sources = await bridge.sources(orders)
            await until(lambda: held)
            assert slow.catalogue.contents.group(orders, "app").begun
            assert await slow.sources(orders) == sources
            assert await bridge.read(sources) == spread(numbered(30))
    finally:
        await slow.close()


async def test_whoever_waits_may_leave(options: Options, orders: str) -> None:
    async with rooms(options) as bridge:
        await bridge.send(orders, numbered(300))
        leaving = asyncio.create_task(bridge.sources(orders))
        staying = asyncio.create_task(bridge.sources(orders))
        await asyncio.sleep(0)
        leaving.cancel()
        assert await bridge.read(await staying) == spread(numbered(300))


@pytest.mark.parametrize("few", [pytest.param(1, marks=pytest.mark.extended), 150, 330])
async def test_a_partition_moves_while_it_is_read(options: Options, orders: str, few: int) -> None:
    """The next holder finds the record of what is in both queues, however far the one before has come."""
    async with rooms(options) as bridge:
        await bridge.send(orders, numbered(300), 1)
        sources = await bridge.sources(orders)
        await bridge.send(orders, numbered(300, 300), 1)
        came = await Holder(bridge, sources[1]).run(few)
        assert came == numbered(few)
        assert (await bridge.there([str(sources[1].history)]) != set()) == (few < 300)
        again = await bridge.sources(orders)
        assert [source.history is not None for source in again] == [False, few < 300, False]
        before, came, behind = await bridge.read(again)
        assert (before, behind) == ([], [])
        assert came == going_on(came, few, 600)


async def test_a_partition_moves_to_one_who_waits_for_it(options: Options, orders: str) -> None:
    """It gets what was not acknowledged first, and then what comes behind."""
    async with rooms(options) as bridge, rooms(options) as other:
        await bridge.send(orders, numbered(300), 1)
        sources = await bridge.sources(orders)
        await bridge.send(orders, [*numbered(300, 300), LAST], 1)
        holder, waiting = Holder(bridge, sources[1]), Holder(other, sources[1])
        reading = asyncio.create_task(holder.run(150))
        await until(lambda: holder.came)
        taking_over = asyncio.create_task(waiting.run())
        assert await reading == numbered(150)
        came = await taking_over
        assert came == going_on(came, 150, 600)


async def test_a_group_that_wants_no_history(options: Options, orders: str) -> None:
    async with rooms(options) as bridge, rooms(options) as other:
        await bridge.send(orders, numbered(300))
        sources = await bridge.sources(orders, latest=True)
        await bridge.send(orders, numbered(30, 300))
        assert await bridge.read(sources) == spread(numbered(30, 300))
        assert await other.sources(orders) == sources


async def test_a_destination_that_keeps_no_log(options: Options, orders: str) -> None:
    async with rooms(options._replace(log=False)) as bridge, rooms(options) as other:
        with pytest.raises(BackendUnavailable, match="no queue is bound"):
            await bridge.send(orders, [b"nowhere"])
        sources = await bridge.sources(orders)
        await other.send(orders, numbered(30))
        assert await bridge.read(sources) == spread(numbered(30))
        assert not await bridge.there([names.log(orders)])
        assert not any(source.history for source in await other.sources(orders, "other"))
        told = options._replace(destinations={orders: Existing(log=True)})
        async with rooms(told) as third:
            await third.send(orders, numbered(30))
            assert await third.read(await third.sources(orders, "third")) == spread(numbered(30))


async def test_the_log_forgets_its_oldest_messages(options: Options, orders: str) -> None:
    """A group that comes late gets what is left of them."""
    async with rooms(options._replace(log_bytes=200_000)) as bridge:
        for part in range(20):
            await bridge.send(orders, [b"%d" % number + b" " * 1000 for number in range(60 * part, 60 * part + 60)])
        came = await bridge.read(await bridge.sources(orders))
        kept = sorted(int(body) for bodies in came for body in bodies)
        assert kept == list(range(1200 - len(kept), 1200))
        assert 100 <= len(kept) <= 400


async def test_queues_and_logs_that_are_deleted_are_made_again(options: Options, orders: str) -> None:
    async with rooms(options) as bridge:
        await bridge.send(orders, numbered(30))
        sources = await bridge.sources(orders)
        queues = [
            names.log(orders),
            *(source.queue for source in sources),
            *(str(source.history) for source in sources),
        ]
        for queue in queues:
            await bridge.ask("queue_delete", queue=queue)
        for exchange in (orders, names.parts(orders), names.rest(orders)):
            await bridge.ask("exchange_delete", exchange=exchange)
        again = await bridge.sources(orders)
        assert again == [source._replace(history=None) for source in sources]
        await bridge.send(orders, numbered(30, 30))
        assert await bridge.read(again) == spread(numbered(30, 30))
        late = await bridge.sources(orders, "late")
        assert await bridge.there(queues[:4]) == set(queues[:4])
        assert await bridge.read(late) == spread(numbered(30, 30))


async def test_a_group_that_another_prefix_has_made_goes_on(options: Options, orders: str) -> None:
    async with rooms(options) as bridge, rooms(options._replace(prefix=f"{options.prefix}other.")) as stranger:
        await bridge.send(orders, numbered(30))
        sources = await bridge.sources(orders)
        assert await stranger.sources(orders) == sources
        await stranger.send(orders, numbered(30, 30))
        assert await stranger.read(sources) == spread(numbered(60))


async def test_forged_marks_are_no_marks(options: Options, orders: str) -> None:
    async with rooms(options) as bridge:
        await bridge.send(orders, numbered(30))
        forged = [*map(marker, ("start 1", "a 1", "b 1", "end of 1", END))]
        for properties in forged:
            await bridge.publisher.send(Outgoing(orders, "p1", properties, b"[]"))
        await bridge.send(orders, numbered(30, 30))
        sources = await bridge.sources(orders)
        for properties in forged:
            await bridge.publisher.send(Outgoing(orders, "p1", properties, b'{"setup": 1}'))
        await bridge.send(orders, numbered(30, 60))
        assert await bridge.read(sources) == spread(numbered(90))


@pytest.mark.parametrize("kind", [bridged, native])
async def test_a_message_that_reaches_the_log_late_is_not_missed(
    options: Options, orders: str, kind: Callable[[int, str, bytes], Outgoing], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node has routed it before the group was bound, and stores it only behind the history: it is in the log only."""
    monkeypatch.setattr(late_messages, "_ROUND", 0.3)
    async with rooms(options) as bridge:
        await bridge.send(orders, numbered(30))
        sources = await bridge.sources(orders)
        watching = list(bridge.groups._watching)
        late = kind(0, orders, b"late")
        await bridge.publisher.send(late._replace(exchange="", routing_key=names.log(orders)))
        await bridge.send(orders, numbered(30, 30))
        await asyncio.gather(*watching)
        before, *others = spread(numbered(60))
        assert await bridge.read(sources) == [[*before, b"late"], *others]


async def test_what_shows_late_messages_is_deleted(
    options: Options, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that were routed to the group are not sent again."""
    witness = names.witness(orders, "app", 1)
    monkeypatch.setattr(names, "witness", lambda *_: witness)
    monkeypatch.setattr(late_messages, "_ROUND", 0.1)
    async with rooms(options) as bridge:
        await bridge.send(orders, numbered(30))
        sources = await bridge.sources(orders)
        (watching,) = bridge.groups._watching
        sent = 30
        while not watching.done():
            await bridge.send(orders, numbered(30, sent))
            sent += 30
        await watching
        assert await bridge.read(sources) == spread(numbered(sent))
        await bridge.ask("queue_declare", queue=witness, exclusive=True)  # by another connection: it is there no more
