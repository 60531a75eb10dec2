"""A program that uses pika and its successor that uses `bridge.client`: each goes on where the other was."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pika
import pytest

from bridge.client import Client
from bridge.message import Message
from tests.rabbitmq.bridged import backend, bridged

Handle = Callable[[str, bytes], None]


def native_order(url: str, exchange: str, customer: str, body: bytes) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    properties = pika.BasicProperties(delivery_mode=2, correlation_id=customer, headers={"region": "eu"})
    channel.basic_publish(exchange, "order.created", body, properties, mandatory=True)
    connection.close()


def native_bill(url: str, queue: str, handle: Handle) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=50)
    for method, properties, body in channel.consume(queue, inactivity_timeout=3):
        if method is None:
            break
        handle(properties.correlation_id, body)
        channel.basic_ack(method.delivery_tag)
    channel.cancel()
    connection.close()


async def order(url: str, customer: str, body: bytes) -> None:
    async with Client(url) as client:
        message = Message("orders", body, {"region": "eu"}, message_key=customer, correlation_id=customer)
        await client.produce(message)


async def bill(url: str, handle: Handle) -> None:
    async with Client(url) as client, client.push("orders", "billing", wait_ms=3000) as messages:
        async for delivery in messages:
            handle(delivery.message.correlation_id or "", delivery.message.body)


@pytest.mark.extended
async def test_they_continue_each_other(tmp_path: Path, rabbitmq_url: str) -> None:
    shop, queue = (f"{name}-{uuid4().hex[:8]}" for name in ("shop", "billing"))
    file = tmp_path / "destinations.yaml"
    file.write_text(f"orders: {{exchange: {shop}, routing_key: order.created, queue: {queue}}}\n")
    came: list[tuple[str, bytes]] = []

    def handle(customer: str, body: bytes) -> None:
        came.append((customer, body))

    with closing(pika.BlockingConnection(pika.URLParameters(rabbitmq_url))) as connection:
        channel = connection.channel()
        channel.exchange_declare(shop, "topic", durable=True)
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, shop, "order.created")
        async with bridged(tmp_path / "bridge", backend(rabbitmq_url, destinations=file)) as (bridge, _):
            await order(bridge.url, "c-0", b"with a property")
            _, properties, _ = channel.basic_get(queue, auto_ack=True)
            assert properties.headers["oms_p_region"] == "eu"
            native_order(rabbitmq_url, shop, "c-1", b"native")
            await order(bridge.url, "c-2", b"bridged")
            await asyncio.to_thread(native_bill, rabbitmq_url, queue, handle)
            assert came == [("c-1", b"native"), ("c-2", b"bridged")]
            native_order(rabbitmq_url, shop, "c-1", b"native again")
            await order(bridge.url, "c-2", b"bridged again")
            await bill(bridge.url, handle)
            assert came[2:] == [("c-1", b"native again"), ("c-2", b"bridged again")]
            assert bridge.terminate() == 0
        native_order(rabbitmq_url, shop, "c-3", b"back")
        await asyncio.to_thread(native_bill, rabbitmq_url, queue, handle)
        assert came[4:] == [("c-3", b"back")]
        channel.queue_delete(queue)
        channel.exchange_delete(shop)
