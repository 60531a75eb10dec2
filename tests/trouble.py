"""What the tests of trouble share, whatever the backend: what a bridge says of it, and what it holds afterwards."""

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple

import httpx

from tests.conformance.conversation import Conversation
from tests.launch import Bridge

PATIENCE: Final = 60.0
"""Seconds until a test that waits for something gives up: a guard, not a measurement."""
_MEMORY: Final = 40 << 20
"""Bytes that a bridge may hold more than before: what the allocators keep, not what leaks with each record."""
_SPARE: Final = 2
"""Connections that may have been made anew before the old ones are closed."""
_WORKERS: Final = min(32, (os.cpu_count() or 1) + 4)
"""Threads of the event loop's default executor: they start when several calls wait at once, and stay, idle."""


def probe(bridge: Bridge, path: str) -> tuple[int, str]:
    """Ask the management port."""
    answer = httpx.get(f"{bridge.management}{path}", trust_env=False)
    return answer.status_code, answer.text


async def ready(bridge: Bridge) -> None:
    """Wait until it says that it is ready."""
    await until(lambda: probe(bridge, "/readyz")[0] == 200, lambda: probe(bridge, "/readyz"))


async def until(done: Callable[[], bool], what: Callable[[], object]) -> None:
    """Wait for a condition; AssertionError with `what` if it does not come."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, what()
        await asyncio.sleep(0.1)


async def stored(talk: Conversation, body: bytes) -> httpx.Response:
    """Send a message until it is stored, as the answers allow: after 503 only, so that there is one copy of it."""
    return await _at_last(lambda: talk.post(body), 200, {503})


async def accepted(talk: Conversation, body: bytes) -> httpx.Response:
    """Send a message until it is stored, whatever the answers."""
    return await _at_last(lambda: talk.post(body), 200, {403, 404, 503, 504})


async def taken(talk: Conversation, *, meanwhile: set[int]) -> bytes:
    """Pull and acknowledge the next message, while pulls may be answered by those statuses (beside 204)."""
    answer = await _at_last(lambda: talk.get(waitmills=500), 200, meanwhile | {204})
    receipt = answer.headers["x-oms-receipt"]
    await _at_last(lambda: talk.settle("ack", receipt), 204, {503, 504})
    return answer.content


async def _at_last(ask: Callable[[], Awaitable[httpx.Response]], status: int, before: set[int]) -> httpx.Response:
    deadline = time.monotonic() + PATIENCE
    while (answer := await ask()).status_code != status:
        assert answer.status_code in before, f"{answer.status_code} {answer.text}"
        assert answer.status_code != 503 or answer.headers["x-oms-retry-safe"] == "true", answer.headers
        assert time.monotonic() < deadline, f"{answer.status_code} {answer.text}"
        await asyncio.sleep(0.1)
    return answer


class Held(NamedTuple):
    """What a process holds."""

    threads: int
    descriptors: int
    memory: int


def held(bridge: Bridge) -> Held:
    """Measure it (Linux)."""
    threads, descriptors = (len(list(Path(f"/proc/{bridge.pid}/{what}").iterdir())) for what in ("task", "fd"))
    return Held(threads, descriptors, bridge.resident_bytes())


async def back_to(bridge: Bridge, before: Held) -> None:
    """Wait until a bridge holds no more descriptors and memory than it did, and no more threads but idle workers."""
    limit = Held(before.threads + _WORKERS - 1, before.descriptors + _SPARE, before.memory + _MEMORY)
    await until(
        lambda: all(now <= most for now, most in zip(held(bridge), limit, strict=True)),
        lambda: f"{held(bridge)}, and was {before}",
    )


def readiness(bridge: Bridge) -> tuple[int, int, bool]:
    """Return what `/readyz`, `oms_ready` and `/status` say, in this order."""
    metrics = probe(bridge, "/metrics")[1]
    [ready] = [line for line in metrics.splitlines() if line.startswith("oms_ready ")]
    return probe(bridge, "/readyz")[0], int(float(ready.split()[1])), json.loads(probe(bridge, "/status")[1])["ready"]


async def lost(bridge: Bridge, reason: str) -> None:
    """Wait until it is not ready, everywhere, with that text in the reason, and has logged the reason."""
    await until(lambda: reason in probe(bridge, "/readyz")[1], lambda: probe(bridge, "/readyz"))
    assert readiness(bridge) == (503, 0, False)
    assert probe(bridge, "/startedz") == (200, "started\n")
    assert reason in json.loads(probe(bridge, "/status")[1])["notReadyReason"]
    assert any(reason in said for said in sentences(bridge, "the backend is not ready")), bridge.log


def sentences(bridge: Bridge, message: str) -> list[str]:
    """Return the log lines with that message."""
    return [line for line in bridge.log.splitlines() if message in line]


async def lost_and_back(
    bridge: Bridge, lose: Callable[[], object], reason: str, restore: Callable[[], object], *, times: int = 2
) -> None:
    """Lose and restore the backend under a bridge, which must notice both each time, and log both once."""
    for time_before in range(times):
        await asyncio.to_thread(lose)
        try:
            await lost(bridge, reason)
            assert probe(bridge, "/livez") == (200, "alive\n")
        finally:
            await asyncio.to_thread(restore)
        await ready(bridge)
        assert readiness(bridge) == (200, 1, True)
        assert len(sentences(bridge, "the backend is ready")) == time_before + 1, bridge.log
