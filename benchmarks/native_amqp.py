"""The ceiling of the RabbitMQ figures: the same work done by a program that uses pika itself, asynchronously.

Run as a program: `native_amqp.py produce|consume URL DESTINATION NUMBER AT_ONCE`. It prints the messages per second and
its own CPU seconds for all of them, a warm-up not included.

- produce: 1 KiB with a key and two headers, persistent, mandatory, to a destination of the bridge, with
  `AT_ONCE` of them unconfirmed.
- queues: declares a group's queues as the bridge does, for `consume` to read.
- consume: reads them with the bridge's prefetch and acknowledges each message, until so many have come.
"""

import asyncio
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import takewhile
from typing import Any, Final

import pika
from pika.adapters.asyncio_connection import AsyncioConnection

from adapters.rabbitmq.options import Options
from adapters.rabbitmq.topology import names

BODY: Final = b"0123456789abcdef" * 64
WARM_UP: Final = 500
PARTITIONS: Final = Options(()).partitions
PREFETCH: Final = Options(()).prefetch
GROUP: Final = "native"

Begin = Callable[[int], Awaitable[None]]


async def main() -> None:
    """Do what the command line says and print what it took."""
    work, url, destination, number, at_once = sys.argv[1:]
    connection = await _open(url)
    begin = await WORKS[work](connection, destination, int(at_once))
    if int(number):
        await begin(WARM_UP)
        cpu, at = time.process_time(), time.perf_counter()
        await begin(int(number))
        print(int(number) / (time.perf_counter() - at), time.process_time() - cpu)
    closed = asyncio.get_running_loop().create_future()
    connection.add_on_close_callback(lambda *_: closed.set_result(None))
    connection.close()
    await closed


async def _open(url: str) -> AsyncioConnection:
    opened = asyncio.get_running_loop().create_future()
    connection = AsyncioConnection(
        pika.URLParameters(url),
        on_open_callback=opened.set_result,
        on_open_error_callback=lambda _, error: opened.set_exception(error),
    )
    await opened
    return connection


async def _channel(connection: AsyncioConnection) -> Any:  # noqa: ANN401 - pika has no types
    opened = asyncio.get_running_loop().create_future()
    connection.channel(on_open_callback=opened.set_result)
    return await opened


async def _ask(method: Callable[..., Any], **arguments: object) -> None:
    answered = asyncio.get_running_loop().create_future()
    method(**arguments, callback=answered.set_result)
    await answered


async def _produce(connection: AsyncioConnection, destination: str, at_once: int) -> Begin:
    channel = await _channel(connection)
    flying: dict[int, None] = {}
    sent = 0
    room = asyncio.Event()

    def landed(frame: Any) -> None:  # noqa: ANN401 - a frame of pika's
        if frame.method.NAME != "Basic.Ack":
            raise RuntimeError("A message was not stored.")
        tag = frame.method.delivery_tag
        for each in list(takewhile(lambda other: other <= tag, flying)) if frame.method.multiple else [tag]:
            del flying[each]
        room.set()

    answered = asyncio.get_running_loop().create_future()
    channel.confirm_delivery(landed, callback=answered.set_result)
    await answered

    async def produce(number: int) -> None:
        nonlocal sent
        for turn in range(number):
            while len(flying) >= at_once:
                room.clear()
                await room.wait()
            properties = pika.BasicProperties(
                content_type="application/json",
                delivery_mode=2,
                message_id=f"{turn:036d}",
                headers={"region": "eu", "key": f"customer-{turn}"},
            )
            channel.basic_publish(destination, f"p{turn % PARTITIONS}", BODY, properties, mandatory=True)
            sent += 1
            flying[sent] = None
        while flying:
            room.clear()
            await room.wait()

    return produce


async def _queues(connection: AsyncioConnection, destination: str, _: int) -> Begin:
    channel = await _channel(connection)
    for partition in range(PARTITIONS):
        queue = names.queue(destination, GROUP, partition)
        arguments = {"x-queue-type": "quorum", "x-single-active-consumer": True, "x-delivery-limit": 1_000_000_000}
        await _ask(channel.queue_declare, queue=queue, durable=True, arguments=arguments)
        await _ask(channel.queue_bind, queue=queue, exchange=names.parts(destination), routing_key=f"#.p{partition}")
    return lambda _: asyncio.sleep(0)


async def _consume(connection: AsyncioConnection, destination: str, _: int) -> Begin:
    missing = 0
    done = asyncio.Event()
    resting: deque[tuple[Any, int]] = deque()

    def arrived(channel: Any, method: Any, _properties: object, _body: bytes) -> None:  # noqa: ANN401
        nonlocal missing
        if not missing:
            resting.append((channel, method.delivery_tag))
            return
        channel.basic_ack(method.delivery_tag)
        missing -= 1
        if not missing:
            done.set()

    async def consume(number: int) -> None:
        nonlocal missing
        done.clear()
        missing = number
        while resting and missing:
            channel, tag = resting.popleft()
            channel.basic_ack(tag)
            missing -= 1
        if missing:
            await done.wait()

    for partition in range(PARTITIONS):
        channel = await _channel(connection)
        await _ask(channel.basic_qos, prefetch_count=PREFETCH)
        channel.basic_consume(names.queue(destination, GROUP, partition), arrived)
    return consume


WORKS: Final = {"produce": _produce, "queues": _queues, "consume": _consume}

if __name__ == "__main__":
    asyncio.run(main())
