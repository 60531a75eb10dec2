"""What follows from an answer: when it comes, when it comes too late, and when nobody waits any more."""

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from functools import partial

import pytest

from bridge.continuation import Continuation, Timeouts
from tests.unit.engine.virtual import VirtualLoop, turns

LIMIT = 2.0


class Answer:
    """An answer, what follows from it, and how often that was asked for."""

    def __init__(self, timeouts: Timeouts) -> None:
        self.future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.continuation = Continuation(self.future, timeouts, self._complete)
        self.completed = 0

    def _complete(self) -> str:
        self.completed += 1
        return f"stored at {self.future.result()}" if self.future.done() else "no answer"


def virtual(test: Callable[[], Coroutine[object, object, None]]) -> Callable[[], None]:
    """Run a test on an event loop that does not wait."""

    def run() -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test())

    run.__name__ = test.__name__
    return run


@virtual
async def test_it_is_ready_when_the_answer_is_there() -> None:
    timeouts, ready = Timeouts(LIMIT), list[str]()
    answer = Answer(timeouts)
    answer.continuation.when_ready(lambda: ready.append(answer.continuation.complete()))
    await turns()
    assert not ready
    answer.future.set_result(7)
    await turns()
    assert ready == ["stored at 7"]
    assert not timeouts._ends, "an answered one is not kept until its time is over"
    await asyncio.sleep(2 * LIMIT)
    assert answer.completed == 1, "not again when its time is over"


@virtual
async def test_it_is_ready_when_its_time_is_over_and_not_again_when_the_answer_comes() -> None:
    answer, ready = Answer(Timeouts(LIMIT)), list[str]()
    answer.continuation.when_ready(lambda: ready.append(answer.continuation.complete()))
    await asyncio.sleep(LIMIT - 0.1)
    assert not ready
    await asyncio.sleep(0.2)
    assert ready == ["no answer"]
    answer.future.set_result(7)
    await turns()
    assert ready == ["no answer"]


@virtual
async def test_each_has_the_whole_time_and_the_answered_ones_hold_up_no_other() -> None:
    timeouts, started, late = Timeouts(LIMIT), asyncio.get_running_loop().time(), list[tuple[int, float]]()
    answers = [Answer(timeouts) for _ in range(4)]

    def note(number: int) -> None:
        late.append((number, round(asyncio.get_running_loop().time() - started, 1)))

    for number, answer in enumerate(answers):
        answer.continuation.when_ready(partial(note, number))
        await asyncio.sleep(0.5)
    answers[0].future.set_result(0)
    answers[2].future.set_result(2)
    await asyncio.sleep(2 * LIMIT)
    assert late == [(0, 2.0), (2, 2.0), (1, 2.5), (3, 3.5)]


@virtual
async def test_what_follows_may_convert_a_result_or_an_error() -> None:
    def shown(complete: Callable[[], str]) -> str:
        try:
            return complete().upper()
        except ZeroDivisionError:
            return "an error"

    timeouts = Timeouts(LIMIT)
    stored, failed = Answer(timeouts), Answer(timeouts)
    stored.future.set_result(1)
    failed.future.set_exception(ZeroDivisionError())
    assert await stored.continuation.then(shown) == "STORED AT 1"
    assert await failed.continuation.then(shown) == "an error"
    with pytest.raises(ZeroDivisionError):
        await failed.continuation


@virtual
async def test_awaiting_it_returns_what_follows() -> None:
    answer = Answer(Timeouts(LIMIT))
    asyncio.get_running_loop().call_later(1, answer.future.set_result, 7)
    assert await answer.continuation == "stored at 7"
    assert await Answer(Timeouts(LIMIT)).continuation == "no answer"


@virtual
async def test_a_waiter_that_is_cancelled_withdraws_no_answer() -> None:
    answer = Answer(Timeouts(LIMIT))
    task = asyncio.ensure_future(answer.continuation)
    await turns()
    task.cancel()
    await turns()
    assert task.cancelled()
    assert not answer.future.cancelled()
    answer.future.set_result(7)
    await asyncio.sleep(2 * LIMIT)
    assert not answer.completed


@virtual
async def test_the_last_one_that_waits_is_called() -> None:
    answer, called = Answer(Timeouts(LIMIT)), list[str]()
    answer.continuation.when_ready(lambda: called.append("first"))
    answer.continuation.when_ready(lambda: called.append("second"))
    answer.future.set_result(7)
    await turns()
    assert called == ["second"]


@virtual
async def test_a_later_call_waits_no_longer() -> None:
    answer, called = Answer(Timeouts(LIMIT)), list[str]()
    answer.continuation.when_ready(lambda: called.append("first"))
    await asyncio.sleep(LIMIT - 0.1)
    answer.continuation.when_ready(lambda: called.append("second"))
    await asyncio.sleep(0.2)
    assert called == ["second"]


@virtual
async def test_what_was_called_is_freed_at_once() -> None:
    """A call that holds its continuation would be a cycle, which waits for the collector."""

    class Held:
        pass

    def called(continuation: Continuation[str], _held: Held) -> None:
        continuation.complete()

    answer, held = Answer(Timeouts(LIMIT)), Held()
    freed = weakref.ref(held)
    answer.continuation.when_ready(partial(called, answer.continuation, held))
    answer.future.set_result(7)
    await turns()
    del answer, held
    assert freed() is None
