"""Retries against real bridges: over a restart, and through connections that break after the request was sent."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from uuid import uuid4

import httpx
import pytest

from bridge.client import Client
from bridge.message import Message
from tests.http.toxiproxy import cutting
from tests.kafka import bridged as on_kafka
from tests.launch import Bridge
from tests.rabbitmq import bridged as on_rabbitmq

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


def test_a_journal_remembers_each_kind_of_name_over_a_kill(tmp_path: Path) -> None:
    """An event by its source, a batch by its key: none equals another name with the same text."""
    backend = f"memory://?journal={tmp_path / 'journal'}"
    names: list[dict[str, str]] = [
        {"x_oms_h_messageid": "m"},
        *({"x_oms_h_messageid": "m", "x_oms_p_source": source} for source in ("/a", "/b")),
        {"idempotency_key": "m"},
        {"idempotency_key": "m/0"},
    ]
    batch = [{"header": {"destination": "orders"}, "data": ""}] * 2

    def send(bridge: Bridge) -> list[bool]:
        singles = [_produce(bridge, b"", x_oms_h_destination="orders", **name) for name in names]
        headers = VERSION | {"idempotency-key": "m"}
        answer = httpx.post(f"{bridge.url}/v1/messages", headers=headers, json=batch, trust_env=False, timeout=30)
        results = [result.get("duplicate", False) for result in answer.json()]
        return ["x-oms-duplicate" in each.headers for each in singles] + results

    with Bridge(tmp_path, backend=backend) as bridge:
        assert send(bridge) == [False] * 7
        bridge.kill()
    with Bridge(tmp_path, backend=backend) as bridge:
        assert send(bridge) == [True] * 7
        assert _stored(bridge) == 7


def test_a_journal_remembers_delayed_messages_over_a_kill(tmp_path: Path) -> None:
    backend = f"memory://?journal={tmp_path / 'journal'}"
    delayed = {"x_oms_h_destination": "orders", "idempotency_key": "k", "x_oms_h_delaytime": "3600000"}
    with Bridge(tmp_path, backend=backend) as bridge:
        first = _produce(bridge, b"order", **delayed)
        bridge.kill()
    with Bridge(tmp_path, backend=backend) as bridge:
        again = _produce(bridge, b"order", **delayed)
        assert again.headers["x-oms-duplicate"] == "true"
        assert again.headers["x-oms-h-messageid"] == first.headers["x-oms-h-messageid"]
        assert "x-oms-offset" not in first.headers
        assert "x-oms-offset" not in again.headers
        metrics = httpx.get(f"{bridge.management}/metrics", trust_env=False, timeout=30).text
        assert "oms_backend_delayed 1.0\n" in metrics, "one message waits"


def _stored(bridge: Bridge) -> int:
    logs = httpx.get(f"{bridge.url}/v1/logs", headers=VERSION, trust_env=False, timeout=30).json()["logs"]
    return sum(end - first for first, end in logs.values())


def _memory(_request: pytest.FixtureRequest, _directory: Path) -> str:
    return "memory://"


def _journal(_request: pytest.FixtureRequest, directory: Path) -> str:
    return f"memory://?journal={directory / 'journal'}"


def _kafka(request: pytest.FixtureRequest, _directory: Path) -> str:
    return on_kafka.backend(request.getfixturevalue("kafka_servers"))


def _rabbitmq(request: pytest.FixtureRequest, _directory: Path) -> str:
    return on_rabbitmq.backend(request.getfixturevalue("rabbitmq_url"))


_SLOW: Final = pytest.mark.extended


@pytest.mark.parametrize(
    ("server", "backend", "count"),
    [
        ("hypercorn", _memory, 300),
        ("granian", _memory, 300),
        pytest.param("granian", _journal, 20_000, marks=_SLOW),
        pytest.param("granian", _kafka, 2000, marks=_SLOW),
        pytest.param("hypercorn", _rabbitmq, 2000, marks=_SLOW),
    ],
)
async def test_each_message_is_stored_once_though_connections_break(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    server: str,
    backend: Callable[[pytest.FixtureRequest, Path], str],
    count: int,
) -> None:
    """A message that was stored twice comes twice before the last one of its key, which is produced behind all."""
    destinations = [f"orders-{uuid4()}" for _ in range(3)]
    toxicity = {"reset_peer": 0.2, "timeout": 0.05, "limit_data": 1.0}
    with Bridge(tmp_path / "bridge", server=server, backend=backend(request, tmp_path)) as bridge:
        async with Client(bridge.url) as direct:
            for destination in destinations:
                await direct.pull(destination, "ledger")  # the group begins here
            with cutting(bridge.url, tmp_path / "proxy", toxicity) as url:
                stored = await _produce_through(url, destinations, count)
            assert len(set(stored.values())) == len(stored) == count
            found = [body for destination in destinations for body in await _bodies(direct, destination)]
        assert sorted(found) == list(range(count))
        assert _duplicates(bridge) > count // 10, "the proxy cut connections, and the client tried again"


async def _produce_through(url: str, destinations: Sequence[str], count: int) -> dict[int, str]:
    """Produce the numbers below `count`, each repeated until it is stored. Returns their messageIds."""
    numbers = iter(range(count))
    stored: dict[int, str] = {}

    async def producer() -> None:
        async with Client(url, retry_ms=60_000) as client:
            for number in numbers:
                message = Message(destinations[number % len(destinations)], b"%d" % number, message_key="k")
                stored[number] = (await client.produce(message)).message_id

    async with asyncio.TaskGroup() as tasks:
        for _ in range(24):
            tasks.create_task(producer())
    return stored


async def _bodies(client: Client, destination: str) -> list[int]:
    """Return the numbers that a destination has, in the order of its key."""
    await client.produce(Message(destination, b"end", message_key="k"))
    found: list[int] = []
    async with client.push(destination, "ledger") as messages:
        async for received in messages:
            if received.message.body == b"end":
                break
            found.append(int(received.message.body))
    return found


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
