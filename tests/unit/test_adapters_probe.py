"""Whether a backend can be used, asked again and again."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

import pytest

from adapters.probe import Probe
from bridge.errors import BackendUnavailable
from tests.unit.engine.virtual import VirtualLoop


class Backend:
    """Answers at once, with an error, or not yet."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.thawed = asyncio.Event()
        self.thawed.set()
        self.asked = 0

    async def ask(self) -> None:
        self.asked += 1
        await self.thawed.wait()
        if self.error is not None:
            raise self.error


@asynccontextmanager
async def probing(backend: Backend) -> AsyncIterator[Probe]:
    probe = Probe(backend.ask, lambda: "it does not answer")
    probe.start()
    probe.start()
    yield probe
    await probe.close()
    asked = backend.asked
    await asyncio.sleep(10)
    assert backend.asked == asked


async def _follows() -> None:
    backend = Backend()
    async with probing(backend) as probe:
        await asyncio.sleep(2)
        assert probe.reason is None
        backend.error = BackendUnavailable("nothing listens there")
        await asyncio.sleep(2)
        assert probe.reason == "nothing listens there"
        backend.error = None
        await asyncio.sleep(2)
        assert probe.reason is None


async def _frozen() -> None:
    backend = Backend()
    async with probing(backend) as probe:
        backend.thawed.clear()
        await asyncio.sleep(2)
        assert probe.reason == "it does not answer"
        asked = backend.asked
        await asyncio.sleep(20)
        assert backend.asked == asked
        backend.thawed.set()
        await asyncio.sleep(1)
        assert probe.reason is None


async def _defective() -> None:
    backend = Backend()
    backend.error = ValueError("a defect")
    async with probing(backend) as probe:
        await asyncio.sleep(1.5)
        backend.error = None
        await asyncio.sleep(2)
        assert probe.reason is None


@pytest.mark.parametrize("story", [_follows, _frozen, _defective])
def test_the_reason_is_that_of_the_last_answer(story: Callable[[], Coroutine[None, None, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story())


def test_a_defect_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(_defective())
    assert any(record.levelno == logging.ERROR and record.exc_info for record in caplog.records)
