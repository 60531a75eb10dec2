"""From a produce to the reader of a push stream, at a steady rate far below what the bridge can carry."""

import re
import select
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from statistics import quantiles
from typing import Final

from benchmarks import talk
from benchmarks.launch import bare, bridge
from benchmarks.measurement import Measurement, Round, Sample
from benchmarks.plan import SERVERS, Plan
from benchmarks.rawh2 import Connection, pack

RATE: Final = 200
"""Messages per second: each is sent when it is due, whatever has come back by then."""
PATIENCE: Final = 10.0
"""Seconds without news after which a message is lost."""
PERCENTILES: Final = (50, 99)

_NUMBER: Final = re.compile(rb'"messageId":"n-(\d+)"')
_RECEIPT: Final = re.compile(rb'"receipt":"([0-9a-f-]+)"')


def measure(plan: Plan) -> Iterator[Measurement]:
    """Yield p50 and p99 for each server, without and with acknowledgement; the ceiling is a produce's own answer."""
    number = int(RATE * plan.steady)
    for server in SERVERS:
        sources = (f"orders-{turn}" for turn in count())
        rounds: list[list[list[float]]] = []
        with bare(server) as ceiling, bridge(server) as figure:
            for _ in range(plan.rounds):
                taken = [_answered(ceiling.url, number)]
                with figure.expecting(delivered=2 * number, produced=2 * number):
                    taken += [_pushed(figure.url, next(sources), number, ack=ack) for ack in (False, True)]
                rounds.append(taken)
        for side, ack in ((1, ""), (2, " + ack")):
            for percentile in PERCENTILES:
                pairs = [Round(_at(percentile, taken[0]), _at(percentile, taken[side])) for taken in rounds]
                name = f"produce to push{ack}, {server}, ndjson, {RATE} a second, p{percentile}"
                yield Measurement(name, "µs", "answer of the bare application", pairs, None, "own client")


def _answered(url: str, number: int) -> list[float]:
    """Seconds from each produce to its answer."""
    with closing(_Producer(url, "orders")) as producer:
        return _pace(number, producer, producer)


def _pushed(url: str, source: str, number: int, *, ack: bool) -> list[float]:
    """Seconds from each produce to the end of its line on an open stream."""
    with closing(_Producer(url, source)) as producer, closing(_Stream(url, source, number, ack=ack)) as stream:
        took = _pace(number, producer, stream)
        while stream.open:
            stream.hear()
        return took


def _pace(number: int, producer: "_Producer", hearer: "_Producer | _Stream") -> list[float]:
    """Send so many at the rate, until the last of them is heard of."""
    sent, took = [0.0] * number, [0.0] * number
    due, missing = 0, number
    begun = time.perf_counter()
    while missing:
        now = time.perf_counter()
        wait = begun + due / RATE - now if due < number else PATIENCE
        if wait <= 0:
            sent[due] = now
            producer.send(due)
            due += 1
            continue
        readable = select.select({producer.connection, hearer.connection}, [], [], wait)[0]
        if not readable and due == number:
            raise RuntimeError(f"{missing} messages did not come.")
        if hearer.connection in readable:
            for index in hearer.hear():
                took[index] = time.perf_counter() - sent[index]
                missing -= 1
        elif readable:
            producer.hear()
    return took


class _Producer:
    """Sends numbered messages."""

    def __init__(self, url: str, destination: str) -> None:
        self.connection = Connection(url)
        self._url = url
        (self._path,), self._headers, self._body = talk.small(destination)
        self._numbers: dict[int, int] = {}

    def send(self, number: int) -> None:
        headers = [*self._headers, ("x-oms-h-messageid", f"n-{number}"), ("content-length", str(len(self._body)))]
        block = pack(self._url, "POST", self._path, headers)
        self._numbers[self.connection.ask(block, self._body)] = number
        self.connection.flush()

    def hear(self) -> list[int]:
        """Return what has been answered."""
        return [self._numbers.pop(answer.stream) for answer in self.connection.answers()]

    def close(self) -> None:
        self.connection.close()


class _Stream:
    """One stream; under ack each message is acknowledged as soon as it is there."""

    def __init__(self, url: str, source: str, number: int, *, ack: bool) -> None:
        self.connection = Connection(url, hearing=self._hear)
        self.open = True
        self._url = url
        self._rest = b""
        self._lines: list[bytes] = []
        path = talk.push_path(source, "billing", number, ack="true" if ack else "false")
        self._stream = self.connection.ask(pack(url, "GET", path, [("accept", "application/x-ndjson")]))
        self.connection.flush()

    def hear(self) -> list[int]:
        """Return what has arrived."""
        if self._stream in (answer.stream for answer in self.connection.answers()):
            self.open = False
        lines, self._lines = self._lines, []
        for line in lines:
            if (receipt := _RECEIPT.search(line)) is not None:
                (path,), headers, _ = talk.acks([receipt[1].decode("ascii")])
                self.connection.ask(pack(self._url, "POST", path, headers))
        self.connection.flush()
        return [int(found[1]) for line in lines if (found := _NUMBER.search(line)) is not None]

    def close(self) -> None:
        self.connection.close()

    def _hear(self, stream: int, piece: bytes) -> None:
        if stream == self._stream:
            *whole, self._rest = (self._rest + piece).split(b"\n")
            self._lines += whole


def _at(percentile: int, seconds: list[float]) -> Sample:
    return Sample(quantiles(seconds, n=100)[percentile - 1] * 1_000_000)
