"""Deleting and purging destinations and groups in a real RabbitMQ, by an operator of one of two bridges."""

import asyncio
from contextlib import closing, suppress
from pathlib import Path
from time import monotonic
from uuid import uuid4

import httpx
import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from adapters.rabbitmq.adapter import RabbitMQAdapter
from adapters.rabbitmq.options import parse
from adapters.rabbitmq.topology import names
from adapters.wall_clock import wall
from bridge.message import Message
from tests.deleting import check_callbacks, check_delete, check_purge, check_unknown, two_bridges
from tests.http.callback_endpoint import Endpoint, ask, listed, register, wait_until
from tests.launch import Bridge
from tests.rabbitmq.bridged import backend


async def test_a_group_and_a_destination_are_purged(tmp_path: Path, rabbitmq_url: str) -> None:
    async with two_bridges(tmp_path, backend(rabbitmq_url, partitions=2)) as two:
        await check_purge(two)


async def test_a_destination_is_deleted_under_two_bridges(tmp_path: Path, rabbitmq_url: str) -> None:
    async with two_bridges(tmp_path, backend(rabbitmq_url, partitions=2)) as two:
        await check_delete(two)


def test_callbacks_of_two_bridges_outlive_purge_and_delete(tmp_path: Path, rabbitmq_url: str) -> None:
    check_callbacks(tmp_path, backend(rabbitmq_url, partitions=2))


def test_without_a_log_a_callback_has_its_destination_created_again(tmp_path: Path, rabbitmq_url: str) -> None:
    """A group that is made later would miss what was produced before."""
    name = f"orders-{uuid4().hex[:8]}"
    endpoint = Endpoint().listen()
    url = backend(rabbitmq_url, partitions=2, log="false")
    try:
        with Bridge(tmp_path, backend=url, settings=endpoint.settings()) as bridge:
            register(bridge, name, endpoint.url("/"))
            path = f"{bridge.management}/v1/destinations/{name}"
            for _ in range(2):  # the second time, only the callback can have created it
                wait_until(lambda: httpx.delete(path, trust_env=False, timeout=60).status_code == 204)

            def delivered() -> bool:
                ask(bridge, "POST", "/v1/messages", {"h-destination": name}, b"one")  # 503 while its queues are made
                return len(endpoint.to("/")) > 0

            wait_until(delivered)
            assert (listed(bridge, name) or {})["state"] == "delivering"
    finally:
        endpoint.close()


async def test_what_does_not_exist_is_unknown(tmp_path: Path, rabbitmq_url: str) -> None:
    async with two_bridges(tmp_path, backend(rabbitmq_url, partitions=2)) as two:
        await check_unknown(two)


async def test_a_group_is_deleted_while_another_bridge_serves_it(tmp_path: Path, rabbitmq_url: str) -> None:
    """The other bridge makes the queues anew and goes on."""
    async with two_bridges(tmp_path, backend(rabbitmq_url, partitions=1)) as two:
        await two.near.produce(b"a")
        await two.far.take()
        assert (await two.change("DELETE", f"/groups/{two.far.group}")).status_code == 204
        await two.near.produce(b"b")
        assert (await two.far.take(waitmills=60_000)).body in {b"a", b"b"}


async def test_an_exchange_that_is_not_the_bridges_stays(tmp_path: Path, rabbitmq_url: str) -> None:
    exchange, queue = (f"legacy-{uuid4().hex[:8]}" for _ in range(2))
    file = tmp_path / "destinations.yaml"
    with closing(pika.BlockingConnection(pika.URLParameters(rabbitmq_url))) as connection:
        native = connection.channel()
        native.exchange_declare(exchange, "fanout", durable=True)
        native.queue_declare(queue, durable=True)
        file.write_text(f"orders: {{exchange: {exchange}}}\nlegacy: {{queue: {queue}}}\n")
        async with two_bridges(tmp_path, backend(rabbitmq_url, destinations=file)) as two:
            two.near.destination = two.far.destination = "orders"
            await two.near.produce(b"a")
            await two.near.nack((await two.near.take()).receipt)
            assert (await two.change("DELETE", "")).status_code == 204
            await two.near.nothing()
            native.exchange_declare(exchange, passive=True)
            two.near.destination = "legacy"
            native.basic_publish("", queue, b"kept")
            for method, path in ("DELETE", ""), ("POST", "/purge"):
                answer = await two.change(method, path)
                assert (answer.status_code, answer.json()["code"]) == (403, "backend-refused")
            assert (await two.near.take()).body == b"kept"


async def test_nothing_of_a_deleted_destination_is_left(tmp_path: Path, rabbitmq_url: str) -> None:
    async with two_bridges(tmp_path, backend(rabbitmq_url, partitions=1)) as two:
        await two.near.join()
        name = two.near.destination
        exchanges = [name, names.parts(name), names.rest(name)]
        queues = [names.log(name), names.queue(name, two.near.group, 0)]
        assert _existing(rabbitmq_url, exchanges, queues) == [*exchanges, *queues]
        assert (await two.change("DELETE", "")).status_code == 204
        assert _existing(rabbitmq_url, exchanges, queues) == []


def _existing(url: str, exchanges: list[str], queues: list[str]) -> list[str]:
    found = []
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        for name in [*exchanges, *queues]:
            channel = connection.channel()
            with suppress(ChannelClosedByBroker):
                if name in exchanges:
                    channel.exchange_declare(name, passive=True)
                else:
                    channel.queue_declare(name, passive=True)
                found.append(name)
    return found


async def test_what_was_delayed_to_a_destination_that_is_deleted_leaves_nothing_behind(
    rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3,000 destinations that were made and deleted would be remembered."""
    adapter = RabbitMQAdapter(parse(backend(rabbitmq_url, partitions=1)))
    await adapter.start()
    orders = [f"orders-{uuid4().hex[:8]}" for _ in range(3)]
    delayed = [f"{name}-{number}" for name in orders for number in range(2)]

    async def publish(destination: str) -> None:
        now = wall()
        times = {"born_timestamp": now, "store_timestamp": now, "delay_time": 3_600_000}
        await adapter.partitions(destination)
        await adapter.publish(Message(destination, b"x", message_id=uuid4().hex, partition=0, **times))  # type: ignore[arg-type]

    await asyncio.gather(*map(publish, delayed * 2))
    delays = adapter._delays
    assert (sorted(delays._targets), delays._queued) == (sorted(delayed), {})
    assert len(delays._levels._targets) == len(delayed)
    for destination in delayed[1:]:
        await adapter.delete(destination, None)
    await asyncio.to_thread(wait_until, lambda: len(delays._targets) == 1)
    assert (list(delays._targets), len(delays._levels._targets)) == (delayed[:1], 1)
    monkeypatch.setattr("adapters.rabbitmq.delay.delays._DESTINATIONS", 2)
    await asyncio.gather(*map(publish, delayed))
    assert len(delays._targets) == len(delays._levels._targets) == 2
    later = monotonic() + 61
    monkeypatch.setattr("adapters.rabbitmq.delay.delays.monotonic", lambda: later)
    await publish(delayed[0])
    assert len(delays._levels._targets) == 1
    await adapter.close()
