"""Calls that several callers share."""

import asyncio

import pytest

from adapters.shared_calls import SharedCalls
from bridge.errors import BackendUnavailable


class Counted:
    """A call that returns how often it was begun, when it may."""

    def __init__(self) -> None:
        self.begun = 0
        self.may_end = asyncio.Event()

    async def __call__(self) -> int:
        self.begun += 1
        number = self.begun
        await self.may_end.wait()
        return number


async def test_callers_share_a_call_that_goes_on_without_them() -> None:
    calls, counted = SharedCalls[str, int](), Counted()
    first, second = (asyncio.create_task(calls.run("a", counted)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    counted.may_end.set()
    assert await second == 1
    assert first.cancelled()
    assert await calls.run("a", counted) == 2


async def test_a_call_that_has_just_ended_is_not_shared() -> None:
    """Its caller may ask again for what has changed since, before anything was told of the end."""
    calls, counted = SharedCalls[None, int](), Counted()
    counted.may_end.set()
    ended = calls.start(None, counted)
    await asyncio.sleep(0)
    assert ended.done()
    assert calls.running(None) is ended
    later = calls.start(None, counted)
    assert later is not ended
    await asyncio.sleep(0)
    assert calls.running(None) is later
    assert await later == 2
    await asyncio.sleep(0)
    assert calls.running(None) is None


async def test_an_error_reaches_each_caller_and_is_not_kept() -> None:
    async def fail() -> int:
        await asyncio.sleep(0)
        raise BackendUnavailable("away")

    calls = SharedCalls[str, int]()
    results = await asyncio.gather(*(calls.run("a", fail) for _ in range(2)), return_exceptions=True)
    assert [str(each) for each in results] == ["away", "away"]
    assert calls.running("a") is None


async def test_closing_cancels_what_runs() -> None:
    calls, counted = SharedCalls[str, int](), Counted()
    waiting = asyncio.create_task(calls.run("a", counted))
    await asyncio.sleep(0)
    await calls.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await calls.close()
