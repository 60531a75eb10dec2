"""Retries against real bridges: over a restart, and through connections that break after the request was sent."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import pytest

from bridge.client import Client
from bridge.message import Message
from tests.launch import Bridge

KEY: Final = "idempotency-key"
VERSION: Final = {"x-oms-version": "1.0.0"}


def _produce(bridge: Bridge, body: bytes, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = httpx.post(f"{bridge.url}/v1/messages", headers=VERSION | named, content=body, trust_env=False, timeout=30)
    assert answer.status_code == 200, answer.text
    return answer


def test_a_journal_remembers_over_a_kill(tmp_path: Path) -> None:
    backend = f"memory://?journal={tmp_path / 'journal'}"
    names: list[dict[str, str]] = [{"idempotency_key": "k"}, *({"x_oms_h_messageid": f"m{n}"} for n in range(1200))]
    sent = [{"x_oms_h_destination": "orders", **name} for name in names]
    with Bridge(tmp_path, backend=backend) as bridge:
        before = [_produce(bridge, b"order", **headers) for headers in (sent[0], sent[1])]
        batch = [{"header": {"destination": "orders", "messageId": f"m{n}"}} for n in range(1, 1000)]
        stored = httpx.post(f"{bridge.url}/v1/messages", headers=VERSION, json=batch, trust_env=False, timeout=30)
        assert stored.status_code == 200, stored.text
        bridge.kill()
    with Bridge(tmp_path, backend=backend) as bridge:
        after = [_produce(bridge, b"order", **headers) for headers in (sent[0], sent[1])]
        for first, second in zip(before, after, strict=True):
            assert second.headers["x-oms-duplicate"] == "true"
            for name in ("x-oms-h-messageid", "x-oms-h-storetimestamp", "x-oms-offset", "x-oms-h-partition"):
                assert second.headers[name] == first.headers[name]
        again = httpx.post(f"{bridge.url}/v1/messages", headers=VERSION, json=batch, trust_env=False, timeout=30)
        assert [result.get("duplicate") for result in again.json()] == [True] * len(batch)
        assert _stored(bridge) == len(batch) + 2


def _stored(bridge: Bridge) -> int:
    logs = httpx.get(f"{bridge.url}/v1/logs", headers=VERSION, trust_env=False, timeout=30).json()["logs"]
    return sum(end - first for first, end in logs.values())


@asynccontextmanager
async def _cutting(url: str, chance: random.Random) -> AsyncIterator[str]:
    """Yield the URL of a proxy that cuts a third of the connections: before or behind the answer to a request."""
    split = urlsplit(url)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(split.hostname, split.port)
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                far_writer.write(data)
                await far_writer.drain()
                cut = chance.random()
                if cut < 0.1:  # the request is on its way
                    break
                answer = await far_reader.read(1 << 16)
                if cut < 0.3 or not answer:  # it was answered
                    break
                writer.write(answer)
                await writer.drain()
        far_writer.close()
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    ("server", "count"),
    [("hypercorn", 300), ("granian", 300), pytest.param("granian", 20_000, marks=pytest.mark.extended)],
)
async def test_each_message_is_stored_once_though_connections_break(tmp_path: Path, server: str, count: int) -> None:
    numbers = iter(range(count))
    with Bridge(tmp_path, server=server, backend="memory://") as bridge:
        async with _cutting(bridge.url, random.Random(count)) as url:  # noqa: S311

            async def producer() -> None:
                async with Client(url, retry_ms=60_000) as client:
                    for number in numbers:
                        result = await client.produce(Message(f"orders-{number % 3}", b"%d" % number))
                        found[number] = result.message_id

            found: dict[int, str] = {}
            async with asyncio.TaskGroup() as tasks:
                for _ in range(16):
                    tasks.create_task(producer())
        assert len(set(found.values())) == len(found) == count
        assert _stored(bridge) == count
        assert _duplicates(bridge) > count // 10, "the proxy cut connections, and the client tried again"


def _duplicates(bridge: Bridge) -> int:
    metrics = httpx.get(f"{bridge.management}/metrics", trust_env=False, timeout=30).text
    (line,) = (line for line in metrics.splitlines() if line.startswith("oms_duplicates_total "))
    return int(float(line.split()[1]))


def test_two_destinations_and_two_bridges_know_nothing_of_each_other(tmp_path: Path) -> None:
    key = f"{uuid4()}"
    with Bridge(tmp_path / "a", backend="memory://") as one, Bridge(tmp_path / "b", backend="memory://") as other:
        for bridge, destination in ((one, "orders"), (one, "returns"), (other, "orders")):
            answer = _produce(bridge, b"x", idempotency_key=key, x_oms_h_destination=destination)
            assert "x-oms-duplicate" not in answer.headers
