"""Requests at a fixed rate, whatever has come back: an open loop.

Each latency counts from the moment when the request was due, not from when it was sent, so a server that stalls cannot
hold back the requests that would have shown it ("coordinated omission"). h2load's `--rps` is no substitute: it sends in
bursts every 10 ms, and counts from the sending.
"""

import gc
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing
from statistics import quantiles
from typing import Final

from benchmarks.load import Shot
from benchmarks.rawh2 import Connection, pack, readable

CONNECTIONS: Final = 8
AT_ONCE: Final = 100
"""Requests in flight on one connection; the servers allow 128. A request beyond that waits, which counts."""
PATIENCE: Final = 10.0
"""Seconds without an answer after which a request is lost."""

Read = Callable[[], Iterable[int]]


def pace(rate: float, number: int, send: Callable[[int], bool], readers: Mapping[Connection, Read]) -> list[float]:
    """Send `number` requests, `rate` a second; seconds from when each was due until a reader returned its index.

    `send` gets the index of the request that is due, and returns whether it could be sent. Raises `RuntimeError` if
    nothing comes for `PATIENCE` seconds.
    """
    took = [0.0] * number
    sent, missing = 0, number
    blocked = False
    begun = time.perf_counter()
    while missing:
        wait = PATIENCE
        if sent < number and not blocked:
            wait = begun + sent / rate - time.perf_counter()
            if wait <= 0:
                blocked = not send(sent)
                sent += not blocked
                continue
        answering = readable(readers, wait)
        if not answering and wait == PATIENCE:
            raise RuntimeError(f"{missing} answers did not come.")
        for connection in answering:
            for index in readers[connection]():
                took[index] = time.perf_counter() - begun - index / rate
                missing -= 1
        blocked = False
    return took


def latencies(url: str, shot: Shot, rate: float, number: int) -> list[float]:
    """Make that many requests of one shot, `rate` a second, on `CONNECTIONS` connections; seconds each took."""
    (path,), headers, body, _ = shot
    block = pack(url, "POST", path, [*headers, ("content-length", str(len(body)))])
    indexes: dict[Connection, dict[int, int]] = {}

    def send(index: int) -> bool:
        connection = min(indexes, key=lambda each: len(indexes[each]))
        if len(indexes[connection]) >= AT_ONCE:
            return False
        indexes[connection][connection.ask(block, body)] = index
        connection.flush()
        return True

    def reader(connection: Connection) -> Read:
        return lambda: [indexes[connection].pop(answer.stream) for answer in connection.answers()]

    with ExitStack() as opened:
        for _ in range(CONNECTIONS):
            indexes[opened.enter_context(closing(Connection(url)))] = {}
        gc.disable()  # a pause of this program would count
        try:
            return pace(rate, number, send, {connection: reader(connection) for connection in indexes})
        finally:
            gc.enable()


def percentile(percent: float, seconds: list[float]) -> float:
    """Return that percentile, in tenths of a percent."""
    return quantiles(seconds, n=1000)[round(percent * 10) - 1]
