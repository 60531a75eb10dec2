"""`/startedz`: whether clients may be sent to a bridge, which an outage of its backend does not change."""

import httpx
import pytest

from adapters.memory.adapter import MemoryAdapter
from adapters.memory.options import parse
from bridge.engine.clock import SystemClock
from bridge.engine.engine import Engine
from bridge.engine.options import EngineOptions
from bridge.errors import BackendUnavailable
from bridge.http.management_port import management_app
from bridge.http.origin_policy import OriginPolicy
from bridge.metrics import BridgeMetrics


class Away(MemoryAdapter):
    """A backend that cannot be reached while `away`."""

    away = True

    async def start(self) -> None:
        if self.away:
            raise BackendUnavailable("Nothing listens there.")
        await super().start()


class Clock(SystemClock):
    """The time since the start, which the test sets."""

    now = 1_000_000

    def mono(self) -> int:
        return self.now


class Started:
    """A bridge's management port, and what it depends on."""

    def __init__(self, *, away: bool) -> None:
        adapter = Away(parse("memory://"))
        adapter.away = away
        self.clock = Clock()
        self.engine = Engine(adapter, self.clock, EngineOptions("here"))
        app = management_app(self.engine, BridgeMetrics(self.engine), {"backend": "memory://"}, OriginPolicy((), ()))
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")

    async def ask(self, path: str) -> tuple[int, str]:
        answer = await self._client.get(path)
        return answer.status_code, answer.text


async def test_it_is_started_once_the_backend_was_reached_and_until_the_drain() -> None:
    bridge = Started(away=False)
    assert await bridge.ask("/startedz") == (503, "not started: the backend has not started yet\n")
    await bridge.engine.start()
    bridge.engine.not_ready_reason = "it is lost"  # as the watch of a backend says it
    assert (await bridge.ask("/readyz"))[0] == 503
    assert await bridge.ask("/startedz?wait=360") == (200, "started\n")
    bridge.engine.drain()
    assert await bridge.ask("/startedz?wait=0") == (503, "not started: the bridge is draining\n")
    await bridge.engine.close()


async def test_it_waits_for_a_backend_that_is_away_at_the_start() -> None:
    bridge = Started(away=True)
    await bridge.engine.start()
    assert await bridge.ask("/startedz?wait=360") == (503, "not started: Nothing listens there.\n")
    bridge.clock.now += 359_999
    assert (await bridge.ask("/startedz?wait=360"))[0] == 503
    bridge.clock.now += 1
    assert await bridge.ask("/startedz?wait=360") == (200, "started without the backend: Nothing listens there.\n")
    assert (await bridge.ask("/startedz"))[0] == 503
    assert (await bridge.ask("/readyz"))[0] == 503
    await bridge.engine.close()


@pytest.mark.parametrize("wait", ["x", "-1", "1.5", "6m", "1" * 10])
async def test_a_wait_that_is_no_number_of_seconds_is_refused(wait: str) -> None:
    assert await Started(away=False).ask(f"/startedz?wait={wait}") == (400, "wait: a number of seconds, such as 360\n")
