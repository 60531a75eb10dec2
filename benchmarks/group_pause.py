"""How long a group on RabbitMQ stands still when a bridge joins it, leaves it or is killed.

Three bridges share a group; a message goes to each partition in turn, 400 a second. A pause is the longest time in
which no stream got a message of one partition, from the change on.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import pairwise
from threading import Event, Thread
from types import TracebackType
from typing import Final, Self

from adapters.rabbitmq.options import Options
from benchmarks import talk
from benchmarks.launch import Process, bridge
from benchmarks.measurement import Measurement, Round, Sample, Target
from benchmarks.plan import Plan
from benchmarks.rabbitmq import SERVER, broker
from benchmarks.rawh2 import Connection, pack, readable

PARTITIONS: Final = Options(()).partitions
RATE: Final = 400
"""Messages per second, all partitions together."""
WINDOW: Final = 6.0
"""Seconds after a change that are looked at: longer than a pause may be."""
READY: Final = 30.0
"""Seconds in which every partition delivers at the beginning."""
TARGETS: Final = {
    "a bridge joins": Target("figure", "≤", 2),
    "a bridge leaves": Target("figure", "≤", 2),
    "a bridge is killed": Target("figure", "≤", 5),
}
_MANY: Final = 10_000_000
_AT_ONCE: Final = 64
"""Produces under way: the first ones wait until the destination is declared."""
_STEP: Final = 0.002
_PATH: Final = "/v1/messages"


def measure(plan: Plan) -> Iterator[Measurement]:
    """Yield the row of each change."""
    with broker() as url:
        found = [_pauses(url, f"moving-{turn}") for turn in range(plan.rounds)]
    for name, target in TARGETS.items():
        rounds = [Round(Sample(pauses["no change"]), Sample(pauses[name])) for pauses in found]
        yield Measurement(f"RabbitMQ, pause of a group: {name}", "s", "no change", rounds, target, "own client")


def _pauses(url: str, destination: str) -> dict[str, float]:
    """Return the longest pause of any partition, in seconds, after each change and without one."""
    with ExitStack() as running:

        def start(name: str) -> Process:
            return running.enter_context(bridge(SERVER, f"{url}?instance={name}"))

        first, second, third = start("first"), start("second"), start("third")
        traffic = running.enter_context(Traffic(first.url, destination))
        traffic.listen(first)
        traffic.listen(second)
        traffic.wait_until_all_deliver()
        pauses = {"no change": traffic.pause(time.perf_counter())}
        pauses["a bridge joins"] = traffic.pause(traffic.listen(third))
        changed = time.perf_counter()
        third.stop()
        pauses["a bridge leaves"] = traffic.pause(changed)
        fourth = start("fourth")
        traffic.pause(traffic.listen(fourth))
        changed = time.perf_counter()
        os.kill(fourth.pid, signal.SIGKILL)
        pauses["a bridge is killed"] = traffic.pause(changed)
    return pauses


class Traffic:
    """Sends to all partitions through one bridge, and reads a stream of each bridge, in a separate thread."""

    def __init__(self, url: str, destination: str) -> None:
        self._url = url
        self._destination = destination
        self._delivered: list[list[float]] = [[] for _ in range(PARTITIONS)]
        """When messages of each partition came."""
        self._streams: set[Connection] = set()
        self._ended = Event()
        self._error: Exception | None = None
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def listen(self, process: Process) -> float:
        """Open a stream of a bridge; returns when that was."""
        rest = b""

        def hear(_: int, piece: bytes) -> None:
            nonlocal rest
            now = time.perf_counter()
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if (at := line.find(b'"partition":')) >= 0:
                    self._delivered[int(line[at + 12 : at + 13])].append(now)

        connection = Connection(process.url, hearing=hear)
        path = talk.push_path(self._destination, "billing", _MANY, ack="false")
        connection.ask(pack(process.url, "GET", path, [("accept", "application/x-ndjson")]))
        begun = time.perf_counter()
        connection.flush()
        self._streams = {*self._streams, connection}
        return begun

    def wait_until_all_deliver(self) -> None:
        """Wait until every partition has delivered. Raises `RuntimeError` if that takes too long."""
        end = time.perf_counter() + READY
        while not all(self._delivered):
            if time.perf_counter() > end:
                raise RuntimeError("A partition delivers nothing.")
            self._sleep(0.1)
        self._sleep(WINDOW)  # the bridges have found each other

    def pause(self, begun: float) -> float:
        """Return the longest pause of any partition that was not over at `begun`, once the window is."""
        self._sleep(max(0.0, begun + WINDOW - time.perf_counter()))
        now = time.perf_counter()
        return max(
            after - before for times in self._delivered for before, after in pairwise([*times, now]) if after > begun
        )

    def _sleep(self, seconds: float) -> None:
        self._ended.wait(seconds)
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._send_and_read()
        except Exception as error:  # noqa: BLE001 - `_sleep` raises it
            self._error = error

    def _send_and_read(self) -> None:
        producer = Connection(self._url)
        (_,), headers, body, _ = talk.small(self._destination)
        given = [*headers, ("content-length", str(len(body)))]
        blocks = [
            pack(self._url, "POST", _PATH, [*given, ("x-oms-h-partition", str(number))]) for number in range(PARTITIONS)
        ]
        begun, sent, answered = time.perf_counter(), 0, 0
        while not self._ended.is_set():
            due = min(int((time.perf_counter() - begun) * RATE), answered + _AT_ONCE)
            for number in range(sent, due):
                producer.ask(blocks[number % PARTITIONS], body)
            sent = max(sent, due)
            producer.flush()
            for connection in readable({producer, *self._streams}, _STEP):
                if connection is producer:
                    answered += len(producer.answers())
                    continue
                with suppress(ConnectionError):
                    connection.answers()
                    continue
                self._streams = self._streams - {connection}  # its bridge has ended
                connection.close()
        for connection in (producer, *self._streams):
            connection.close()
