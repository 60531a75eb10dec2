"""SIGTERM: how a bridge stops."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import httpx
import pytest

from .conversation import Conversation, connection, refused

if TYPE_CHECKING:
    from tests.launch import Bridge


@pytest.mark.slow_on_brokers
async def test_waiting_pulls_get_their_answer_and_the_bridge_exits_with_zero(
    launch: Callable[..., "Bridge"],
) -> None:
    """
    > On SIGTERM: not ready → no new pulls or streams

    > → producer flushed → exit 0, inside the grace period.
    """
    bridge = launch()
    async with connection(bridge.url) as http, connection(bridge.url) as other:
        talks = Conversation(http), Conversation(other)
        for talk in talks:
            await talk.join()
        waiting = [
            asyncio.create_task(talks[0].get(waitmills=60_000)),
            asyncio.create_task(talks[1].get(waitmills=60_000, ack="false")),
        ]
        await asyncio.sleep(0.3)
        bridge.begin_to_stop()
        assert [answer.status_code for answer in await asyncio.gather(*waiting)] == [204, 204]
    assert await asyncio.to_thread(bridge.wait) == 0


@pytest.mark.wire
async def test_a_stopping_bridge_is_not_ready_takes_no_pulls_and_answers_what_is_in_flight(
    launch: Callable[..., "Bridge"],
) -> None:
    """
    > On SIGTERM: not ready → no new pulls or streams

    > → produces in flight are answered

    > Management port: `/livez`, `/readyz` (says why not), `/metrics` (Prometheus), `/status`.
    """
    bridge = launch()
    rest = asyncio.Event()
    head = {"x-oms-version": "1.0.0", "x-oms-h-destination": "slow"}
    async with connection(bridge.url) as http, httpx.AsyncClient(base_url=bridge.management) as management:
        talk = Conversation(http)
        await talk.produce()

        async def slow_body() -> AsyncIterator[bytes]:
            yield b"first half, "
            await rest.wait()
            yield b"second half"

        in_flight = asyncio.create_task(http.post("/v1/messages", headers=head, content=slow_body()))
        await asyncio.sleep(0.3)
        bridge.begin_to_stop()
        await asyncio.sleep(0.3)
        answer = await management.get("/readyz")
        assert answer.status_code == 503
        assert "draining" in answer.text
        rest.set()
        assert (await in_flight).status_code == 200
    assert await asyncio.to_thread(bridge.wait) == 0


@pytest.mark.wire
async def test_a_pull_after_the_signal_is_refused_as_safe_to_repeat(launch: Callable[..., "Bridge"]) -> None:
    """
    > On SIGTERM: not ready → no new pulls or streams

    > Three outcomes, and a client can tell them apart: **stored** (200), **not stored** (every 4xx, and 503
    > with `x-oms-retry-safe: true`), **unknown** (504, or a broken connection).
    """
    bridge = launch()
    begun = asyncio.Event()
    rest = asyncio.Event()
    async with httpx.AsyncClient(base_url=bridge.url, trust_env=False, timeout=30) as http:

        async def slow_body() -> AsyncIterator[bytes]:
            begun.set()
            yield b"half"
            await rest.wait()

        head = {"x-oms-version": "1.0.0", "x-oms-h-destination": "slow"}
        holding = asyncio.create_task(http.post("/v1/messages", headers=head, content=slow_body()))
        async with connection(bridge.url) as open_already:
            talk = Conversation(open_already)
            await talk.join()
            waiting = asyncio.create_task(talk.get(waitmills=60_000))
            await begun.wait()
            await asyncio.sleep(0.3)
            bridge.begin_to_stop()
            assert (await waiting).status_code == 204
            try:
                answer = await talk.get()
            except httpx.HTTPError:
                pass  # the server has closed the idle connection, or refused the stream: nothing was handed out
            else:
                assert answer.status_code == 503
                assert int(answer.headers["retry-after"]) >= 1
                refused(answer, 503, "draining")
                assert answer.headers["x-oms-retry-safe"] == "true"
            rest.set()
            assert (await holding).status_code == 200
    assert await asyncio.to_thread(bridge.wait) == 0


@pytest.mark.needs("durable")
@pytest.mark.slow_on_brokers
async def test_leases_are_released_without_counting(launch: Callable[..., "Bridge"]) -> None:
    """
    > → leases released without counting as a failure
    """
    bridge = launch()
    async with connection(bridge.url) as http:
        talk = Conversation(http)
        if not (await http.get("/v1/capabilities")).json()["durable"]:
            pytest.skip("nothing survives the end of this bridge")
        await talk.produce(b"leased")
        assert (await talk.take(leasemills=900_000)).count == 1
    assert await asyncio.to_thread(bridge.terminate) == 0
    async with connection(launch().url) as http:
        talk.http = http
        again = await talk.take()
        assert (again.body, again.count) == (b"leased", 1)
