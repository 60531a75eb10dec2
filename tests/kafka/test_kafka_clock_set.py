"""The wall clock of a running bridge is set by an hour, while that of its Kafka stays right."""

from pathlib import Path

import pytest

from tests.http import clock_story
from tests.http.wall import HOUR
from tests.kafka.bridged import backend

pytestmark = pytest.mark.extended

WAYS = [{"client": "kafka-python"}, {"client": "confluent"}, {"client": "kafka-python", "hold": "0"}]
"""`hold=0`: every delay goes through the delay topics, not only the long ones."""


@pytest.fixture(params=WAYS, ids=["kafka-python", "confluent", "delay-topics"])
def url(request: pytest.FixtureRequest, kafka_servers: str) -> str:
    """Return the URL of a backend whose own topics are its own."""
    return backend(kafka_servers, **request.param)


async def test_forward(url: str, tmp_path: Path) -> None:
    await clock_story.forward(tmp_path / "bridge", url)


async def test_back(url: str, tmp_path: Path) -> None:
    """In the delay topics they lie behind those of before, whose times are now in the future."""
    await clock_story.back(tmp_path / "bridge", url, short=10_000)


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_while_callbacks_are_retried(jump: int, kafka_servers: str, tmp_path: Path) -> None:
    await clock_story.callbacks(tmp_path / "bridge", backend(kafka_servers), jump)
