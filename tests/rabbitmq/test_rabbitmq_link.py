"""A connection says why it is not there, reconnects automatically, and leaves nothing behind."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from adapters.amqp.link import Link, read_version
from adapters.rabbitmq.options import parse
from bridge.errors import BackendUnavailable, DestinationUnknown, Refused
from tests.brokers.rabbitmq import RabbitMQ
from tests.rabbitmq.linked import SECONDS, desk, linked, until

SILENT = "amqp://127.0.0.1:1"
"""Nothing listens there."""
UNKNOWN = "no-such-host.invalid"


@pytest.fixture
def broker(stoppable_rabbitmq: RabbitMQ) -> RabbitMQ:
    return stoppable_rabbitmq


@asynccontextmanager
async def listener(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], object],
) -> AsyncIterator[str]:
    """A server that is no RabbitMQ."""
    writers: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        answer(reader, writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.close()


def silent(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Accept, and say nothing."""


async def why_not(url: str) -> str:
    link = Link(parse(url), "test")
    with pytest.raises(BackendUnavailable) as refusal:
        await link.start()
    assert not link.up
    assert link.failure.detail == refusal.value.detail
    await link.close()
    return refusal.value.detail


def test_versions() -> None:
    versions = {
        "3.10.8": (3, 10, 8),
        "4.1.0-rc.1": (4, 1, 0),
        "4.3": (4, 3, 0),
        "": (0, 0, 0),
        "3.13.7+2.g1a2b3c": (3, 13, 7),
    }
    assert {text: read_version(text) for text in versions} == versions


async def test_it_knows_the_version(rabbitmq_url: str) -> None:
    async with linked(rabbitmq_url) as link:
        assert link.up
        assert (3, 10, 0) <= link.version < (5, 0, 0)


async def test_nothing_listens() -> None:
    assert await why_not(SILENT) == "RabbitMQ, 127.0.0.1:1: nothing listens there."


async def test_no_such_host() -> None:
    assert "cannot be resolved" in await why_not(f"amqp://{UNKNOWN}")


async def test_what_listens_closes_at_once() -> None:
    async with listener(lambda _reader, writer: writer.close()) as address:
        assert "does not speak AMQP" in await why_not(f"amqp://{address}")


async def test_what_listens_speaks_something_else() -> None:
    def web(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        writer.close()

    async with listener(web) as address:
        assert "does not speak AMQP" in await why_not(f"amqp://{address}")


async def test_a_protocol_of_another_version() -> None:
    def other(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"AMQP\x00\x01\x00\x00")
        writer.close()

    async with listener(other) as address:
        assert "does not speak AMQP" in await why_not(f"amqp://{address}")


async def test_the_first_server_that_answers_is_used(rabbitmq_url: str) -> None:
    parts = urlsplit(rabbitmq_url)
    who, _, where = parts.netloc.rpartition("@")
    url = parts._replace(netloc=f"{who}@{UNKNOWN},127.0.0.1:1,{where}").geturl()
    async with linked(url) as link:
        assert link.up


async def test_a_start_that_failed_may_be_tried_again(rabbitmq_url: str) -> None:
    where = urlsplit(rabbitmq_url).netloc.rpartition("@")[2]
    link = Link(parse(rabbitmq_url.replace(where, "127.0.0.1:1")), "test")
    came: list[str] = []
    link.on_connected.append(lambda: came.append("came"))
    for _ in range(2):
        with pytest.raises(BackendUnavailable):
            await link.start()
    link._options = parse(rabbitmq_url)
    await link.start()
    assert came == ["came"]
    await link.close()
    await link.close()


async def test_no_such_virtual_host(rabbitmq_url: str) -> None:
    url = urlsplit(rabbitmq_url)._replace(path=f"/{uuid4().hex}").geturl()
    assert "no such virtual host" in await why_not(url)


async def test_a_wrong_password(rabbitmq_url: str) -> None:
    where = urlsplit(rabbitmq_url).netloc.rpartition("@")[2]
    assert "it does not accept this user and password" in await why_not(f"amqp://guest:{uuid4().hex}@{where}")


async def test_a_start_can_be_cancelled_at_any_time() -> None:
    async with listener(silent) as address:
        link = Link(parse(f"amqp://{address}"), "test")
        for turns in range(12):
            starting = asyncio.ensure_future(link.start())
            for _ in range(turns):
                await asyncio.sleep(0)
            starting.cancel()
            await asyncio.wait((starting,), timeout=SECONDS)
            assert starting.cancelled()
        await link.close()


async def test_a_start_can_be_cancelled_in_the_middle_of_the_login(rabbitmq_url: str) -> None:
    link = Link(parse(rabbitmq_url), "test")
    for turns in range(0, 60, 3):
        starting = asyncio.ensure_future(link.start())
        for _ in range(turns):
            await asyncio.sleep(0.0002)
        starting.cancel()
        await asyncio.wait((starting,), timeout=SECONDS)
        if not starting.cancelled():
            break
    await link.close()


async def test_closed_while_it_connects(rabbitmq_url: str) -> None:
    link = Link(parse(rabbitmq_url), "test")
    starting = asyncio.ensure_future(link.start())
    await asyncio.sleep(0)
    await link.close()
    with pytest.raises(BackendUnavailable):
        await asyncio.wait_for(starting, SECONDS)
    assert not link.up


async def test_a_refusal_closes_the_channel_and_no_other(rabbitmq_url: str) -> None:
    async with linked(rabbitmq_url) as link:
        one, other = await link.channel(), await link.channel()
        asked = [one.ask("a thing", "queue_declare", queue=uuid4().hex, passive=True) for _ in range(3)]
        assert all(
            isinstance(error, DestinationUnknown) for error in await asyncio.gather(*asked, return_exceptions=True)
        )
        assert not one.open
        await asyncio.wait_for(one.ended, SECONDS)
        with pytest.raises(DestinationUnknown):
            await one.ask("a thing", "queue_declare", queue=uuid4().hex)
        await one.close()
        queue = uuid4().hex
        await other.ask(queue, "queue_declare", queue=queue, durable=True)
        with pytest.raises(Refused, match="declared differently"):
            await other.ask(queue, "queue_declare", queue=queue, durable=True, auto_delete=True)
        assert link.up
        last = await link.channel()
        await last.ask(queue, "queue_delete", queue=queue)
        await last.close()
        assert not last.open


@pytest.mark.extended
async def test_everything_is_told_when_it_goes_and_comes(broker: RabbitMQ) -> None:
    told: list[str] = []
    async with linked(broker.url) as link:
        link.on_connected.append(lambda: told.append("came"))
        link.on_lost.append(lambda failure: told.append(f"gone {channel.open} {failure.detail}"))
        channel = await link.channel()
        waiting = asyncio.ensure_future(channel.ended)
        broker.kill()
        await until(lambda: bool(told))
        assert told[0].startswith("gone False RabbitMQ: ")
        assert waiting.done()
        with pytest.raises(BackendUnavailable):
            await channel.ask("a thing", "queue_declare", queue=uuid4().hex)
        with pytest.raises(BackendUnavailable):
            await link.channel()
        with pytest.raises(BackendUnavailable):  # it reconnects automatically
            await link.start()
        broker.start()
        await until(lambda: link.up)
        assert told[1:] == ["came"]
        await link.channel()


@pytest.mark.extended
async def test_closed_while_it_comes_back(broker: RabbitMQ) -> None:
    link = Link(parse(broker.url), "test")
    await link.start()
    broker.ctl("close_all_connections", "for a test")
    await until(lambda: not link.up)
    await link.close()
    assert not link.up


@pytest.mark.extended
async def test_a_broker_that_is_asked_to_stop_says_so(broker: RabbitMQ) -> None:
    async with linked(broker.url) as link:
        failures: list[BackendUnavailable] = []
        link.on_lost.append(failures.append)
        broker.ctl("close_all_connections", "for a test")
        await until(lambda: bool(failures))
        assert "CONNECTION_FORCED" in failures[0].detail
        await until(lambda: link.up)


@pytest.mark.extended
async def test_an_alarm_blocks_and_lets_go_and_can_be_closed_in(broker: RabbitMQ) -> None:
    async with desk(broker.url) as to, desk(broker.url) as leaving:
        queue = await to.queue()
        broker.ctl("set_vm_memory_high_watermark", "0.0000001")
        try:
            sent = to.send("", routing_key=queue)
            left = leaving.send("", routing_key=queue)
            await until(lambda: to.link.blocked is not None and leaving.link.blocked is not None)
            assert to.beside_link.blocked is None
            await leaving.link.close()  # the broker does not read that it is asked for
            assert isinstance(left.exception(), Exception)
        finally:
            broker.ctl("set_vm_memory_high_watermark", "0.4")
        await asyncio.wait_for(sent, SECONDS)
        await until(lambda: to.link.blocked is None)


@pytest.mark.extended
async def test_a_broker_that_hangs(broker: RabbitMQ) -> None:
    """It is given up after missed heartbeats, and so is a connection that is being made; then all goes on."""
    # 3 s: with 1 s a machine that is busy elsewhere looked like a broker that hangs, once all went on
    async with linked(f"{broker.url}?heartbeat=3000") as link, linked(broker.url) as leaving:
        failures: list[BackendUnavailable] = []
        link.on_lost.append(failures.append)
        broker.pause()
        try:
            opening = asyncio.ensure_future(link.channel())
            await leaving.close()
            await until(lambda: bool(failures))
            assert failures[0].detail == "RabbitMQ: it has sent no heartbeat for too long."
            with pytest.raises(BackendUnavailable):
                await opening
        finally:
            broker.resume()
        await until(lambda: link.up)
        await link.channel()
