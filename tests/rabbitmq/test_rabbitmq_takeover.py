"""What exists already is taken over as it is, and can be given back: queues, exchanges, bindings, their messages."""

import asyncio
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Final
from uuid import uuid4

import pika
import pytest
import yaml
from pika import BasicProperties

from tests.conformance.conversation import Conversation, refused
from tests.rabbitmq import natives
from tests.rabbitmq.bridged import backend, bridged
from tests.rabbitmq.natives import Sent

COUNT: Final = 20
NUMBERS: Final = [b"%d" % number for number in range(COUNT)]


def told(directory: Path, **destinations: Mapping[str, object]) -> dict[str, object]:
    """Write the file of `destinations=`."""
    file = directory / "destinations.yaml"
    file.write_text(yaml.safe_dump(destinations), "utf-8")
    return {"destinations": file}


@pytest.fixture
def destination() -> str:
    """Return a name for what exists."""
    return f"d-{uuid4().hex[:12]}"


@pytest.fixture(params=[pytest.param("classic", marks=pytest.mark.extended), "quorum"])
def queue(request: pytest.FixtureRequest, rabbitmq_url: str) -> str:
    """Return a queue with numbered messages, made and filled without the bridge."""
    name = natives.queue_of(rabbitmq_url, request.param)
    natives.write(rabbitmq_url, "", [Sent(number, name) for number in NUMBERS])
    return name


async def test_an_existing_queue_is_drained_in_order(
    tmp_path: Path, queue: str, destination: str, rabbitmq_url: str
) -> None:
    url = backend(rabbitmq_url, **told(tmp_path, **{destination: {"queue": queue}}))
    async with bridged(tmp_path / "bridge", url) as (_, talk):
        talk.destination = destination
        taken = await talk.take_all(COUNT)
        await talk.nothing()
    assert [each.body for each in taken] == NUMBERS
    assert {each.count for each in taken} == {1}
    assert natives.left(rabbitmq_url, queue) == 0


async def test_its_messages_are_what_they_were(tmp_path: Path, destination: str, rabbitmq_url: str) -> None:
    queue = natives.queue_of(rabbitmq_url)
    headers = {"region": "eu", "n": 5, "price": Decimal("12.5"), "raw": b"\xff"}
    slots = BasicProperties(
        message_id="m-1", correlation_id="c-1", content_type="text/plain", priority=3, headers=headers
    )
    natives.write(rabbitmq_url, "", [Sent(b"\x00body\r\n", queue, slots)])
    async with bridged(tmp_path, backend(rabbitmq_url, **told(tmp_path, **{destination: {"queue": queue}}))) as (
        _,
        talk,
    ):
        talk.destination = destination
        [taken] = await talk.take_all(1)
    fields = ("destination", "messageid", "correlationid", "priority", "partition")
    assert [taken.headers[f"x-oms-h-{name}"] for name in fields] == [destination, "m-1", "c-1", "4", "0"]
    assert (taken.body, taken.headers["content-type"]) == (b"\x00body\r\n", "text/plain")
    shown = {name: taken.headers[f"x-oms-p-{name}"] for name in ("region", "n", "price", "raw", "amqp_routing_key")}
    assert shown == {
        "region": "eu",
        "n": "5",
        "price": "12.5",
        "raw": "data:;base64,/w==",
        "amqp_routing_key": queue,
    }


async def test_a_native_consumer_goes_on_where_the_bridge_stops(
    tmp_path: Path, queue: str, destination: str, rabbitmq_url: str
) -> None:
    """What was handed out and not settled goes back to its place, redelivered."""
    url = backend(rabbitmq_url, **told(tmp_path, **{destination: {"queue": queue}}))
    async with bridged(tmp_path / "bridge", url) as (bridge, talk):
        talk.destination = destination
        await talk.take_all(COUNT // 2)
        await talk.take()
        assert bridge.terminate() == 0
    rest = await asyncio.to_thread(natives.take, rabbitmq_url, queue, COUNT // 2)
    assert [got.body for got in rest] == NUMBERS[COUNT // 2 :]
    assert rest[0].redelivered


async def test_the_bridge_and_a_native_consumer_share_a_queue(
    tmp_path: Path, destination: str, rabbitmq_url: str
) -> None:
    queue = natives.queue_of(rabbitmq_url)
    url = backend(rabbitmq_url, **told(tmp_path, **{destination: {"queue": queue}}), prefetch=1)
    async with bridged(tmp_path, url) as (_, talk):
        talk.destination = destination
        await talk.nothing(wait=0)

        def consume() -> list[bytes]:
            taken = []
            with natives.channel(rabbitmq_url) as channel:
                channel.basic_qos(prefetch_count=1)
                natives.write(rabbitmq_url, "", [Sent(number, queue) for number in NUMBERS])
                for method, _, body in channel.consume(queue, inactivity_timeout=natives.SECONDS):
                    assert method is not None, "the bridge has them all"
                    taken.append(body)
                    channel.basic_ack(method.delivery_tag)
                    if len(taken) == COUNT // 4:
                        break
                channel.cancel()
            return taken

        theirs = await asyncio.to_thread(consume)
        ours = [taken.body for taken in await talk.take_all(COUNT - len(theirs))]
        await talk.nothing()
    assert sorted(theirs + ours) == sorted(NUMBERS)


async def test_a_redelivery_counts_whatever_a_producer_claims(
    tmp_path: Path, destination: str, rabbitmq_url: str
) -> None:
    """A classic queue hands on `x-delivery-count` as it was published."""
    queue = natives.queue_of(rabbitmq_url)
    forged = BasicProperties(headers={"x-delivery-count": 99, "x-acquired-count": 99})
    natives.write(rabbitmq_url, "", [Sent(b"forged", queue, forged)])
    url = backend(rabbitmq_url, **told(tmp_path, **{destination: {"queue": queue}}))
    async with bridged(tmp_path / "first", url) as (bridge, talk):
        talk.destination = destination
        assert (await talk.take()).count == 1
        bridge.kill()
    async with bridged(tmp_path / "second", url) as (_, talk):
        talk.destination = destination
        taken = await talk.take()
        assert (taken.body, taken.count) == (b"forged", 2)


async def test_what_is_produced_to_an_existing_queue_lies_in_it(
    tmp_path: Path, destination: str, rabbitmq_url: str
) -> None:
    queue = natives.queue_of(rabbitmq_url, "priority")
    async with bridged(tmp_path, backend(rabbitmq_url, **told(tmp_path, **{destination: {"queue": queue}}))) as (
        _,
        talk,
    ):
        talk.destination = destination
        await talk.produce(b"low", priority=1)
        await talk.produce(b"high", priority=10)
        refused(await talk.post(partition=1), 400, "partition-unknown")
    got = natives.take(rabbitmq_url, queue, 2)
    assert [(each.body, each.key, each.properties.priority) for each in got] == [
        (b"high", queue, 9),
        (b"low", queue, 0),
    ]


@pytest.mark.parametrize(
    "kind", ["topic", *(pytest.param(each, marks=pytest.mark.extended) for each in ("direct", "fanout"))]
)
async def test_an_existing_exchange_is_published_to_and_bound_to(
    kind: str, tmp_path: Path, destination: str, rabbitmq_url: str
) -> None:
    """With its own routing key: its other consumers get what the bridge publishes, and groups what others publish."""
    exchange = natives.exchange_of(rabbitmq_url, kind)
    native = natives.queue_of(rabbitmq_url, exchange=exchange, key="invoice.created")
    existing: dict[str, object] = {"exchange": exchange, "routing_key": "invoice.created"}
    async with bridged(tmp_path, backend(rabbitmq_url, **told(tmp_path, **{destination: existing}))) as (_, talk):
        talk.destination = destination
        talk.group = f"g-{uuid4().hex}"
        await talk.nothing(wait=0)
        await talk.produce(b"by the bridge", messagekey="k")
        natives.write(rabbitmq_url, exchange, [Sent(b"by a native", "invoice.created")])
        if kind != "fanout":
            with pytest.raises(pika.exceptions.UnroutableError):
                natives.write(rabbitmq_url, exchange, [Sent(b"not bound", "invoice.paid")])
        taken = {each.body: each for each in await talk.take_all(2)}
        await talk.nothing()
        assert {each.headers["x-oms-h-partition"] for each in taken.values()} == {"0"}
    got = natives.take(rabbitmq_url, native, 2)
    assert {each.body for each in got} == taken.keys() == {b"by the bridge", b"by a native"}
    assert {each.key for each in got} == {"invoice.created"}


async def test_every_group_of_an_existing_exchange_gets_everything(tmp_path: Path, rabbitmq_url: str) -> None:
    exchange = natives.exchange_of(rabbitmq_url, "topic")
    url = backend(rabbitmq_url, **told(tmp_path, **{exchange: {"exchange": exchange}}))
    async with bridged(tmp_path, url) as (_, talk):
        other = Conversation(talk.http)
        talk.destination = other.destination = exchange
        for each in talk, other:
            await each.nothing(wait=0)
        keys = ("", "a", "a.b", "p0")
        natives.write(rabbitmq_url, exchange, [Sent(key.encode(), key) for key in keys])
        for each in talk, other:
            assert sorted(one.body.decode() for one in await each.take_all(len(keys))) == sorted(keys)
            await each.nothing()


@pytest.mark.parametrize("what", ["queue", "exchange"])
async def test_what_is_said_to_exist_and_does_not_is_never_made(
    what: str, tmp_path: Path, destination: str, rabbitmq_url: str
) -> None:
    name = f"native.{uuid4().hex[:12]}"
    async with bridged(tmp_path, backend(rabbitmq_url, **told(tmp_path, **{destination: {what: name}}))) as (_, talk):
        talk.destination = destination
        assert destination in refused(await talk.post(b"nowhere"), 404, "destination-unknown")
        refused(await talk.get(), 404, "destination-unknown")
        with natives.channel(rabbitmq_url) as channel, pytest.raises(pika.exceptions.ChannelClosedByBroker):
            getattr(channel, f"{what}_declare")(name, passive=True)
        if what == "queue":
            with natives.channel(rabbitmq_url) as channel:
                channel.queue_declare(name, durable=True)
            await talk.produce(b"there now")
            assert (await talk.take()).body == b"there now"


async def test_a_destination_may_keep_no_log(tmp_path: Path, rabbitmq_url: str) -> None:
    """Then a group that comes late begins with what is published from now on, and any header goes."""
    with_log, without = f"d-{uuid4().hex[:12]}", f"d-{uuid4().hex[:12]}"
    url = backend(rabbitmq_url, **told(tmp_path, **{without: {"log": False}}))
    async with bridged(tmp_path, url) as (_, talk):
        talk.destination = with_log
        await talk.nothing(wait=0)
        talk.destination = without
        await talk.nothing(wait=0)
        natives.write(rabbitmq_url, without, [Sent(b"1", "x", BasicProperties(headers={"price": Decimal("12.5")}))])
        assert natives.left(rabbitmq_url, f"{with_log}.log") >= 0
        with natives.channel(rabbitmq_url) as channel, pytest.raises(pika.exceptions.ChannelClosedByBroker):
            channel.queue_declare(f"{without}.log", passive=True)
        [taken] = await talk.take_all(1)
        assert taken.headers["x-oms-p-price"] == "12.5"
        late = Conversation(talk.http)
        late.destination = without
        await late.nothing()


async def test_a_log_cannot_have_a_decimal_header(tmp_path: Path, rabbitmq_url: str) -> None:
    """RabbitMQ closes the producer's connection over the stream, and the groups get the message all the same."""
    priced = Sent(b"1", "x", BasicProperties(headers={"price": Decimal("12.5")}))
    nested = Sent(b"2", "x", BasicProperties(headers={"prices": [Decimal("12.5")], "of": {"one": Decimal("0.5")}}))
    async with bridged(tmp_path, backend(rabbitmq_url)) as (_, talk):
        await talk.nothing(wait=0)
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="541"):
            natives.write(rabbitmq_url, talk.destination, [priced])
        natives.write(rabbitmq_url, talk.destination, [nested])
        found = {taken.body: taken.headers for taken in await talk.take_all(2)}
        assert found[b"1"]["x-oms-p-price"] == "12.5"
        late = Conversation(talk.http)
        late.destination = talk.destination
        assert [taken.body for taken in await late.take_all(1)] == [b"2"]
        await late.nothing()
