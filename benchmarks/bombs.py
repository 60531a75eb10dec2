"""What another client gets while some send gzip bombs: the latency of a produce and of `/livez`, with and without.

Latencies count from when a request was due (see `open_loop.py`). The attackers are another process, so that they do not
slow down the client that measures by more than the machine does.
"""

import base64
import gzip
import json
import multiprocessing
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from multiprocessing.synchronize import Event
from typing import Final
from urllib.parse import urlsplit

from benchmarks import talk
from benchmarks.launch import Process, bridge
from benchmarks.load import Shot
from benchmarks.measurement import BRIDGE, Measurement, Sample, Target, part, rows
from benchmarks.open_loop import latencies, percentile
from benchmarks.plan import SERVERS, Plan

ATTACKERS: Final = 20
RATE: Final = 50
"""Produces a second, and requests of `/livez`."""
LONGER: Final = 4
"""Times the length of other loads at a steady rate: a percentile of few requests says little."""
QUIET: Final = "without bombs"
TARGETS: Final[Mapping[str, Target]] = {"produce": Target("figure", "≤", 500), "/livez": Target("figure", "≤", 200)}
"""Milliseconds."""
EXPECTED: Final = {207, 429, 503}
"""Statuses of a bomb: refused messages, or a refusal of the whole batch."""
INFLATED: Final = 4 << 20
"""Bytes of one message, inflated: the default limit of a body."""
LARGEST: Final = 4_000_000
"""Bytes of one batch, below the same limit."""
PATIENCE: Final = 120.0
"""Seconds for an attacker's answer."""


def measure(plan: Plan) -> Iterator[Measurement]:
    """Yield p99 of both requests for each form of a bomb on each server."""
    number = int(LONGER * RATE * plan.steady)
    for server in SERVERS:
        with bridge(server) as process:
            for form, bomb in bombs().items():
                loads: dict[str, list[dict[str, Sample]]] = {QUIET: [], BRIDGE: []}
                for _ in range(plan.rounds):
                    loads[QUIET].append(_stranger(process, number))
                    with attacked(process.url, bomb):
                        loads[BRIDGE].append(_stranger(process, number))
                for what, target in TARGETS.items():
                    name = f"{what} while {ATTACKERS} clients send gzip bombs, {form}, {server}, p99"
                    yield from rows(name, "ms", part(loads, what), {QUIET: target}, "own client")


def bombs() -> Mapping[str, Shot]:
    """Return a batch of messages that inflate to 4 MiB each, in both forms, each nearly as large as a body may be."""
    packed = gzip.compress(bytes(INFLATED))
    item = json.dumps(
        {"header": {"destination": "bombs", "compression": "gzip"}, "data": base64.b64encode(packed).decode()}
    )
    message = b"--b\r\nx-oms-h-destination: bombs\r\nx-oms-h-compression: gzip\r\n\r\n%b\r\n" % packed
    version = ("x-oms-version", "1.0.0")
    array = f"[{','.join([item] * (LARGEST // (len(item) + 1)))}]".encode()
    parts = message * (LARGEST // len(message)) + b"--b--\r\n"
    return {
        "JSON": Shot(["/v1/messages"], [version, ("content-type", "application/json")], array),
        "multipart": Shot(["/v1/messages"], [version, ("content-type", "multipart/mixed; boundary=b")], parts),
    }


@contextmanager
def attacked(url: str, bomb: Shot) -> Iterator[None]:
    """Let `ATTACKERS` clients send the bomb again and again; begins when each of them has sent one."""
    context = multiprocessing.get_context("spawn")
    begun, over = context.Event(), context.Event()
    attackers = context.Process(target=_attack, args=(url, bomb, begun, over))
    attackers.start()
    try:
        if not begun.wait(PATIENCE):
            raise RuntimeError("The attackers did not begin.")
        yield
    finally:
        over.set()
        attackers.join()
    if attackers.exitcode:
        raise RuntimeError("An attacker got another answer than it should.")


def _attack(url: str, bomb: Shot, begun: Event, over: Event) -> None:
    """Run all attackers. The process fails if one of them got no answer, or not one of `EXPECTED`."""
    statuses: list[int] = []
    all_sent = threading.Barrier(ATTACKERS, begun.set, PATIENCE)

    def attack() -> None:
        with closing(HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE)) as connection:
            first = True
            while first or not over.is_set():
                connection.request("POST", bomb.paths[0], bomb.body, dict(bomb.headers))
                if first:
                    all_sent.wait()
                    first = False
                answer = connection.getresponse()
                answer.read()
                statuses.append(answer.status)

    attackers = [threading.Thread(target=attack) for _ in range(ATTACKERS)]
    for attacker in attackers:
        attacker.start()
    for attacker in attackers:
        attacker.join()
    if len(statuses) < ATTACKERS or not EXPECTED.issuperset(statuses):
        raise SystemExit(1)


def _stranger(process: Process, number: int) -> dict[str, Sample]:
    """Measure both requests at the same time; milliseconds."""
    live: list[float] = []
    probes = threading.Thread(target=lambda: live.extend(_livez(process.management, number)))
    probes.start()
    produced = latencies(process.url, talk.small("orders"), RATE, number)
    probes.join()
    return {what: Sample(percentile(99, took) * 1000) for what, took in (("produce", produced), ("/livez", live))}


def _livez(url: str, number: int) -> Iterator[float]:
    """Ask that number of times, `RATE` a second; seconds from when each was due."""
    with closing(HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE)) as connection:
        begun = time.perf_counter()
        for index in range(number):
            due = begun + index / RATE
            time.sleep(max(0.0, due - time.perf_counter()))
            connection.request("GET", "/livez")
            connection.getresponse().read()
            yield time.perf_counter() - due
