"""The wall clock of a running bridge is set by an hour, while that of its RabbitMQ stays right."""

from pathlib import Path

import pytest

from tests.http import clock_story
from tests.http.wall import HOUR
from tests.rabbitmq.bridged import backend

pytestmark = pytest.mark.extended


async def test_forward(rabbitmq_url: str, prefix: str, tmp_path: Path) -> None:
    """A delayed message waits in RabbitMQ as long as was asked when it was stored: it does not follow the new time."""
    await clock_story.forward(tmp_path / "bridge", backend(rabbitmq_url, prefix=prefix), follows=False)


async def test_back(rabbitmq_url: str, prefix: str, tmp_path: Path) -> None:
    await clock_story.back(tmp_path / "bridge", backend(rabbitmq_url, prefix=prefix))


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_while_callbacks_are_retried(jump: int, rabbitmq_url: str, prefix: str, tmp_path: Path) -> None:
    await clock_story.callbacks(tmp_path / "bridge", backend(rabbitmq_url, prefix=prefix), jump)
