"""The engine's tests run on a loop with virtual time: waiting costs nothing, and waiting without end is an error."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from tests.unit.engine.virtual import LoopClock, VirtualLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config,  # noqa: ARG001 - the hook's signature
    item: pytest.Item,  # noqa: ARG001
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual": VirtualLoop}


@pytest.fixture
async def clock() -> LoopClock:
    return LoopClock(asyncio.get_running_loop())
