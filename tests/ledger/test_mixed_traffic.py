"""An hour of mixed traffic: nothing is lost, and what the bridge's process holds does not grow."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.http.callback_endpoint import Endpoint
from tests.launch import Bridge
from tests.ledger.mixed import growth, mixed

HOUR = 3_600.0
SHORT = 20.0
"""Seconds that show that the hour would work."""
GROWTH = 10 << 20
"""Bytes in the last third of an hour beyond the most in the first third: what a heap's fragments may make of it."""
SHORT_GROWTH = 40 << 20
"""The same for a run in which groups and connections are still being made."""
BACKENDS = {
    "journal": "memory://?journal={directory}&max_messages=20000&retention=30000",
    "kafka": "kafka://{kafka}?prefix={name}.&instance={name}&partitions=4",
    "rabbitmq": "{rabbitmq}?prefix={name}.&instance={name}&partitions=4",
}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint().listen()
    yield endpoint
    endpoint.close()


@pytest.fixture(params=BACKENDS)
def bridge(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    endpoint: Endpoint,
    kafka_at_hand: Callable[[], str],
    rabbitmq_at_hand: Callable[[], str],
) -> Iterator[Bridge]:
    """Start a bridge on each kind of backend; groups that are not used leave it soon."""
    at_hand = {"kafka": kafka_at_hand, "rabbitmq": rabbitmq_at_hand}
    values = {name: brokers() for name, brokers in at_hand.items() if name == request.param}
    values |= {"directory": str(tmp_path / "journal"), "name": f"t{uuid4().hex[:8]}"}
    settings = endpoint.settings(OMS_DELIVERY__GROUP_IDLE="5000", OMS_DELIVERY__MAX_DELIVERIES="1000")
    with Bridge(tmp_path / "bridge", backend=BACKENDS[request.param].format_map(values), settings=settings) as running:
        yield running
        assert running.terminate() == 0
        assert "Traceback" not in running.log


@pytest.mark.soak
async def test_an_hour(bridge: Bridge, endpoint: Endpoint) -> None:
    samples = await mixed(bridge, endpoint, HOUR)
    assert growth(samples) <= GROWTH, samples[:: max(len(samples) // 60, 1)]


@pytest.mark.extended
async def test_some_seconds(bridge: Bridge, endpoint: Endpoint) -> None:
    samples = await mixed(bridge, endpoint, SHORT)
    assert growth(samples) <= SHORT_GROWTH, samples


def test_a_leak_is_seen() -> None:
    """A leak of 4 KiB for each of a hundred messages a second, in an hour, beside what is flat."""
    flat = [(60 << 20) + (second % 7) * 100_000 for second in range(int(HOUR))]
    leaking = [held + second * 100 * 4096 for second, held in enumerate(flat)]
    assert growth(flat) <= 0
    assert growth(leaking) > GROWTH
    assert growth([held + second * 4_000 for second, held in enumerate(flat)]) < GROWTH
