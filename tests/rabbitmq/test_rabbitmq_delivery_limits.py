"""RabbitMQ drops what returns to a quorum queue too often: nothing that no consumer received may come near that.

On the oldest RabbitMQ that the documents promise, on 4.0, where an existing quorum queue has a limit of 20 unless
it has another one, and on the newest, where deliveries are counted in another way.
"""

import asyncio
import re
from collections.abc import Collection, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Final

import httpx
import pika
import pytest

from tests.bridged import bridged
from tests.brokers.provide import own_rabbitmq
from tests.brokers.rabbitmq import RabbitMQ
from tests.conformance.conversation import Conversation, Taken
from tests.conformance.streaming import pushing
from tests.launch import Bridge
from tests.rabbitmq import natives
from tests.rabbitmq.bridged import backend
from tests.rabbitmq.consuming import GUARD, Pool, eventually, pool
from tests.rabbitmq.natives import Sent

pytestmark = pytest.mark.extended

RELEASES: Final = ("bookworm", "trixie", "sid")
"""Debian's: RabbitMQ 3.10, 4.0 and the newest."""
IDLE: Final = "200"
"""Milliseconds after which an unused group is closed."""
LIMIT: Final = 3


@pytest.fixture(scope="module", params=RELEASES)
def rabbit(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    with own_rabbitmq(tmp_path_factory.mktemp("brokers") / request.param, release=request.param) as broker:
        yield broker


def write(url: str, queue: str, count: int) -> None:
    """Publish straight into a queue, as others do."""
    properties = pika.BasicProperties(delivery_mode=2)
    natives.write(url, "", [Sent(b"%d" % number, queue, properties) for number in range(count)])


async def share(here: Pool, limit: int) -> None:
    """Make the queue one of others, with a limit."""
    await here.ask("queue_delete", queue=here.queue())
    here.shared, here.shared_arguments = True, {"x-queue-type": "quorum", "x-delivery-limit": limit}
    await here.make_sources()


def rest(url: str, queue: str, count: int) -> list[natives.Got]:
    """Take what is left: so many messages, of which no consumer has received one."""
    found = natives.take(url, queue, count)
    assert natives.left(url, queue) == 0
    assert not [each.body for each in found if each.redelivered]
    return found


async def closed(bridge: Bridge) -> None:
    """Wait until the bridge has closed its group."""

    async def is_closed() -> bool:
        async with httpx.AsyncClient() as client:
            metrics = (await client.get(f"{bridge.management}/metrics")).text
        return re.search(r"^oms_backend_held_partitions 0.0$", metrics, re.MULTILINE) is not None

    await eventually(is_closed)


async def take_again(talk: Conversation) -> Taken:
    """Pull until a message comes: the connection was just closed."""
    async with asyncio.timeout(GUARD):
        while True:
            answer = await talk.get(waitmills=5_000)
            if answer.status_code == HTTPStatus.OK:
                return Taken(answer.content, answer.headers)
            await asyncio.sleep(0.1)


def destinations(directory: Path, queue: str) -> Path:
    file = directory / "destinations.yaml"
    file.write_text(f"legacy: {{queue: {queue}}}\n", "utf-8")
    return file


async def drained(talk: Conversation, texts: Collection[bytes]) -> None:
    """Take and acknowledge until each of these was there; some may come twice."""
    missing = set(texts)
    while missing:
        taken = await talk.take()
        missing.discard(taken.body)
        await talk.ack(taken.receipt)


async def test_an_existing_queue_keeps_its_messages_although_its_group_is_closed_often(
    rabbit: RabbitMQ, tmp_path: Path
) -> None:
    queue = natives.queue_of(rabbit.url, "quorum")
    write(rabbit.url, queue, 300)
    url = backend(rabbit.url, destinations=destinations(tmp_path, queue))
    async with bridged(tmp_path / "bridge", url, OMS_DELIVERY__GROUP_IDLE=IDLE) as (bridge, talk):
        talk.destination = "legacy"
        for number in range(25):
            taken = await talk.take(waitmills=0 if number % 2 else 30_000)
            assert taken.body == b"%d" % number
            await talk.ack(taken.receipt)
            await closed(bridge)
        for number in range(25, 30):
            rabbit.ctl("close_all_connections", "the test")
            taken = await take_again(talk)
            assert taken.body == b"%d" % number
            await talk.ack(taken.receipt)
        assert bridge.terminate() == 0
    assert [each.body for each in rest(rabbit.url, queue, 270)] == [b"%d" % number for number in range(30, 300)]


async def test_a_stream_fetches_of_an_existing_queue_no_more_than_it_takes(rabbit: RabbitMQ, tmp_path: Path) -> None:
    """Large messages: the stream's credit in bytes ends long before its credit in messages."""
    queue = natives.queue_of(rabbit.url, "quorum")
    large = [Sent(b"%d" % number + bytes(300_000), queue) for number in range(40)]
    await asyncio.to_thread(natives.write, rabbit.url, "", large)
    url = backend(rabbit.url, destinations=destinations(tmp_path, queue))
    async with bridged(tmp_path / "bridge", url, OMS_DELIVERY__GROUP_IDLE=IDLE) as (bridge, talk):
        talk.destination = "legacy"
        async with pushing(talk, credit=64) as push:
            await push.take_all(4)
            await push.nothing()
        await closed(bridge)
        assert bridge.terminate() == 0
    found = natives.take(rabbit.url, queue, 40)
    assert [each.body[:2].rstrip(b"\0") for each in found if each.redelivered] == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("limit", [LIMIT, 0])
async def test_an_existing_queue_counts_only_what_a_consumer_has_received(rabbit: RabbitMQ, limit: int) -> None:
    """Refreshes, closed groups and lost connections, while two of forty messages are leased each time."""
    async with pool(rabbit.url) as here:
        await share(here, limit)
        write(rabbit.url, here.queue(), 40)
        settled = 0
        for round_ in range(2 * LIMIT):
            bridge = await here.bridge(refresh=0.02)
            leased = await bridge.take(2)
            await asyncio.sleep(0.2)  # several refreshes
            await bridge.settle(leased)
            settled += 2
            assert bridge.nothing_comes()
            if round_ % 2:
                await bridge.stop()
            else:
                await bridge.die()
        await here.counted(40 - settled)
        rest(rabbit.url, here.queue(), 40 - settled)


async def test_a_lease_in_an_existing_queue_ends_when_the_broker_closes_its_channel(
    rabbit: RabbitMQ, tmp_path: Path
) -> None:
    """Another consumer gets the message, so the client that had it must not be told that it is acknowledged."""
    rabbit.ctl("eval", "application:set_env(rabbit, channel_tick_interval, 200).")
    queue = natives.queue_of(rabbit.url, "quorum")
    write(rabbit.url, queue, 1)
    url = backend(rabbit.url, destinations=destinations(tmp_path, queue))
    async with bridged(tmp_path / "bridge", url) as (_, talk):
        talk.destination = "legacy"
        rabbit.ctl("eval", "application:set_env(rabbit, consumer_timeout, 400).")
        try:
            leased = await talk.take()
            [other] = await asyncio.to_thread(natives.take, rabbit.url, queue, 1)
        finally:
            await asyncio.to_thread(rabbit.ctl, "eval", "application:set_env(rabbit, consumer_timeout, 1800000).")
        assert (other.body, other.redelivered) == (leased.body, True)
        write(rabbit.url, queue, 1)
        assert (await talk.settle("ack", leased.receipt)).status_code == HTTPStatus.GONE
        await talk.ack((await take_again(talk)).receipt)
        assert natives.left(rabbit.url, queue) == 0


@pytest.mark.parametrize("late", [False, True], ids=["in time", "late"])
async def test_what_exceeds_a_policys_limit_in_the_bridges_own_queues_is_put_back(
    rabbit: RabbitMQ, tmp_path: Path, *, late: bool
) -> None:
    """A group that comes late has its messages in a history, whose mark must not be lost either."""
    url = backend(rabbit.url, partitions=2)
    async with bridged(tmp_path / "bridge", url, OMS_DELIVERY__GROUP_IDLE=IDLE) as (bridge, talk):
        await talk.join()
        await closed(bridge)
        pattern = rf"^{re.escape(talk.destination)}\."
        rabbit.ctl("set_policy", "limited", pattern, f'{{"delivery-limit":{LIMIT}}}', "--apply-to", "queues")
        texts = {b"%d" % number for number in range(60)}
        for body in sorted(texts):
            await talk.produce(body, messagekey=body[:1].decode())
        if late:
            talk.group += "-late"
        for _ in range(3 * LIMIT):
            taken = await talk.take()
            await talk.ack(taken.receipt)
            texts.discard(taken.body)
            await closed(bridge)
        for _ in range(2 * LIMIT):
            await talk.get(waitmills=1_000)
            rabbit.ctl("close_all_connections", "the test")
        await drained(talk, texts)
        await talk.produce(b"behind them all")
        await drained(talk, {b"behind them all"})
        rabbit.ctl("clear_policy", "limited")
        assert "delivery-limit" in bridge.log
