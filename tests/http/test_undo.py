"""The moment in which an answer and its client's leaving meet: inside the process, where it can be hit exactly."""

import asyncio
from collections.abc import AsyncIterator
from itertools import product
from typing import Any

import pytest

from adapters.memory import connect
from bridge.callbacks.registry import CallbackRegistry
from bridge.engine.clock import SystemClock
from bridge.engine.destination_names import SubscriptionKey
from bridge.engine.engine import Engine
from bridge.engine.options import EngineOptions
from bridge.engine.pull_and_prefetch import PullRequest
from bridge.http.data_port import DataApp, routes
from bridge.http.origin_policy import OriginPolicy
from bridge.http.request_and_reply import Limits
from bridge.message import Message
from bridge.metrics import BridgeMetrics
from tests.calls import produce, settled

NAME = SubscriptionKey("orders", "app")


class Client:
    """The ASGI side of one waiting pull."""

    def __init__(self, *, ack: bytes, wait: bytes = b"5000") -> None:
        self.left = asyncio.Event()
        self.sent: list[Any] = []
        headers = [
            (b"x-oms-version", b"1.0.0"),
            (b"x-oms-source", b"orders"),
            (b"x-oms-consumerid", b"app"),
            (b"x-oms-ack", ack),
            (b"x-oms-waitmills", wait),
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

    @property
    def got_it(self) -> bool:
        """Whether the message was sent; else the reply says that there is none."""
        status = self.sent[0]["status"]
        assert status in {200, 204}
        return bool(status == 200)


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    engine = Engine(connect("memory://"), SystemClock(), EngineOptions("host"))
    await engine.start()
    yield engine
    await engine.close()


async def test_a_message_whose_client_left_meanwhile_is_not_counted(engine: Engine, subtests: pytest.Subtests) -> None:
    """The client leaves some turns of the loop after the message came: it is sent, or it goes back unharmed."""
    for ack, turns in product((b"true", b"false"), range(6)):
        with subtests.test(f"{ack=}, {turns=}"):
            app = _app_of(engine)
            client = Client(ack=ack)
            waiting = asyncio.ensure_future(app(client.scope, client.receive, client.send))
            await asyncio.sleep(0.01)
            assert engine.counters.waiting_pulls == 1
            await _produce(engine)
            for _ in range(turns):
                await asyncio.sleep(0)
            client.left.set()
            await waiting
            again = await settled(engine.pull(NAME, PullRequest(1000), ack=False))
            if client.got_it:
                assert again is None
            else:
                assert again is not None
                assert (again.message.body, again.message.delivery_count) == (b"news", 1)
            assert engine.counters.waiting_pulls == 0


@pytest.mark.parametrize("wait", [b"0", b"5000"])
@pytest.mark.parametrize("ack", [b"true", b"false"])
async def test_a_message_whose_client_left_before_its_group_was_open_is_not_taken(
    subtests: pytest.Subtests, ack: bytes, wait: bytes
) -> None:
    """The server reports the disconnect some turns of the loop after the group was opened, or before."""
    for turns in range(12):
        with subtests.test(f"{turns=}"):
            engine = Engine(connect("memory://"), SystemClock(), EngineOptions("host", disconnect_reported=10))
            await engine.start()
            await _produce(engine)
            app = _app_of(engine)
            client = Client(ack=ack, wait=wait)
            waiting = asyncio.ensure_future(app(client.scope, client.receive, client.send))
            for _ in range(turns):
                await asyncio.sleep(0)
            client.left.set()
            await waiting
            assert client.sent[0]["status"] == 204, "it may only have closed its sending side"
            again = await settled(engine.pull(NAME, PullRequest(1000), ack=False))
            assert again is not None
            assert (again.message.body, again.message.delivery_count) == (b"news", 1)
            await engine.close()


async def test_both_ends_of_that_moment_are_reached(engine: Engine) -> None:
    app = _app_of(engine)
    sent = set()
    for turns in range(6):
        client = Client(ack=b"false")
        waiting = asyncio.ensure_future(app(client.scope, client.receive, client.send))
        await asyncio.sleep(0.01)
        await _produce(engine)
        for _ in range(turns):
            await asyncio.sleep(0)
        client.left.set()
        await waiting
        sent.add(client.got_it)
        while await settled(engine.pull(NAME, PullRequest(1000), ack=False)) is not None:
            pass
    assert sent == {True, False}


def _app_of(engine: Engine) -> DataApp:
    limits = Limits()
    return DataApp(
        routes(engine, CallbackRegistry(engine), limits, 16), OriginPolicy((), ()), limits, BridgeMetrics(engine)
    )


async def _produce(engine: Engine) -> None:
    await produce(engine, Message("orders", b"news"), (), "peer")
