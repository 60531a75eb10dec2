"""The wall clock of a running bridge is set by an hour, with the memory backend; Kafka and RabbitMQ have their own."""

from pathlib import Path

import pytest

from tests.http import clock_story
from tests.http.wall import HOUR


@pytest.fixture(params=["memory://", pytest.param("memory://?journal={}", marks=pytest.mark.extended)])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Name the backend, with a journal of this test's own or without."""
    return str(request.param).format(tmp_path / "journal")


async def test_forward(backend: str, tmp_path: Path) -> None:
    await clock_story.forward(tmp_path / "bridge", backend)


@pytest.mark.extended
async def test_back(backend: str, tmp_path: Path) -> None:
    await clock_story.back(tmp_path / "bridge", backend)


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_while_callbacks_are_retried(backend: str, jump: int, tmp_path: Path) -> None:
    await clock_story.callbacks(tmp_path / "bridge", backend, jump)
