"""Cost per message while many pulls of other groups wait."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks import effort, talk
from benchmarks.launch import Process, bridge
from benchmarks.load import generator
from benchmarks.measurement import Measurement, Round, Target
from benchmarks.plan import SERVERS, Plan
from benchmarks.rawh2 import Connection, pack, readable

STREAMS: Final = 100
"""Waiting pulls of one connection; the servers allow 128."""
WAIT: Final = 60_000
"""Milliseconds a pull waits: the most the bridge allows, and longer than a measurement takes."""
TARGET: Final = Target("ratio", "≤", 1.2)


def measure(plan: Plan) -> Iterator[Measurement]:
    """Yield two rows for each server."""
    for server in SERVERS:
        with bridge(server) as quiet, bridge(server) as busy:
            for process in (quiet, busy):
                effort.produce(process, "orders", plan.steps)
                effort.consume(process, "orders", "billing", plan.steps)
            stored, taken = [], []
            with _held(busy, plan.waiting):
                for _ in range(plan.rounds):
                    stored.append(Round(*(effort.produce(p, "orders", plan.steps) for p in (quiet, busy))))
                    taken.append(Round(*(effort.consume(p, "orders", "billing", plan.steps) for p in (quiet, busy))))
        name = f"{plan.waiting:,} pulls waiting, {server}"
        yield Measurement(f"produce, {name}", "CPU µs/message", "no pull waiting", stored, TARGET, generator())
        yield Measurement(f"pull + ack, {name}", "CPU µs/message", "no pull waiting", taken, TARGET, "own client")


@contextmanager
def _held(process: Process, number: int) -> Iterator[None]:
    """Keep that many pulls waiting: real requests, a connection and a group for every hundred."""
    connections = [Connection(process.url) for _ in range(number // STREAMS)]
    done = threading.Event()
    keeper = threading.Thread(target=_keep, args=(connections, done))
    try:
        for turn, connection in enumerate(connections):
            path = talk.pull_path(f"quiet-{turn}", "billing", waitmills=WAIT)
            for block in [pack(process.url, "GET", path)] * STREAMS:
                connection.ask(block)
            connection.flush()
        keeper.start()
        _await(process, number)
        yield
        _await(process, number)  # still: none gave up meanwhile
    finally:
        done.set()
        if keeper.is_alive():
            keeper.join()
        for connection in connections:
            connection.close()


def _keep(connections: list[Connection], done: threading.Event) -> None:
    """Read what comes: settings, pings that need an answer, a lost connection that another task reports."""
    while not done.is_set():
        for connection in readable(connections, 0.2):
            connection.answers()


def _await(process: Process, number: int) -> None:
    deadline = time.monotonic() + 20
    while (waiting := process.counts()["waiting_pulls"]) != number:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{waiting} pulls are waiting, not {number}.")
        time.sleep(0.1)
