"""What `DataApp.begin` answers at once, and what it leaves to be awaited."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, MutableMapping
from typing import Any

import pytest

from adapters.memory import connect
from bridge.callbacks.registry import CallbackRegistry
from bridge.engine.clock import SystemClock
from bridge.engine.engine import Engine
from bridge.engine.options import EngineOptions
from bridge.http.data_port import DataApp, routes
from bridge.http.origin_policy import OriginPolicy
from bridge.http.request_and_reply import Limits
from bridge.metrics import BridgeMetrics


class Exchange:
    """One request with its first event, a produce unless `path` is given, and what was sent for it."""

    def __init__(
        self,
        app: DataApp,
        body: bytes,
        *more: bytes,
        headers: list[tuple[bytes, bytes]] | None = None,
        path: str | None = None,
        version: str = "1.1",
    ) -> None:
        self.sent: list[Any] = []
        self._later = [self._event(part, number + 1 < len(more)) for number, part in enumerate(more)]
        method, _, target = (path or "POST /v1/messages").partition(" ")
        given = [(b"x-oms-version", b"1.0.0"), *(headers or [])]
        if path is None:
            length = b"%d" % sum(map(len, (body, *more)))
            given += [(b"x-oms-h-destination", b"orders"), (b"content-length", length)]
        scope = {
            "type": "http",
            "http_version": version,
            "method": method,
            "path": target.partition("?")[0],
            "query_string": target.partition("?")[2].encode(),
            "headers": given,
            "client": ("127.0.0.1", 1),
        }
        event = None if method == "GET" else self._event(body, bool(more))
        self.rest = app.begin(scope, event, self._receive, self._send)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    def answered_at_once(self, status: int) -> bool:
        return self.rest is None and self.status == status

    @property
    def receipt(self) -> str:
        return bytes(dict(self.sent[0]["headers"])[b"x-oms-receipt"]).decode()

    @staticmethod
    def _event(part: bytes, more: bool) -> dict[str, object]:
        return {"type": "http.request", "body": part, "more_body": more}

    async def _receive(self) -> dict[str, object]:
        return self._later.pop(0)

    def _send(self, event: MutableMapping[str, Any]) -> Awaitable[None]:
        self.sent.append(event)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


@pytest.fixture
async def app() -> AsyncIterator[DataApp]:
    engine = Engine(connect("memory://"), SystemClock(), EngineOptions("host"))
    await engine.start()
    limits = Limits(body=100)
    table = routes(engine, CallbackRegistry(engine), limits, 16)
    app = DataApp(table, OriginPolicy((), ("https://a.example",)), limits, BridgeMetrics(engine))
    first = Exchange(app, b"creates the destination")
    assert first.rest is not None
    await first.rest
    assert first.status == 200
    yield app
    await engine.close()


async def test_a_message_for_a_known_destination_is_answered_at_once(app: DataApp) -> None:
    exchange = Exchange(app, b"news")
    assert exchange.rest is None
    start, body = exchange.sent
    assert (start["status"], body) == (200, {"type": "http.response.body", "body": b""})
    assert (b"content-length", b"0") in start["headers"]


async def test_a_body_in_parts_is_awaited(app: DataApp) -> None:
    exchange = Exchange(app, b"ne", b"ws")
    assert exchange.rest is not None
    assert exchange.sent == []
    await exchange.rest
    assert exchange.status == 200


async def test_over_http_2_the_end_of_the_request_is_awaited(app: DataApp) -> None:
    """A response before it resets the stream, and some clients then lose the response."""
    exchange = Exchange(app, b"news", b"", version="2")
    assert exchange.rest is not None
    assert exchange.sent == []
    await exchange.rest
    assert exchange.status == 200
    assert Exchange(app, b"news", version="2").answered_at_once(200)


async def test_a_refusal_is_answered_at_once_with_the_headers_of_its_origin(app: DataApp) -> None:
    origin = (b"origin", b"https://a.example")
    for body, headers, status in (
        (b"x" * 101, [], 413),
        (b"x" * 50, [(b"x-oms-require", b"speed")], 400),
        (b"x" * 50, [(b"x-oms-h-partition", b"999")], 400),
        (b"x" * 50, [(b"x-oms-spede", b"1")], 400),
        (b"x" * 50, [(b"cookie", bytes(33 << 10))], 431),
    ):
        exchange = Exchange(app, body, headers=[*headers, origin])
        assert (exchange.rest, exchange.status) == (None, status)
        assert (b"access-control-allow-origin", origin[1]) in exchange.sent[0]["headers"]


async def test_the_steps_of_a_transaction_are_answered_at_once(app: DataApp) -> None:
    transaction = [(b"x-oms-transaction", b"prepare"), (b"x-oms-h-transactionid", b"tx")]
    assert Exchange(app, b"news", headers=transaction).answered_at_once(200)
    for _ in range(2):
        assert Exchange(app, b"", path="POST /v1/transactions/tx/commit").answered_at_once(200)
    assert Exchange(app, b"news", headers=transaction).answered_at_once(409)


async def test_a_pull_and_the_settling_of_its_message_are_answered_at_once(app: DataApp) -> None:
    pull = "GET /v1/messages?source=orders&consumerid=app&ack=true"
    opens = Exchange(app, b"", path=pull)
    assert opens.rest is not None
    await opens.rest
    assert Exchange(app, b"", path=f"POST /v1/extend?receipt={opens.receipt}").answered_at_once(204)
    assert Exchange(app, b"", path=f"POST /v1/nack?receipt={opens.receipt}").answered_at_once(204)
    again = Exchange(app, b"", path=pull)
    assert again.answered_at_once(200)
    assert again.sent[1]["body"] == b"creates the destination"
    assert Exchange(app, b"", path=f"POST /v1/ack?receipt={opens.receipt}").answered_at_once(410)
    assert Exchange(app, b"", path=f"POST /v1/ack?receipt={again.receipt}").answered_at_once(204)
    assert Exchange(app, b"", path=pull).answered_at_once(204)
    assert Exchange(app, b"news").answered_at_once(200)
    await asyncio.sleep(0)  # the group's fetch has waited for it
    assert Exchange(app, b"", path=pull.replace("ack=true", "ack=false")).answered_at_once(200)
    waits = Exchange(app, b"", path=f"{pull}&waitmills=1")
    assert waits.rest is not None
    await waits.rest
    assert waits.status == 204
