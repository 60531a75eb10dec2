"""The bridge's catalogue in a real RabbitMQ: every bridge of the prefix reads it in one order."""

import asyncio
from uuid import uuid4

import pytest

from adapters.amqp.messages import Arrival, Outgoing
from adapters.amqp.properties import Properties
from adapters.amqp.stream_consumer import Reader
from adapters.rabbitmq.options import Options, parse
from adapters.rabbitmq.topology import catalogue
from adapters.rabbitmq.topology.catalogue import Catalogue
from adapters.rabbitmq.topology.declarations import Layout
from adapters.rabbitmq.topology.names import Own
from adapters.rabbitmq.topology.records import Contents, Group, encode
from bridge.errors import BackendUnavailable
from tests.rabbitmq.rooms import GUARD, Rooms, rooms, until


@pytest.fixture
def options(rabbitmq_url: str) -> Options:
    return parse(f"{rabbitmq_url}?prefix=t{uuid4().hex[:8]}.&partitions=3")


async def caught_up(bridge: Rooms) -> None:
    """Wait until it has read its catalogue, which is not there for a moment."""
    async with asyncio.timeout(GUARD):
        while True:
            try:
                return await bridge.catalogue.catch_up()
            except BackendUnavailable:
                await asyncio.sleep(0.05)


async def append(bridge: Rooms, entry: bytes) -> None:
    """Write into the catalogue as any client may."""
    await bridge.publisher.send(Outgoing("", Own(bridge.options.prefix).catalogue, Properties(), entry))


async def test_notes_survive(options: Options) -> None:
    expected = {"a": "2", "b/c": "z\u00fcrich \ud800 '\"", "c": ""}
    early = Rooms(options)
    with pytest.raises(BackendUnavailable):
        early.catalogue.all()
    with pytest.raises(BackendUnavailable):
        await early.catalogue.put("early", "1")
    async with rooms(options) as bridge:
        for key, value in {"a": "1", "b/c": "z\u00fcrich \ud800 '\"", "c": "", "d": "4"}.items():
            await bridge.catalogue.put(key, value)
        await bridge.catalogue.put("a", "2")
        await bridge.catalogue.put("d", None)
        await bridge.catalogue.put("never", None)
        assert bridge.catalogue.all() == expected
    async with rooms(options) as bridge:
        assert bridge.catalogue.all() == expected


async def test_the_last_of_many_at_once_counts(options: Options) -> None:
    """The catalogue grows by thousands of entries, more than come in one go."""
    values = [None, *(f"{n}" for n in range(3000)), None, "last"]
    async with rooms(options) as bridge:
        await asyncio.gather(*(bridge.catalogue.put("k", value) for value in values))
        assert bridge.catalogue.all() == {"k": "last"}
    async with rooms(options) as bridge:
        assert bridge.catalogue.all() == {"k": "last"}


async def test_bridges_of_one_prefix_share_notes_unless_each_has_a_name(options: Options) -> None:
    one, two = options._replace(instance="one"), options._replace(instance="two")
    for number, each in enumerate((options, one, two, options)):
        async with rooms(each) as bridge:
            await bridge.catalogue.put("k", str(number))
            await bridge.catalogue.put(f"of {number}", "x")
    for each, expected in (
        (options, {"k": "3", "of 0": "x", "of 3": "x"}),
        (one, {"k": "1", "of 1": "x"}),
        (two, {"k": "2", "of 2": "x"}),
        (options._replace(prefix=f"{options.prefix}other."), {}),
    ):
        async with rooms(each) as bridge:
            assert bridge.catalogue.all() == expected


async def test_what_others_write_into_it_harms_nothing(options: Options) -> None:
    strange = (
        b"\xff",
        b"",
        b"7",
        b"{}",
        b'["destination", "d"]',
        b'["destination", "d", 0, 0]',
        b'["note", null, 5, "x"]',
    )
    async with rooms(options) as bridge:
        lost: list[Exception] = []
        bridge.consuming.on_lost.append(lost.append)
        await bridge.catalogue.put("a", "1")
        for entry in (
            *strange,
            b'["ready", "d", "g", ["x"]]',
            b'["ready", "d", "g", 1]',
            b'["destination", "d", "8", 1]',
            b"[" * 100_000,
        ):
            await append(bridge, entry)
        await append(bridge, b'["note", null, "a", "2"]')
        await bridge.catalogue.catch_up()
        assert not lost
    async with rooms(options) as bridge:
        assert bridge.catalogue.all() == {"a": "2"}
        assert bridge.catalogue.contents.destinations.get("d") is None
        assert not bridge.catalogue.contents.group("d", "g").ready


async def test_a_caller_that_leaves_does_not_withdraw_its_note(options: Options) -> None:
    async with rooms(options) as bridge:
        await bridge.catalogue.put("first", "1")
        keeping = asyncio.create_task(bridge.catalogue.put("k", "v"))
        await asyncio.sleep(0)
        keeping.cancel()
        await asyncio.wait((keeping,))
        assert keeping.cancelled()
        await bridge.catalogue.put("after", "2")
        assert bridge.catalogue.all() == {"first": "1", "k": "v", "after": "2"}


async def test_bridges_agree_on_partitions(options: Options) -> None:
    """The first one decides, for those that ask at the same time and for those that come later."""
    name = f"orders-{uuid4().hex[:8]}"
    async with rooms(options) as one, rooms(options._replace(partitions=5)) as two:
        agreed = await asyncio.gather(*(each.destinations.partitions(name) for each in (one, two, one, two)))
        assert len(set(agreed)) == 1
        assert agreed[0] in {3, 5}
    async with rooms(options._replace(partitions=7, log_bytes=1 << 20)) as late:
        assert await late.destinations.partitions(name) == agreed[0]
        assert late.catalogue.contents.destinations.get(name) == Layout(agreed[0], 1 << 30)


async def test_what_one_bridge_writes_reaches_the_others(options: Options) -> None:
    async with rooms(options) as one, rooms(options) as two:
        await one.catalogue.claim("orders", Layout(4, 0))
        await one.catalogue.enter("begun", "orders", "app")
        await one.catalogue.put("k", "v")
        await until(lambda: two.catalogue.all() == {"k": "v"})
        assert two.catalogue.contents.destinations.get("orders") == Layout(4, 0)
        assert two.catalogue.contents.group("orders", "app") == Group(begun=1)
        await one.catalogue.enter("ready", "orders", "app", [2])
        async with asyncio.timeout(GUARD):
            await two.catalogue._log.until(lambda: two.catalogue.contents.group("orders", "app").ready)
        assert two.catalogue.contents.group("orders", "app") == Group(ready=True, history=(2,))


async def test_it_goes_on_after_a_lost_connection(options: Options) -> None:
    async with rooms(options) as one, rooms(options) as two:
        await one.catalogue.put("k", "1")
        await two.catalogue.catch_up()
        await two.lose()
        assert two.catalogue.all() == {"k": "1"}
        await one.catalogue.put("k", "2")
        assert await two.catalogue.claim("orders", Layout(4, 0)) == Layout(4, 0)
        await until(lambda: two.catalogue.all() == {"k": "2"})
        for number in range(3):
            await two.lose()
            await one.catalogue.put("k", f"again {number}")
        await until(lambda: two.catalogue.all() == {"k": "again 2"})


@pytest.mark.parametrize("connected", [True, False])
async def test_a_book_that_was_deleted_is_written_anew(options: Options, *, connected: bool) -> None:
    named = options._replace(instance="named")
    async with rooms(options) as one, rooms(named) as two:
        await one.catalogue.claim("orders", Layout(4, 0))
        await one.catalogue.enter("ready", "orders", "app", [2])
        await one.catalogue.put("k", "one")
        await two.catalogue.put("k", "two")
        await two.catalogue.catch_up()
        await one.ask("queue_delete", queue=Own(options.prefix).catalogue)
        if not connected:
            await one.lose()
            await two.lose()

        for each in (one, two) * 2:  # first it is read, then what was written back
            await caught_up(each)
        async with rooms(options) as third, rooms(named) as fourth:
            assert third.catalogue.contents.destinations.get("orders") == Layout(4, 0)
            assert third.catalogue.contents.group("orders", "app") == Group(ready=True, history=(2,))
            assert (third.catalogue.all(), fourth.catalogue.all()) == ({"k": "one"}, {"k": "two"})
        assert await one.catalogue.claim("orders", Layout(9, 0)) == Layout(4, 0)
        await one.catalogue.put("k", "still")
        assert one.catalogue.all() == {"k": "still"}


async def test_a_bridge_that_cannot_publish_writes_what_it_knows_later(
    options: Options, caplog: pytest.LogCaptureFixture
) -> None:
    """It reads that the stream was deleted while its publishing connection is lost."""
    async with rooms(options) as one, rooms(options._replace(instance="named")) as two:
        await one.catalogue.put("k", "one")
        await two.catalogue.catch_up()
        connection, settings = one.publishing._connection, one.publishing._options
        one.publishing._options = options._replace(servers=(("127.0.0.1", 1),))
        assert connection is not None
        connection.abort()
        await until(lambda: not one.publishing.up)
        await two.ask("queue_delete", queue=Own(options.prefix).catalogue)
        await caught_up(two)
        for number in range(20):  # more than there were before: until then, RabbitMQ delivers none to the first bridge
            await two.catalogue.put("n", str(number))
        await until(lambda: caplog.text.count("it is read again") > 1)
        assert one.catalogue.all() == {"k": "one"}
        one.publishing._options = settings
        await until(lambda: one.publishing.up)
        await caught_up(one)
        async with rooms(options) as third:
            assert third.catalogue.all() == {"k": "one"}


async def test_what_is_known_counts_while_a_stream_that_was_cut_is_read_again(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise messages that are delayed meanwhile would have the number of a purge that is over."""
    monkeypatch.setattr(catalogue, "_BYTES", 400_000)
    monkeypatch.setattr(catalogue, "_SNAPSHOT_AFTER", 50_000)
    seen: set[tuple[int, str | None]] = set()
    words = [f"{number}" * 3000 for number in range(300)]
    async with rooms(options) as bridge, rooms(options) as away:
        await bridge.catalogue.enter("purged", "orders", None, 1)
        await bridge.catalogue.put("k", "known")
        await away.catalogue.catch_up()
        await away.catalogue._log.close()
        for word in words:
            await bridge.catalogue.put("noise", word)
        assert await first_offset(bridge) > 10, "nothing was dropped"
        read = Contents.read

        def look(contents: Contents, offset: int, body: bytes) -> bool:
            known = away.catalogue.contents
            seen.add((known.purges.get(("orders", None), 0), known.metadata.get("k")))
            return read(contents, offset, body)

        monkeypatch.setattr(Contents, "read", look)
        await away.catalogue._log.start()
        await caught_up(away)
        assert away.catalogue.all() == bridge.catalogue.all()
    assert seen == {(1, "known")}


async def test_a_reader_that_gets_nothing_more_is_replaced(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """RabbitMQ (3.10.8) may deliver nothing more after it has dropped records that were not delivered."""
    bridge, stuck = Rooms(options), list[Reader]()
    arrived = bridge.catalogue._log._arrived

    def arrive(reader: Reader, offset: int, arrival: Arrival) -> None:
        if b"stuck" in arrival.body and not stuck:
            stuck.append(reader)
        if reader not in stuck:
            arrived(reader, offset, arrival)

    monkeypatch.setattr(bridge.catalogue._log, "_arrived", arrive)
    try:
        await bridge.start()
        await append(bridge, encode("note", None, "k", "stuck"))
        await caught_up(bridge)
        assert bridge.catalogue.all() == {"k": "stuck"}
    finally:
        await bridge.close()


async def first_offset(bridge: Rooms) -> int:
    """Return the offset of the oldest entry that the stream still has."""
    found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def arrived(_reader: Reader, offset: int, _arrival: Arrival) -> None:
        if not found.done():
            found.set_result(offset)

    reader = await Reader.open(bridge.consuming, Own(bridge.options.prefix).catalogue, 1, arrived)
    async with asyncio.timeout(GUARD):
        offset = await found
    await reader.close()
    return offset


@pytest.mark.extended
async def test_ten_thousand_groups_a_thousand_starts_and_a_bounded_stream(options: Options) -> None:
    """The stream drops its first entries; who starts after that, or was away meanwhile, knows all the same."""
    groups = {f"g{number}" for number in range(10_000)}
    async with rooms(options) as bridge, rooms(options) as away:
        catalogue = bridge.catalogue
        for _ in range(1000):
            start = Catalogue(options, bridge.consuming, bridge.publisher)
            await start.start()
            await start.close()
        await catalogue.claim("orders", Layout(4, 0))
        await catalogue.claim("gone", Layout(4, 0))
        await catalogue.enter("begun", "gone", "g")
        await catalogue.enter("deleted", "gone")
        await catalogue.put("first", "1")
        await away.catalogue.catch_up()
        await away.catalogue._log.close()
        names = sorted(groups)
        for some in (names[at : at + 500] for at in range(0, len(names), 500)):
            await asyncio.gather(*(catalogue.enter("begun", "orders", each) for each in some))
            await asyncio.gather(*(catalogue.enter("ready", "orders", each, [2]) for each in some))
            await asyncio.gather(*(catalogue.enter("drained", "orders", each, 2) for each in some))
        for number in range(40):
            await asyncio.gather(*(catalogue.put("k", f"{number} {each}") for each in range(500)))
        assert await first_offset(bridge) > 5000, "nothing was dropped"
        await away.catalogue._log.start()
        async with rooms(options) as new:
            await caught_up(away)
            for each in (bridge, new, away):
                assert set(each.catalogue.contents.groups_of("orders")) == groups
                assert {each.catalogue.contents.group("orders", group) for group in groups} == {Group(ready=True)}
                assert each.catalogue.contents.destinations.get("orders") == Layout(4, 0)
                assert each.catalogue.contents.destinations.get("gone") is None
                assert each.catalogue.all() == {"first": "1", "k": "39 499"}
