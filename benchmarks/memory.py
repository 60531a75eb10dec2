"""Memory of the process: two seconds after the start, and at most while it takes in messages."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from benchmarks import talk
from benchmarks.launch import Process, bare, bridge
from benchmarks.load import fire, generator
from benchmarks.measurement import Measurement, Round, Sample, Target
from benchmarks.plan import SERVERS, Plan

SETTLE: Final = 2.0
"""Seconds after which a start is over."""
STARTS: Final = 2
MESSAGES: Final = 5000
STREAMS: Final = 64
TARGET: Final = Target("figure", "≤", 70)


def measure(plan: Plan) -> Iterator[Measurement]:  # noqa: ARG001 - memory does not depend on how long one looks
    """Yield two rows for each server."""
    idle: dict[str, list[Round]] = {server: [] for server in SERVERS}
    most: dict[str, list[Round]] = {server: [] for server in SERVERS}
    for _ in range(STARTS):
        with ExitStack() as running:
            pairs = {s: (running.enter_context(bare(s)), running.enter_context(bridge(s))) for s in SERVERS}
            time.sleep(SETTLE)
            for server, pair in pairs.items():
                idle[server].append(Round(*(Sample(process.memory("VmRSS")) for process in pair)))
                most[server].append(Round(*(_loaded(process) for process in pair)))
    for server in SERVERS:
        yield Measurement(f"idle memory, {server}", "MiB", "bare application", idle[server], TARGET)
        name = f"peak memory, {server}, {MESSAGES:,} messages of 1 KiB kept"
        yield Measurement(name, "MiB", "bare application", most[server], None, generator())


def _loaded(process: Process) -> Sample:
    fire(process.url, talk.single("orders"), MESSAGES, STREAMS)
    return Sample(process.memory("VmHWM"))
