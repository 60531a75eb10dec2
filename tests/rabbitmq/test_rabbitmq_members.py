"""Several bridges in a group, over real links: who consumes what when they come, go, are cut off and come back."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from adapters.amqp.messages import Outgoing
from adapters.rabbitmq.group import membership
from tests.brokers.rabbitmq import RabbitMQ
from tests.rabbitmq.meetings import Meeting, cut, meeting, shared, until

EVERYTHING = frozenset(range(8))


@pytest_asyncio.fixture
async def here(rabbitmq_url: str) -> AsyncIterator[Meeting]:
    async with meeting(rabbitmq_url) as found:
        yield found


async def test_a_bridge_alone_consumes_everything(here: Meeting) -> None:
    group = await here.group(8)
    seat = await (await here.bridge()).join(*group)
    assert seat.told == [EVERYTHING]
    await seat.leave()
    assert await seat.membership.join() == EVERYTHING


async def test_bridges_share_fairly_whether_they_come_one_by_one_or_together(here: Meeting) -> None:
    groups = [await here.group(partitions) for partitions in (8, 1, 3)]
    bridges = [await here.bridge() for _ in range(3)]
    seats = [await bridges[0].join(*groups[0])]
    for bridge in bridges[1:]:
        seats.append(await bridge.join(*groups[0]))
        await shared(seats, 8)
    for group, partitions in zip(groups[1:], (1, 3), strict=True):
        await shared(await asyncio.gather(*(bridge.join(*group) for bridge in bridges)), partitions)


async def test_nobody_waits_for_the_next_beat_but_to_notice_a_death(
    here: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "_HEARTBEAT", (1000.0, 1000.0))
    group, queues = await here.group(8)
    bridges = [await here.bridge() for _ in range(3)]
    seats = [await bridge.join(group, queues) for bridge in bridges]
    await shared(seats, 8)
    for _ in range(3):
        await seats[0].leave()
        await shared(seats[1:], 8)
        seats[0] = await bridges[0].join(group, queues)
        await shared(seats, 8)


async def test_the_share_of_one_that_dies_goes_to_the_others(here: Meeting) -> None:
    group = await here.group(8)
    bridges = [await here.bridge() for _ in range(3)]
    seats = [await bridge.join(*group) for bridge in bridges]
    await shared(seats, 8)
    await bridges[0].bridges.close()
    await bridges[0].consuming.close()
    await shared(seats[1:], 8)


@pytest.mark.parametrize("which", ["consuming", "publishing"])
async def test_a_bridge_that_was_cut_off_comes_back(here: Meeting, which: str) -> None:
    groups = [await here.group(4), await here.group(3)]
    bridges = [await here.bridge() for _ in range(2)]
    seats = [[await bridge.join(*group) for bridge in bridges] for group in groups]
    await shared(seats[0], 4)
    await shared(seats[1], 3)
    name, count = bridges[0].name, len(seats[0][0].told)
    cut(getattr(bridges[0], which))
    if which == "consuming":
        await until(lambda: bridges[0].name not in {None, name})
        await until(lambda: len(seats[0][0].told) > count)  # also if it is the same: all was lost
    else:
        await until(lambda: not bridges[0].publishing.up)
        await until(lambda: bridges[0].publishing.up)
    await shared(seats[0], 4)
    await shared(seats[1], 3)
    third = await here.bridge()
    for at, partitions in enumerate((4, 3)):
        seats[at].append(await third.join(*groups[at]))
        await shared(seats[at], partitions)


async def test_a_control_queue_that_is_deleted_is_replaced_and_nothing_moves(here: Meeting) -> None:
    group = await here.group(4)
    bridges = [await here.bridge() for _ in range(2)]
    seats = [await bridge.join(*group) for bridge in bridges]
    await shared(seats, 4)
    name, told = bridges[0].name, len(seats[0].told)
    channel = await bridges[0].consuming.channel()  # it is exclusive: no other connection can delete it
    await channel.ask("it", "queue_delete", queue=name)
    await until(lambda: bridges[0].name not in {None, name})
    third = await (await here.bridge()).join(*group)
    await shared([*seats, third], 4)
    assert len(seats[0].told) <= told + 1, "it moved for the newcomer at most"


async def test_an_exchange_that_is_deleted_is_declared_again(here: Meeting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "_ANNOUNCED", 1)
    group = await here.group(4)
    bridges = [await here.bridge() for _ in range(2)]
    seats = [await bridge.join(*group) for bridge in bridges]
    await shared(seats, 4)
    names = {bridge.name for bridge in bridges}
    await here.delete("exchange_delete", exchange=f"{here.prefix}bridges")
    await until(lambda: all(bridge.name not in {None, *names} for bridge in bridges))
    seats.append(await (await here.bridge()).join(*group))
    await shared(seats, 4)


async def test_a_control_queue_that_hears_nothing_is_replaced(here: Meeting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one is bound, so nothing is returned."""
    monkeypatch.setattr(membership, "_RECEIVED", 1.0)
    monkeypatch.setattr(membership, "_ANNOUNCED", 1)
    bridges = [await here.bridge() for _ in range(2)]
    name = bridges[0].name
    channel = await bridges[0].consuming.channel()
    await channel.ask("it", "queue_unbind", queue=name, exchange=f"{here.prefix}bridges", routing_key="")
    await until(lambda: bridges[0].name not in {None, name})


@pytest.mark.extended
async def test_hundreds_of_groups_are_one_message_to_each_bridge(here: Meeting) -> None:
    group, queues = await here.group(2)
    bridges = [await here.bridge() for _ in range(3)]
    seats = [await bridge.join(group, queues) for bridge in bridges]
    await asyncio.gather(*(bridge.join(f"{group}.{number}", []) for number in range(100) for bridge in bridges))
    await shared(seats, 2)
    publisher, sent = bridges[0].publisher, Counter[str]()
    send = publisher.send

    def count(outgoing: Outgoing) -> object:
        sent[outgoing.exchange or outgoing.routing_key] += 1
        return send(outgoing)

    publisher.send = count  # type: ignore[method-assign, assignment]
    bridges[0].bridges._send_heartbeats()
    assert set(sent) == {bridges[1].name, bridges[2].name}
    assert set(sent.values()) == {1}


@pytest.mark.extended
async def test_while_the_broker_takes_no_messages_all_bridges_stand_by_for_all_partitions(
    stoppable_rabbitmq: RabbitMQ,
) -> None:
    """A death is not noticed meanwhile. RabbitMQ gives the queues of a killed one to the next in line."""
    rabbit = stoppable_rabbitmq
    async with meeting(rabbit.url) as here:
        group = await here.group(4)
        bridges = [await here.bridge() for _ in range(3)]
        seats = [await bridge.join(*group) for bridge in bridges]
        await shared(seats, 4)
        await asyncio.to_thread(rabbit.ctl, "set_vm_memory_high_watermark", "0.000001")
        await until(lambda: all(bridge.publishing.blocked for bridge in bridges))
        await until(lambda: all(len(seat.held) == 4 for seat in seats))
        newcomer = await (await here.bridge()).join(*await here.group(2))
        assert newcomer.told == [{0, 1}]
        await bridges[0].bridges.close()
        await bridges[0].consuming.close()
        await asyncio.to_thread(rabbit.ctl, "set_vm_memory_high_watermark", "0.4")
        await shared(seats[1:], 4)
