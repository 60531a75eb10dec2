"""The push iterator against real bridges: what a group still holds afterwards says what was acknowledged."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from bridge.client import Client, ProduceResult, ReceivedMessage
from bridge.client.transport import HttpTransport
from bridge.errors import DestinationInvalid, LeaseEnded
from bridge.message import Message
from tests.http.conftest import MOSTLY_HYPERCORN
from tests.launch import Bridge

PATIENCE = 30.0
QUIET = 300
"""How long a pull waits where nothing must come, ms."""


@pytest.fixture(scope="module", params=["hypercorn", pytest.param("granian", marks=pytest.mark.extended)])
def bridge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    with Bridge(tmp_path_factory.mktemp("bridge"), server=request.param) as running:
        yield running
        assert running.terminate() == 0, running.log


@pytest.fixture
async def client(bridge: Bridge) -> AsyncIterator[Client]:
    async with Client(bridge.url) as client:
        yield client


@pytest.fixture(autouse=True)
async def _patience() -> AsyncIterator[None]:
    async with asyncio.timeout(PATIENCE):
        yield


async def stored(client: Client, count: int) -> str:
    """Put so many messages, bodies 0, 1, ..., into a destination of their own and return its name."""
    source = f"push-{uuid4().hex}"
    await client.produce_batch([Message(source, b"%d" % n) for n in range(count)])
    return source


async def left(client: Client, source: str, expected: int = 0) -> dict[int, int]:
    """Take what the group still holds, waiting for as many as must be there: numbers, and how often delivered."""
    found: dict[int, int] = {}
    while True:
        wait_ms = 10_000 if len(found) < expected else QUIET
        if (delivery := await client.pull(source, "g", wait_ms=wait_ms)) is None:
            return found
        found[number(delivery)] = delivery.delivery_count


def number(delivery: ReceivedMessage) -> int:
    return int(delivery.message.body)


async def test_all_come_once_and_are_acknowledged(client: Client) -> None:
    source = await stored(client, 500)
    async with client.push(source, "g", max_messages=500) as messages:
        assert sorted([number(delivery) async for delivery in messages]) == list(range(500))
    assert await left(client, source) == {}


async def test_silence_ends_it(client: Client) -> None:
    source = await stored(client, 3)
    async with client.push(source, "g", wait_ms=0) as messages:
        assert len([delivery async for delivery in messages]) == 3
    assert await left(client, source) == {}


async def test_it_waits_for_what_comes_later(client: Client) -> None:
    source = await stored(client, 1)
    async with client.push(source, "g") as messages:
        assert number(await anext(messages)) == 0
        await client.produce(Message(source, b"1"))
        assert number(await anext(messages)) == 1
    assert await left(client, source) == {}


async def handled_until(client: Client, source: str, last: int, *, ack: bool) -> None:
    handled = 0
    async with client.push(source, "g", ack=ack, credit=4) as messages:
        async for _ in messages:
            if handled == last:
                raise ZeroDivisionError
            handled += 1


async def test_an_exception_gives_back_at_once_what_was_not_handled(client: Client) -> None:
    source = await stored(client, 10)
    with pytest.raises(ZeroDivisionError):
        await handled_until(client, source, 3, ack=True)
    back = await left(client, source, expected=7)
    assert sorted(back.values()) == [1] * 3 + [2] * 4  # 4: the credit


async def test_at_most_once_nothing_comes_twice(client: Client) -> None:
    source = await stored(client, 10)
    with pytest.raises(ZeroDivisionError):
        await handled_until(client, source, 0, ack=False)
    back = await left(client, source)
    assert 0 not in back
    assert len(back) < 10


async def test_what_is_nacked_comes_again(client: Client) -> None:
    source = await stored(client, 1)
    async with client.push(source, "g", max_messages=2) as messages:
        seen = []
        async for delivery in messages:
            seen.append(delivery.delivery_count)
            if len(seen) == 1:
                await messages.nack(delivery, delay_ms=1)
                with pytest.raises(LeaseEnded):
                    await messages.nack(delivery)
    assert seen == [1, 2]
    assert await left(client, source) == {}


async def test_a_slow_consumer_gets_no_more_than_its_credit(client: Client) -> None:
    source = await stored(client, 20)
    async with client.push(source, "g", credit=3) as messages:
        await anext(messages)
        assert len(await left(client, source)) == 17


async def test_messages_stay_leased_however_long_the_one_in_hand_takes(client: Client) -> None:
    """The bridge renews no more once it has sent the last one."""
    source = await stored(client, 5)
    async with client.push(source, "g", max_messages=5, lease_ms=3000) as messages:
        await anext(messages)
        async with Client(client_url(client)) as other:  # it waits for longer than a lease, and gets nothing
            assert await other.pull(source, "g", wait_ms=4500) is None
        assert [delivery.delivery_count async for delivery in messages] == [1] * 4
    assert await left(client, source) == {}


def client_url(client: Client) -> str:
    return client._sender._url


async def test_handlers_that_run_at_the_same_time_acknowledge_themselves(client: Client) -> None:
    source = await stored(client, 50)

    async def handle(delivery: ReceivedMessage) -> None:
        if number(delivery) % 2:
            await client.ack(delivery.receipt or "")
        else:
            await client.nack(delivery.receipt or "", delay_ms=60_000)

    async with client.push(source, "g", auto_ack=False, max_messages=50) as messages, asyncio.TaskGroup() as tasks:
        async for delivery in messages:
            tasks.create_task(handle(delivery))
    assert await left(client, source) == {}


async def test_a_request_settles_500_messages(client: Client) -> None:
    source = await stored(client, 500)
    async with client.push(source, "g", auto_ack=False, credit=500, max_messages=500) as messages:
        receipts = [(await anext(messages)).receipt or "" for _ in range(500)]
        await client.ack(*receipts)
    assert await left(client, source) == {}


async def test_a_pull_that_waits_delays_no_other_request(client: Client) -> None:
    source = f"push-{uuid4().hex}"
    pull = asyncio.create_task(client.pull(source, "g", wait_ms=20_000))
    await client.capabilities()
    await client.produce(Message(source, b"7"))
    delivery = await pull
    assert delivery is not None
    assert number(delivery) == 7


async def test_calls_that_share_a_request_have_their_own_results(bridge: Bridge) -> None:
    source = f"push-{uuid4().hex}"
    async with Client(bridge.url, linger_ms=5) as client:
        names = ["..", *[source] * 99]
        first, *others = await asyncio.gather(
            *(client.produce(Message(name, b"%d" % n)) for n, name in enumerate(names)), return_exceptions=True
        )
        assert isinstance(first, DestinationInvalid)
        assert len({result.message_id for result in others if isinstance(result, ProduceResult)}) == 99
        assert sorted(await left(client, source, expected=99)) == list(range(1, 100))


async def test_a_refused_name_is_an_error_of_entering(client: Client) -> None:
    with pytest.raises(DestinationInvalid):
        async with client.push("..", "g"):
            pytest.fail("entered")


def again(directory: Path, bridge: Bridge) -> Bridge:
    """Start the bridge once more, where it was."""
    listen = urlsplit(bridge.url).netloc
    return Bridge(directory, server=bridge.server, backend=bridge.backend, settings={"OMS_LISTEN": listen})


@pytest.mark.parametrize("kill", [False, True], ids=["SIGTERM", "SIGKILL"])
@MOSTLY_HYPERCORN
async def test_it_outlives_the_bridge(
    tmp_path: Path, server: str, kill: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Each message is handled, the one in hand twice: its lease ended with the bridge."""
    handled: list[int] = []
    with Bridge(tmp_path, server=server, backend=f"memory://?journal={tmp_path}/journal") as first:
        async with Client(first.url) as client:
            source = await stored(client, 30)
            async with client.push(source, "g", credit=5) as messages:
                handled += [number(await anext(messages)) for _ in range(10)]
                if kill:
                    first.kill()
                else:
                    assert await asyncio.to_thread(first.terminate) == 0, first.log
                second = await asyncio.to_thread(again, tmp_path, first)
                while set(handled) != set(range(30)) or handled.count(handled[9]) == 1:
                    handled.append(number(await anext(messages)))
            assert await left(client, source) == {}
            second.terminate()
    assert "reopens in" in caplog.text


def test_probes_are_asked_of_the_kernel(bridge: Bridge) -> None:
    async def options() -> list[int]:
        async with Client(bridge.url) as client:
            await client.capabilities()
            assert isinstance(client._transport, HttpTransport)
            assert client._transport._session is not None
            connector = client._transport._session.connector
            ((idle,),) = connector._conns.values()  # type: ignore[union-attr]  # aiohttp's own
            raw = idle[0].transport.get_extra_info("socket")  # type: ignore[union-attr]
            return [
                raw.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) if os.name == "posix" else 30,
            ]

    assert asyncio.run(options()) == [1, 30]
