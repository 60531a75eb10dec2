"""Memory of the process: two seconds after the start, and at most while it takes in messages."""

import time
from collections.abc import Iterator
from typing import Final

from benchmarks import talk
from benchmarks.launch import Process
from benchmarks.load import fire, generator
from benchmarks.measurement import Measurement, Sample, Samples, Target, rows
from benchmarks.plan import SERVERS, Plan
from benchmarks.subjects import BARE, Subjects, in_turn, subjects

SETTLE: Final = 2.0
"""Seconds after which a start is over."""
MESSAGES: Final = 5000
STREAMS: Final = 64
TARGET: Final = Target("figure", "≤", 60)


def measure(plan: Plan) -> Iterator[Measurement]:
    """Yield the rows of each server."""
    for server in SERVERS:
        with subjects(plan, server) as among:
            yield from rows(f"idle memory, {server}", "MiB", idle(among), {BARE: TARGET})
            once = plan._replace(rounds=1)
            name = f"peak memory, {server}, {MESSAGES:,} messages of 1 KiB kept"
            yield from rows(name, "MiB", in_turn(once, among, _loaded), by=generator())


def idle(among: Subjects) -> Samples:
    """Return what processes hold that have just started."""
    time.sleep(SETTLE)
    return {name: [Sample(process.memory("VmRSS"))] for name, process in among.items()}


def _loaded(process: Process, _: int) -> Sample:
    fire(process.url, talk.single("orders"), MESSAGES, STREAMS)
    return Sample(process.memory("VmHWM"))
