"""The load at a fixed rate: a latency counts from when a request was due, whatever the server did before."""

import fcntl
import resource
import socket
from collections.abc import Collection, Iterable
from typing import cast

import pytest

from benchmarks import open_loop, talk
from benchmarks.launch import bare
from benchmarks.open_loop import latencies, pace, percentile
from benchmarks.rawh2 import Connection

RATE = 10
CONNECTION = cast("Connection", object())


class Clock:
    """Time that passes only while `readable` waits. The server answers nothing before `stalled_until`."""

    def __init__(self, *, answers_after: float, stalled_until: float = 0.0, at_once: int = 1000) -> None:
        self.now = 0.0
        self.sent_at: list[float] = []
        self._answers_after = answers_after
        self._stalled_until = stalled_until
        self._at_once = at_once
        self._waiting: dict[int, float] = {}

    def perf_counter(self) -> float:
        return self.now

    def send(self, index: int) -> bool:
        if len(self._waiting) >= self._at_once:
            return False
        self.sent_at.append(self.now)
        self._waiting[index] = max(self._stalled_until, self.now) + self._answers_after
        return True

    def readable(self, readers: Collection[object], seconds: float) -> list[object]:
        until = min(self._waiting.values(), default=float("inf"))
        self.now = min(self.now + seconds, until)
        return list(readers) if self.now >= until else []

    def read(self) -> Iterable[int]:
        done = [index for index, at in self._waiting.items() if at <= self.now]
        return [index for index in done if self._waiting.pop(index)]


def run(monkeypatch: pytest.MonkeyPatch, clock: Clock, number: int) -> list[float]:
    monkeypatch.setattr(open_loop, "time", clock)
    monkeypatch.setattr(open_loop, "readable", clock.readable)
    return [round(seconds, 6) for seconds in pace(RATE, number, clock.send, {CONNECTION: clock.read})]


def test_a_request_leaves_when_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(answers_after=0.5)
    assert run(monkeypatch, clock, 5) == [0.5] * 5
    assert clock.sent_at == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])


def test_a_stall_shows_in_every_request_that_was_due_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(answers_after=0.01, stalled_until=0.35)
    assert run(monkeypatch, clock, 5) == pytest.approx([0.36, 0.26, 0.16, 0.06, 0.01])


def test_connections_may_have_descriptors_that_select_cannot_take() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2048:
        resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))
    here, there = socket.socketpair()
    with here, there, socket.socket(fileno=fcntl.fcntl(here, fcntl.F_DUPFD_CLOEXEC, 1500)) as high:
        connection = cast("Connection", high)
        took = pace(RATE, 1, lambda _: bool(there.send(b"!")), {connection: lambda: [*high.recv(1)] and [0]})
    assert len(took) == 1


def test_a_request_that_could_not_be_sent_counts_from_when_it_was_due(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(answers_after=0.25, at_once=1)
    assert run(monkeypatch, clock, 3) == pytest.approx([0.25, 0.4, 0.55])
    assert clock.sent_at == pytest.approx([0, 0.25, 0.5])


def test_an_answer_that_never_comes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="2 answers did not come"):
        run(monkeypatch, Clock(answers_after=60), 2)


def test_percentiles() -> None:
    seconds = [number / 1000 for number in range(1, 1000)]
    assert [percentile(percent, seconds) for percent in (50, 99, 99.9)] == pytest.approx([0.5, 0.99, 0.999])


@pytest.mark.parametrize("kind", ["hypercorn", "rsgi"])
def test_real_requests_are_all_answered(kind: str) -> None:
    with bare(kind) as process:
        took = latencies(process.url, talk.single("orders"), 2000, 400)
    assert len(took) == 400
    assert min(took) > 0
