"""A produce stream beside batches of 100 that are sent one after another, each on one connection."""

import base64
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Final

from benchmarks import talk
from benchmarks.launch import Process
from benchmarks.measurement import BRIDGE, Measurement, Sample, Target, beside, part
from benchmarks.plan import SERVERS, Plan
from benchmarks.rawh2 import Connection, pack
from benchmarks.subjects import bridges, in_turn

SIZE: Final = 100
"""Messages of a batch."""
STREAM: Final = "stream"
MULTIPART: Final = "multipart batches"
JSON: Final = "JSON batches"
FASTER: Final = Target("ratio", "≥", 1.5)
CHEAPER: Final = Target("CPU ratio", "≤", 1 / 1.5)
_WARM_UP: Final = 2_000
_NDJSON: Final = ("content-type", "application/x-ndjson")
_MESSAGE: Final = json.dumps(
    {
        "header": {"destination": "orders"},
        "extensionHeader": {"messageKey": "customer-12", "contentType": "application/json"},
        "properties": {"region": "eu"},
        "data": base64.b64encode(talk.BODY).decode("ascii"),
    },
    separators=(",", ":"),
).encode("ascii")
_VERSION: Final = ("x-oms-version", "1.0.0")

Send = Callable[[str, int], float]
"""Produces so many messages to a URL, and returns the seconds that it took."""


def measure(plan: Plan) -> Iterator[Measurement]:
    """Yield the rows of each server: against each form of a batch, the rate and the CPU time."""
    plan = plan._replace(before=None)  # batches are what it is compared with, and an old revision has no streams
    sends: Mapping[str, Send] = {STREAM: _stream, JSON: partial(_batches, as_json=True), MULTIPART: _batches}
    for server in SERVERS:
        with bridges(plan, server) as among:
            number = _sized(among[BRIDGE], plan)

            def load(process: Process, _: int, number: int = number) -> dict[str, Sample]:
                return {name: _timed(process, send, number) for name, send in sends.items()}

            loads = in_turn(plan, among, load)
        figures = part(loads, STREAM)[BRIDGE]
        for name in (JSON, MULTIPART):
            rounds = beside(part(loads, name)[BRIDGE], figures)
            for target in (FASTER, CHEAPER):
                yield Measurement(f"produce stream, {server}", "messages/s", name, rounds, target, "one connection")


def _sized(process: Process, plan: Plan) -> int:
    """Return how many messages a stream stores in the time of a load; warms the process up on the way."""
    _stream(process.url, _WARM_UP)
    rate = _WARM_UP / _stream(process.url, _WARM_UP)
    return max(_WARM_UP, round(rate * plan.seconds * 4 / SIZE) * SIZE)


def _timed(process: Process, send: Send, number: int) -> Sample:
    with process.expecting(produced=number):
        before = process.cpu()
        seconds = send(process.url, number)
        cpu = process.cpu() - before
    return Sample(number / seconds, cpu / number * 1000)


def _stream(url: str, number: int) -> float:
    body = (_MESSAGE + b"\n") * number
    heard = bytearray()
    with closing(Connection(url, hearing=lambda _, piece: heard.extend(piece))) as connection:
        began = time.perf_counter()
        connection.ask(pack(url, "POST", "/v1/stream", [_VERSION, _NDJSON]), body)
        connection.flush()
        while not connection.answers():
            pass
        seconds = time.perf_counter() - began
    if (lines := heard.count(b"\n")) != number + 1:
        raise RuntimeError(f"The stream has {lines} lines for {number} messages.")
    return seconds


def _batches(url: str, number: int, *, as_json: bool = False) -> float:
    shot = talk.batch("orders", SIZE)
    if as_json:
        shot = shot._replace(
            headers=[_VERSION, ("content-type", "application/json")], body=b"[%b]" % b",".join([_MESSAGE] * SIZE)
        )
    block = pack(url, "POST", shot.paths[0], [*shot.headers, ("content-length", str(len(shot.body)))])
    with closing(Connection(url)) as connection:
        began = time.perf_counter()
        for _ in range(number // SIZE):
            connection.ask(block, shot.body)
            connection.flush()
            while not connection.answers():
                pass
        return time.perf_counter() - began
