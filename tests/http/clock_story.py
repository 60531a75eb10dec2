"""What must hold when the wall clock of a running bridge is set, whatever the backend: one sequence, run on each.

Delays and expiry follow the new time. Leases, and the pauses of a nack and of a callback, are measured on another
clock and do not change. Nothing is lost, nothing comes early, nothing stays longer than it must.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx

from tests.bridged import bridged
from tests.conformance.conversation import Conversation, Taken
from tests.http.callback_endpoint import OK, Answer, Endpoint, Posted, wait_until
from tests.http.wall import HOUR, WallClock
from tests.launch import Bridge

SPREAD: Final = 24
"""Messages without a key: enough that some of them wait behind one another in a backend that keeps several lines."""
SHORT: Final = 2_000
"""A delay that is waited for, ms."""
AHEAD: Final = 30_000
"""A delay during which the clock is set back, ms."""


async def forward(directory: Path, backend: str, *, follows: bool = True) -> None:
    """The clock is set an hour ahead.

    `follows`: whether what waits becomes due by the new time; else it waits as long as was asked when it was stored.
    """
    async with _clocked(directory, backend) as (bridge, clock, talk):
        await talk.join()
        held = await _leased(talk, b"leased")
        await _delayed(clock, talk, b"later", 3 * HOUR)
        if follows:
            await _delayed(clock, talk, b"overtaken", HOUR // 2)
        await talk.produce(b"expired meanwhile", expiretime=clock.now() + HOUR // 2)
        clock.move(HOUR)
        if follows:
            overtaken = await talk.take()
            assert overtaken.body == b"overtaken"
            await talk.ack(overtaken.receipt)
        await _short_delays_come(clock, talk)
        await talk.nothing()
        await _leases_are_what_they_were(talk, held)
        _is_well(bridge)


async def back(directory: Path, backend: str, short: int = SHORT) -> None:
    """The clock was an hour ahead, and is set right; an hour later by its own reckoning all is there.

    `short`: the delay of messages that must not wait for those of before, ms.
    """
    async with _clocked(directory, backend) as (bridge, clock, talk):
        clock.move(HOUR)
        await talk.join()
        held = await _leased(talk, b"leased")
        for number in range(SPREAD):
            await _delayed(clock, talk, b"ahead %d" % number, AHEAD)
        await talk.produce(b"kept", expiretime=clock.now() + HOUR // 2)
        clock.move(-HOUR)
        kept = await talk.take()
        assert kept.body == b"kept"
        await talk.ack(kept.receipt)
        await _short_delays_come(clock, talk, short)
        await talk.nothing()
        await _leases_are_what_they_were(talk, held)
        clock.move(HOUR)
        came = {taken.body for taken in await talk.take_all(SPREAD, waitmills=60_000)}
        assert came == {b"ahead %d" % number for number in range(SPREAD)}
        await talk.nothing()
        _is_well(bridge)


async def callbacks(directory: Path, backend: str, jump: int) -> None:
    """It is set while callbacks are retried: each message is delivered, and the pauses do not become longer by it."""
    endpoint = Endpoint().listen()
    try:
        async with _clocked(directory, backend, endpoint.settings(OMS_DELIVERY__MAX_DELIVERIES="8")) as told:
            bridge, clock, talk = told
            refusing, taken = True, set[bytes]()

            def answer_to(posted: Posted) -> Answer:
                if refusing:
                    return 503, {}
                taken.add(posted.body)
                return OK

            endpoint.scripts["/app"] = answer_to
            asked = {"x-oms-version": "1.0.0", "x-oms-source": talk.destination, "x-oms-consumerid": talk.group}
            answer = await talk.http.post("/v1/push", headers={**asked, "x-oms-callbackurl": endpoint.url("/app")})
            assert answer.status_code == 201, answer.text
            bodies = {b"%d" % number for number in range(8)}
            for body in bodies:
                await talk.produce(body)
            await asyncio.to_thread(wait_until, lambda: len(endpoint.to("/app")) >= 4)
            clock.move(jump)
            refusing = False
            due = await _delayed(clock, talk, b"delayed", SHORT)
            await asyncio.to_thread(wait_until, lambda: b"delayed" in taken, 90)
            assert clock.now() >= due
            await asyncio.to_thread(wait_until, lambda: bodies <= taken, 90)
            _is_well(bridge)
    finally:
        endpoint.close()


@asynccontextmanager
async def _clocked(
    directory: Path, backend: str, settings: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[Bridge, WallClock, Conversation]]:
    clock = WallClock(directory / "wall-clock")
    async with bridged(directory, backend, **clock.settings, **(settings or {})) as (bridge, talk):
        clock.move(HOUR)
        answer = await talk.produce(b"the first")
        clock.move(-HOUR)
        assert int(answer.headers["x-oms-h-storetimestamp"]) >= clock.now() + HOUR - SHORT, "its clock was not set"
        await talk.ack((await talk.take()).receipt)
        yield bridge, clock, talk


async def _delayed(clock: WallClock, talk: Conversation, body: bytes, delay: int) -> int:
    """Store a message; returns when it is due, ms since 1970."""
    born = clock.now()
    await talk.produce(body, borntimestamp=born, delaytime=delay)
    return born + delay


async def _leased(talk: Conversation, body: bytes) -> Taken:
    await talk.produce(body)
    taken = await talk.take(leasemills=300_000)
    assert taken.body == body
    return taken


async def _leases_are_what_they_were(talk: Conversation, held: Taken) -> None:
    """A long one has not ended, short ones do end, and so do the pauses of a nack."""
    await talk.extend(held.receipt, 300_000)
    await talk.ack(held.receipt)
    await talk.produce(b"forgotten")
    forgotten = await talk.take(leasemills=1_000)
    again = await talk.take()
    assert (again.body, again.count) == (forgotten.body, 2)
    await talk.nack(again.receipt, delaymills=1_000)
    again = await talk.take()
    assert (again.body, again.count) == (forgotten.body, 3)
    await talk.ack(again.receipt)


async def _short_delays_come(clock: WallClock, talk: Conversation, short: int = SHORT) -> None:
    """What is delayed from now on comes when it is due, never before."""
    due = {b"short %d" % number: 0 for number in range(SPREAD)}
    for body in due:
        due[body] = await _delayed(clock, talk, body, short)
    for _ in range(SPREAD):
        taken = await talk.take(waitmills=60_000)
        assert clock.now() >= due.pop(taken.body), f"{taken.body!r} came early"
        await talk.ack(taken.receipt)


def _is_well(bridge: Bridge) -> None:
    assert bridge.alive
    assert httpx.get(f"{bridge.management}/readyz", trust_env=False, timeout=30).status_code == 200
    assert "Traceback" not in bridge.log
