"""Long work is done in slices: one in every few iterations of the event loop, of each work in rotation."""

import asyncio
import re

import pytest

from bridge.long_work import PAUSE, SLICE, Slicer, Steps, run_at_once


class Clock:
    """Advances by half a slice with each step."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def steps(self, log: list[str], name: str, count: int) -> Steps[str]:
        for _ in range(count):
            self.now += SLICE / 2
            log.append(name)
            yield
        return name


async def test_other_requests_have_iterations_between_slices_and_works_take_turns() -> None:
    clock, log = Clock(), list[str]()
    slicer = Slicer(clock)

    async def other_requests() -> None:
        while True:
            log.append(".")
            await asyncio.sleep(0)

    other = asyncio.create_task(other_requests())
    results = await asyncio.gather(slicer.run(clock.steps(log, "a", 6)), slicer.run(clock.steps(log, "b", 6)))
    other.cancel()
    assert list(results) == ["a", "b"]
    slices = [each for each in "".join(log).split(".") if each]
    assert slices == ["aa", "bb"] * 3
    pauses = re.findall(r"(?<=[ab])\.+(?=[ab])", "".join(log))
    assert len(pauses) == 5
    assert min(map(len, pauses[:4])) >= PAUSE, "the last slice follows the end of other work, not its pause"


async def test_work_that_holds_much_memory_runs_alone_but_beside_other_work() -> None:
    clock, log = Clock(), list[str]()
    slicer = Slicer(clock)
    large = [slicer.run_alone(clock.steps(log, name, 4)) for name in "ab"]
    await asyncio.gather(*large, slicer.run(clock.steps(log, "c", 4)))
    assert "".join(log) == "aaccaaccbbbb"


async def test_work_of_one_slice_waits_for_nothing() -> None:
    clock, log = Clock(), list[str]()
    running = Slicer(clock).run(clock.steps(log, "a", 1))
    with pytest.raises(StopIteration) as finished:
        running.send(None)
    assert finished.value.value == "a"


async def test_a_failure_is_raised_and_the_next_work_runs() -> None:
    def failing() -> Steps[None]:
        yield
        raise ValueError("broken")

    clock, log = Clock(), list[str]()
    slicer = Slicer(clock)
    with pytest.raises(ValueError, match="broken"):
        await slicer.run(failing())
    assert await slicer.run(clock.steps(log, "a", 9)) == "a"


async def test_work_that_is_cancelled_stops_no_other() -> None:
    clock, log = Clock(), list[str]()
    slicer = Slicer(clock)
    first = asyncio.create_task(slicer.run(clock.steps(log, "a", 99)))
    second = asyncio.create_task(slicer.run(clock.steps(log, "b", 9)))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == "b"
    assert log.count("a") < 99


def test_all_steps_at_once() -> None:
    assert run_at_once(Clock().steps([], "a", 5)) == "a"
