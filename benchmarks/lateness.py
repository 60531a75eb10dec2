"""How late delayed messages come: from the moment they are due to the end of their line on an open stream."""

import re
import time
from contextlib import closing
from statistics import quantiles
from typing import Final, NamedTuple

from benchmarks import talk
from benchmarks.rawh2 import Connection, pack, readable

RATE: Final = 100
"""Messages per second."""
NUMBER: Final = 300
DELAYS: Final = (20, 3000)
"""Milliseconds: the shortest and the longest delay."""
PATIENCE: Final = 15.0

_DUE: Final = re.compile(rb'"bornTimestamp":(\d+).*"delayTime":(\d+)')


class Lateness(NamedTuple):
    """Milliseconds after they were due; below 0 is early."""

    least: float
    p99: float


def lateness(url: str, destination: str) -> Lateness:
    """Send delayed messages at a steady rate and see when they come."""
    with closing(_Stream(url, destination)) as stream, closing(Connection(url)) as producer:
        (path,), headers, body, _ = talk.small(destination)
        _ready(url, producer)
        begun = time.perf_counter()
        sent = 0
        while len(stream.late) < NUMBER:
            wait = begun + sent / RATE - time.perf_counter() if sent < NUMBER else PATIENCE
            if wait <= 0:
                delay = DELAYS[0] + (DELAYS[1] - DELAYS[0]) * (sent * 37 % NUMBER) // NUMBER
                given = [*headers, ("x-oms-h-delaytime", str(delay)), ("content-length", str(len(body)))]
                producer.ask(pack(url, "POST", path, given), body)
                producer.flush()
                sent += 1
                continue
            answering = readable({producer, stream.connection}, wait)
            if not answering and sent == NUMBER:
                raise RuntimeError(f"{NUMBER - len(stream.late)} messages did not come.")
            for connection in answering:
                connection.answers()
    return Lateness(min(stream.late), quantiles(stream.late, n=100)[98])


def _ready(url: str, producer: Connection) -> None:
    """Have whatever a backend makes for its first delay, which may take it some seconds."""
    (path,), headers, body, _ = talk.small("delayed-first")
    given = [*headers, ("x-oms-h-delaytime", str(DELAYS[1])), ("content-length", str(len(body)))]
    producer.ask(pack(url, "POST", path, given), body)
    producer.flush()
    while not producer.answers():
        pass


class _Stream:
    def __init__(self, url: str, source: str) -> None:
        self.late: list[float] = []
        self._rest = b""
        self.connection = Connection(url, hearing=self._hear)
        path = talk.push_path(source, "billing", NUMBER, ack="false")
        self.connection.ask(pack(url, "GET", path, [("accept", "application/x-ndjson")]))
        self.connection.flush()

    def close(self) -> None:
        """Close it."""
        self.connection.close()

    def _hear(self, _: int, piece: bytes) -> None:
        now = time.time() * 1000
        *whole, self._rest = (self._rest + piece).split(b"\n")
        for line in whole:
            if (found := _DUE.search(line)) is not None:
                self.late.append(now - int(found[1]) - int(found[2]))
