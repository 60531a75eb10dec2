"""The moment in which an answer and its client's leaving meet: inside the process, where it can be hit exactly."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from adapters.memory import connect
from bridge.callbacks.registry import Callbacks
from bridge.engine.clock import SystemClock
from bridge.engine.engine import Engine, GroupName
from bridge.engine.policy import Policy
from bridge.engine.waiters import Want
from bridge.http.app import DataApp, routes
from bridge.http.guard import Guard
from bridge.http.limits import Limits
from bridge.message import Message
from bridge.telemetry import Telemetry

NAME = GroupName("orders", "app")


class Client:
    """The ASGI side of one waiting pull."""

    def __init__(self, *, ack: bytes) -> None:
        self.left = asyncio.Event()
        self.sent: list[Any] = []
        headers = [
            (b"x-oms-version", b"1.0.0"),
            (b"x-oms-source", b"orders"),
            (b"x-oms-consumerid", b"app"),
            (b"x-oms-ack", ack),
            (b"x-oms-waitmills", b"5000"),
        ]
        self.scope = {
            "type": "http",
            "method": "GET",
            "path": "/v1/messages",
            "query_string": b"",
            "headers": headers,
            "client": ("127.0.0.1", 1),
        }

    async def receive(self) -> dict[str, str]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, event: Any) -> None:  # noqa: ANN401 - ASGI
        self.sent.append(event)


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    engine = Engine(connect("memory://"), SystemClock(), Policy("host"))
    await engine.start()
    yield engine
    await engine.close()


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("ack", [b"true", b"false"])
async def test_a_message_whose_client_left_meanwhile_is_not_counted(engine: Engine, turns: int, ack: bytes) -> None:
    """The client leaves some turns of the loop after the message came: it is sent, or it goes back unharmed."""
    limits = Limits()
    app = DataApp(routes(engine, Callbacks(engine), limits, 16), Guard((), ()), limits, Telemetry(engine))
    client = Client(ack=ack)
    waiting = asyncio.ensure_future(app(client.scope, client.receive, client.send))
    await asyncio.sleep(0.01)
    assert engine.counters.waiting_pulls == 1
    await engine.produce(Message("orders", b"news"), (), "peer")
    for _ in range(turns):
        await asyncio.sleep(0)
    client.left.set()
    await waiting
    again = await engine.pull(NAME, Want(1000), ack=True)
    if client.sent:
        assert again is None
    else:
        assert again is not None
        assert (again.message.body, again.message.delivery_count) == (b"news", 1)
    assert engine.counters.waiting_pulls == 0


async def test_both_ends_of_that_moment_are_reached(engine: Engine) -> None:
    limits = Limits()
    app = DataApp(routes(engine, Callbacks(engine), limits, 16), Guard((), ()), limits, Telemetry(engine))
    sent = set()
    for turns in range(6):
        client = Client(ack=b"false")
        waiting = asyncio.ensure_future(app(client.scope, client.receive, client.send))
        await asyncio.sleep(0.01)
        await engine.produce(Message("orders", b"news"), (), "peer")
        for _ in range(turns):
            await asyncio.sleep(0)
        client.left.set()
        await waiting
        sent.add(bool(client.sent))
        while await engine.pull(NAME, Want(1000), ack=False) is not None:
            pass
    assert sent == {True, False}
