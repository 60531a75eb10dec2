"""Several bridges in a group, over real links: who consumes what when they come, go, are cut off and come back."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from adapters.rabbitmq import announcements, members, turns
from adapters.rabbitmq.record import Outgoing
from bridge.errors import BackendUnavailable
from tests.brokers.provide import own_rabbitmq
from tests.rabbitmq.meetings import Meeting, cut, meeting, shared, until

EVERYTHING = frozenset(range(8))


@pytest_asyncio.fixture
async def here(rabbitmq_url: str) -> AsyncIterator[Meeting]:
    async with meeting(rabbitmq_url) as found:
        yield found


@pytest.fixture
def answers_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """For ever: so whoever waits for one that does not come hangs."""
    monkeypatch.setattr(members, "_ANSWERS", 1000.0)


@pytest.mark.usefixtures("answers_are_waited_for")
async def test_whoever_is_alone_takes_everything_at_once(here: Meeting) -> None:
    group = await here.group(8)
    async with asyncio.timeout(30):
        seat = await (await here.bridge()).join(*group)
        assert seat.told == [EVERYTHING]
        await seat.leave()
        again = await seat.membership.join()
    assert again == EVERYTHING


@pytest.mark.usefixtures("answers_are_waited_for")
async def test_each_that_comes_has_a_fair_share_and_nothing_else_moves(here: Meeting) -> None:
    group = await here.group(8)
    seats = [await (await here.bridge()).join(*group)]
    for _ in range(3):
        async with asyncio.timeout(30):
            seats.append(await (await here.bridge()).join(*group))
        await shared(seats, 8)
        for seat in seats[:-1]:
            assert all(later < earlier for earlier, later in zip(seat.told, seat.told[1:], strict=False)), seat.told
        assert len(seats[-1].told) == 1, "it knew all others when it took its share"


async def test_bridges_that_come_at_the_same_time_share_fairly(here: Meeting) -> None:
    groups = [await here.group(partitions) for partitions in (8, 1, 3)]
    bridges = [await here.bridge() for _ in range(3)]
    seats = await asyncio.gather(*(bridge.join(*group) for group in groups for bridge in bridges))
    for at, partitions in enumerate((8, 1, 3)):
        await shared(seats[3 * at : 3 * at + 3], partitions)


async def test_what_somebody_consumes_who_says_nothing_is_taken_after_a_while(
    here: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "_ANSWERS", 0.3)
    topic, queues = await here.group(2)
    channel = await here.link.channel()
    await channel.ask("it", "basic_consume", queue=queues[1], on_message_callback=lambda *_: None)
    async with asyncio.timeout(30):
        seat = await (await here.bridge()).join(topic, queues)
    assert seat.told == [{0, 1}]


@pytest.mark.usefixtures("answers_are_waited_for")
async def test_nobody_waits_for_what_is_only_said_once_a_second(here: Meeting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_BEAT", (1000.0, 1000.0))
    topic, queues = await here.group(8)
    bridges = [await here.bridge() for _ in range(3)]
    async with asyncio.timeout(60):
        seats = [await bridge.join(topic, queues) for bridge in bridges]
        await shared(seats, 8)
        await seats[0].leave()
        await shared(seats[1:], 8)
        seats[0] = await bridges[0].join(topic, queues)
        await shared(seats, 8)
        name = bridges[1].name
        cut(bridges[1].consuming)
        await until(lambda: bridges[1].name not in {None, name})
        await shared(seats, 8)  # the others have found out that it went by another name before
        for channel in seats[2].forget():
            await channel.close()
        seats[2] = await bridges[2].join(topic, queues)
        await shared(seats, 8)  # though the others have never heard that it was not there


async def test_who_is_not_in_the_group_says_so_if_its_farewell_was_lost(here: Meeting) -> None:
    group = await here.group(4)
    bridges = [await here.bridge() for _ in range(2)]
    seats = [await bridge.join(*group) for bridge in bridges]
    await shared(seats, 4)
    bridges[0].inbox._members.clear()
    bridges[0].inbox._peers.forget()
    for channel in seats[0].forget():
        await channel.close()
    await shared(seats[1:], 4)


async def test_the_share_of_one_that_leaves_goes_to_the_others_and_it_may_come_back(here: Meeting) -> None:
    group = await here.group(8)
    bridges = [await here.bridge() for _ in range(3)]
    seats = [await bridge.join(*group) for bridge in bridges]
    await shared(seats, 8)
    for _ in range(3):
        await seats[0].leave()
        await shared(seats[1:], 8)
        seats[0] = await bridges[0].join(*group)
        await shared(seats, 8)


async def test_the_share_of_one_that_dies_goes_to_the_others(here: Meeting) -> None:
    group = await here.group(8)
    bridges = [await here.bridge() for _ in range(3)]
    seats = [await bridge.join(*group) for bridge in bridges]
    await shared(seats, 8)
    before = [seat.membership.share for seat in seats]
    await bridges[0].inbox.close()
    await bridges[0].consuming.close()
    await shared(seats[1:], 8)
    assert all(now.membership.share > earlier for now, earlier in zip(seats[1:], before[1:], strict=True))


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


async def test_who_is_cut_off_while_it_joins_is_told_so_and_nothing_is_left_of_it(
    here: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "_ANSWERS", 1000.0)
    topic, queues = await here.group(2)
    channel = await here.link.channel()
    await channel.ask("it", "basic_consume", queue=queues[0], on_message_callback=lambda *_: None)
    bridge = await here.bridge()
    joining = asyncio.create_task(bridge.join(topic, queues))
    await until(lambda: bridge.inbox._members and bridge.inbox._members[topic]._asked)  # type: ignore[attr-defined] # it waits for answers
    cut(bridge.consuming)
    with pytest.raises(BackendUnavailable):
        await joining
    assert not bridge.inbox._members
    await channel.close()
    await until(lambda: bridge.name is not None)
    assert (await bridge.join(topic, queues)).told == [{0, 1}]


@pytest.mark.usefixtures("answers_are_waited_for")
async def test_an_inbox_that_is_deleted_is_made_anew_and_what_is_consumed_stays(here: Meeting) -> None:
    group = await here.group(4)
    bridges = [await here.bridge() for _ in range(2)]
    seats = [await bridge.join(*group) for bridge in bridges]
    await shared(seats, 4)
    name, before = bridges[0].name, seats[0].membership.share
    channel = await bridges[0].consuming.channel()  # it is exclusive: nobody else can delete it
    await channel.ask("it", "queue_delete", queue=name)
    await until(lambda: bridges[0].name not in {None, name})
    await shared(seats, 4)
    assert {*seats[0].told[1:], seats[0].membership.share} == {before}, "nothing was let go of"
    third = await (await here.bridge()).join(*group)
    await shared([*seats, third], 4)


async def test_an_exchange_that_is_deleted_is_made_anew(here: Meeting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcements, "_ECHO", 1.0)
    group = await here.group(4)
    bridges = [await here.bridge() for _ in range(2)]
    seats = [await bridge.join(*group) for bridge in bridges]
    await shared(seats, 4)
    names = {bridge.name for bridge in bridges}
    await here.delete("exchange_delete", exchange=f"{here.prefix}members")
    await until(lambda: all(bridge.name not in {None, *names} for bridge in bridges))
    seats.append(await (await here.bridge()).join(*group))
    await shared(seats, 4)


async def test_hundreds_of_groups_are_one_message_to_each_bridge(here: Meeting) -> None:
    topic, queues = await here.group(2)
    bridges = [await here.bridge() for _ in range(3)]
    seats = [await bridge.join(topic, queues) for bridge in bridges]
    await asyncio.gather(*(bridge.join(f"{topic}.{number}", []) for number in range(100) for bridge in bridges))
    await shared(seats[:3], 2)
    publisher, sent, beats = bridges[0].publisher, Counter[str](), 0
    send = publisher.send

    def count(outgoing: Outgoing) -> object:
        sent["all" if outgoing.exchange else outgoing.routing_key] += 1
        return send(outgoing)

    beat = bridges[0].inbox._peers.beat

    def count_beat() -> None:
        nonlocal beats
        beats += 1
        beat()

    await until(lambda: not any(peer.news for bridge in bridges for peer in bridge.inbox._peers._peers.values()))
    publisher.send = count  # type: ignore[method-assign, assignment]
    bridges[0].inbox._peers.beat = count_beat  # type: ignore[method-assign]
    await until(lambda: beats == 3)
    assert {"all", bridges[1].name, bridges[2].name} == set(sent)
    assert max(sent.values()) < 50, "three would do, twelve for all; one for each group would be 300"


async def test_while_the_broker_takes_no_messages_nothing_moves_and_newcomers_stand_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "_ANSWERS", 0.5)
    with own_rabbitmq(tmp_path / "rabbit") as rabbit:
        async with meeting(rabbit.url) as here:
            group = await here.group(4)
            bridges = [await here.bridge() for _ in range(2)]
            seats = [await bridge.join(*group) for bridge in bridges]
            await shared(seats, 4)
            await asyncio.to_thread(rabbit.ctl, "set_vm_memory_high_watermark", "0.000001")
            await until(lambda: all(bridge.publishing.blocked for bridge in bridges))
            told = [list(seat.told) for seat in seats]
            third = await (await here.bridge()).join(*group)
            assert third.told == [{0, 1, 2, 3}]  # the broker lets it have nothing before it is another's no more
            await third.leave()
            alone = await (await here.bridge()).join(*await here.group(2))
            assert alone.told == [{0, 1}]  # nobody consumed those
            assert [seat.told for seat in seats] == told
            await bridges[0].inbox.close()
            await bridges[0].consuming.close()
            await shared(seats[1:], 4)  # nobody can be asked who is gone, but who consumes can be seen
            third = await (await here.bridge()).join(*group)
            await asyncio.to_thread(rabbit.ctl, "set_vm_memory_high_watermark", "0.4")
            await shared([seats[1], third], 4)
