"""What a produce holds while it waits, and what it does not wait for."""

import asyncio
import gc
import gzip
import json
import tracemalloc
from collections.abc import MutableMapping, Sequence
from typing import Any, Final, cast

import pytest

from adapters.base import Published, Stored
from adapters.memory.adapter import MemoryAdapter
from adapters.memory.options import Options
from bridge.callbacks.registry import CallbackRegistry
from bridge.engine.clock import SystemClock
from bridge.engine.engine import Engine
from bridge.engine.options import EngineOptions
from bridge.engine.pull_and_prefetch import CancelOnDisconnect
from bridge.http.data_port import DataApp, routes
from bridge.http.origin_policy import OriginPolicy
from bridge.http.produce import ProduceEndpoint
from bridge.http.request_and_reply import BodyStream, Limits, Request
from bridge.long_work import PAUSE, Slicer, Steps
from bridge.message import Message
from bridge.metrics import BridgeMetrics
from bridge.wire.headers import parse

SIZE: Final = 1_000_000
TEXT: Final = "b" * SIZE
EVENT: Final = {"specversion": "1.0", "id": "1", "source": "shop", "type": "order", "data": TEXT}

Form = tuple[str, dict[bytes, bytes], bytes]
"""The path of a produce, its headers and its body."""

ORDERS: Final = {b"x-oms-h-destination": b"orders"}
FORMS: Final[dict[str, Form]] = {
    "one message": ("/v1/messages", ORDERS, TEXT.encode()),
    "with a messageId": ("/v1/messages", {**ORDERS, b"x-oms-h-messageid": b"1"}, TEXT.encode()),
    "with a key": ("/v1/messages", {**ORDERS, b"idempotency-key": b"k"}, TEXT.encode()),
    "by its URL": ("/v1/destinations/orders/messages", {}, TEXT.encode()),
    "batch": (
        "/v1/messages",
        {b"content-type": b"application/json", b"idempotency-key": b"k"},
        json.dumps([{"header": {"destination": "orders"}, "data": TEXT}]).encode(),
    ),
    "event": (
        "/v1/messages",
        {**ORDERS, b"content-type": b"application/cloudevents+json"},
        json.dumps(EVENT).encode(),
    ),
    "batch of events": (
        "/v1/messages",
        {**ORDERS, b"content-type": b"application/cloudevents-batch+json"},
        json.dumps([EVENT]).encode(),
    ),
    "event in headers": (
        "/v1/messages",
        {**ORDERS, **{f"ce-{name}".encode(): value.encode() for name, value in EVENT.items() if name != "data"}},
        TEXT.encode(),
    ),
}


class Storing(MemoryAdapter):
    """Keeps nothing, and has stored nothing until `stored` is set."""

    def __init__(self) -> None:
        super().__init__(Options())
        self.has_messages = asyncio.Event()
        self.stored: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()

    def publish_many(self, messages: Sequence[Message]) -> Sequence[Published]:
        self.has_messages.set()
        return [self.stored] * len(messages)


@pytest.mark.parametrize("window", [0, 60_000])
@pytest.mark.parametrize("form", FORMS)
async def test_a_produce_that_waits_holds_no_body(form: str, window: int) -> None:
    path, headers, body = FORMS[form]
    adapter = Storing()
    engine = Engine(adapter, SystemClock(), EngineOptions("host", dedup_window=window))
    await engine.start()
    limits = Limits()
    table = routes(engine, CallbackRegistry(engine), limits, 16)
    app = DataApp(table, OriginPolicy((), ()), limits, BridgeMetrics(engine))
    parts = [1]
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> dict[str, object]:
        parts.pop()
        return {"type": "http.request", "body": bytearray(body), "more_body": False}

    async def send(event: MutableMapping[str, Any]) -> None:
        sent.append(event)

    scope = {
        "type": "http",
        "http_version": "2",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(b"x-oms-version", b"1.0.0"), *headers.items()],
        "client": ("127.0.0.1", 1),
    }
    tracemalloc.start()
    try:
        produce = asyncio.ensure_future(app(scope, receive, send))
        async with asyncio.timeout(30):
            await adapter.has_messages.wait()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < SIZE / 2
    finally:
        tracemalloc.stop()
    adapter.stored.set_result(Stored(0, 0))
    await produce
    assert sent[0]["status"] == 200
    await engine.close()


async def test_a_short_message_does_not_wait_for_the_long_work_of_others(subtests: pytest.Subtests) -> None:
    def endless() -> Steps[None]:
        while True:
            yield

    engine = Engine(MemoryAdapter(Options()), SystemClock(), EngineOptions("host"))
    await engine.start()
    slicer = Slicer()
    endpoint = ProduceEndpoint(engine, Limits(), slicer, {})
    unused = cast("CancelOnDisconnect", None), cast("BodyStream", None)

    async def produce(headers: dict[bytes, bytes], body: bytes) -> int:
        given = parse([*headers.items()])
        request = Request(given, 0, b"", "/v1/destinations/orders/messages", body, "", *unused)
        return (await endpoint.produce_by_url(request)).status

    assert await produce({}, b"creates the destination") == 200
    forms: dict[str, tuple[dict[bytes, bytes], bytes]] = {
        "plain": ({}, b"news"),
        "gzip": ({b"content-encoding": b"gzip"}, gzip.compress(b"news")),
        "event in headers": (FORMS["event in headers"][1], b"news"),
    }
    for name, form in forms.items():
        with subtests.test(name):
            working = asyncio.create_task(slicer.run(endless()))
            producing = asyncio.create_task(produce(*form))
            for _ in range(PAUSE // 2):
                await asyncio.sleep(0)
            working.cancel()
            assert producing.done()
            assert producing.result() == 200
    await engine.close()
