"""From a produce to the reader of a push stream, at a steady rate far below what the bridge can carry."""

import re
from collections.abc import Iterator
from contextlib import closing
from typing import Final

from benchmarks import talk
from benchmarks.launch import Process
from benchmarks.measurement import Measurement, Sample, part, rows
from benchmarks.open_loop import latencies, pace, percentile
from benchmarks.plan import SERVERS, Plan
from benchmarks.rawh2 import Connection, pack
from benchmarks.subjects import in_turn, subjects

RATE: Final = 200
"""Messages per second."""
PERCENTILES: Final = (50, 99)

_NUMBER: Final = re.compile(rb'"messageId":"n-(\d+)"')
_RECEIPT: Final = re.compile(rb'"receipt":"([0-9a-f-]+)"')


def measure(plan: Plan) -> Iterator[Measurement]:
    """Yield p50 and p99 for each server, without and with acknowledgement; a bare application answers the produce."""
    number = int(RATE * plan.steady)
    for server in SERVERS:
        for ack in (False, True):

            def load(process: Process, turn: int, *, ack: bool = ack) -> dict[int, Sample]:
                if not process.is_bridge:
                    took = latencies(process.url, talk.small("orders"), RATE, number)
                else:
                    with process.expecting(delivered=number, produced=number):
                        took = _pushed(process.url, f"orders-{turn}-{ack}", number, ack=ack)
                return {percent: Sample(percentile(percent, took) * 1_000_000) for percent in PERCENTILES}

            with subjects(plan, server) as among:
                loads = in_turn(plan, among, load)
            for percent in PERCENTILES:
                name = f"produce to push{' + ack' if ack else ''}, {server}, ndjson, {RATE} a second, p{percent}"
                yield from rows(name, "µs", part(loads, percent), by="own client")


def _pushed(url: str, source: str, number: int, *, ack: bool) -> list[float]:
    """Seconds from when each produce was due to the end of its line on an open stream."""
    with closing(_Producer(url, source)) as producer, closing(_Stream(url, source, number, ack=ack)) as stream:
        readers = {producer.connection: producer.hear, stream.connection: stream.hear}
        took = pace(RATE, number, producer.send, readers)
        while stream.open:
            stream.hear()
        return took


class _Producer:
    """Sends numbered messages."""

    def __init__(self, url: str, destination: str) -> None:
        self.connection = Connection(url)
        self._url = url
        (self._path,), self._headers, self._body, _ = talk.small(destination)

    def send(self, number: int) -> bool:
        headers = [*self._headers, ("x-oms-h-messageid", f"n-{number}"), ("content-length", str(len(self._body)))]
        self.connection.ask(pack(self._url, "POST", self._path, headers), self._body)
        self.connection.flush()
        return True

    def hear(self) -> list[int]:
        """Read the answers, which are not measured."""
        self.connection.answers()
        return []

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
                (path,), headers, *_ = talk.acks([receipt[1].decode("ascii")])
                self.connection.ask(pack(self._url, "POST", path, headers))
        self.connection.flush()
        return [int(found[1]) for line in lines if (found := _NUMBER.search(line)) is not None]

    def close(self) -> None:
        self.connection.close()

    def _hear(self, stream: int, piece: bytes) -> None:
        if stream == self._stream:
            *whole, self._rest = (self._rest + piece).split(b"\n")
            self._lines += whole
