"""Batches of 10 and 100 as multipart/mixed, in messages per second, against singles and the bare applications."""

from collections.abc import Iterator, Mapping
from typing import Final

from benchmarks import talk
from benchmarks.launch import Process
from benchmarks.load import generator, sized, timed
from benchmarks.measurement import BEFORE, BRIDGE, Measurement, Sample, Samples, Target, beside, part, rows
from benchmarks.plan import SERVERS, Plan
from benchmarks.subjects import RSGI, in_turn, subjects

SIZES: Final = (10, 100)
STREAMS: Final = 64
AT_SIZE: Final = 100
"""Where the targets apply."""
SINGLES: Final = Target("ratio", "≥", 5)
FASTER: Final = Target("ratio", "≥", 1.9)
CHEAPER: Final = Target("CPU ratio", "≤", 0.7)
"""A message of a batch than a request of the bare RSGI application."""


def measure(plan: Plan) -> Iterator[Measurement]:
    """Yield the rows of each server and size."""
    shots = {size: talk.batch("orders", size) if size > 1 else talk.single("orders") for size in (1, *SIZES)}
    for server in SERVERS:
        with subjects(plan, server) as among:
            # a batch takes longer than a bare request: sized by the bridge, a round is as long as a single's
            numbers = {size: sized(among[BRIDGE], shot, STREAMS, plan.seconds) for size, shot in shots.items()}

            def load(process: Process, _: int, numbers: Mapping[int, int] = numbers) -> dict[int, Sample]:
                return {
                    size: timed(process, shots[size], number, STREAMS, each=size, produced=number * size)
                    for size, number in numbers.items()
                }

            loads = in_turn(plan, among, load)
        singles = part(loads, 1)
        for size in SIZES:
            yield from _rows(server, size, singles, part(loads, size))


def _rows(server: str, size: int, singles: Samples, batches: Samples) -> Iterator[Measurement]:
    name, unit, by = f"batch of {size}, {server}, {STREAMS} at once", "messages/s", generator()
    aimed = size == AT_SIZE
    yield from rows(name, unit, batches, {BEFORE: FASTER} if aimed and server == "granian" else {}, by)
    yield Measurement(name, unit, "singles", beside(singles[BRIDGE], batches[BRIDGE]), SINGLES if aimed else None, by)
    if RSGI in singles:
        compared = beside(singles[RSGI], batches[BRIDGE])
        yield Measurement(name, unit, f"singles of the {RSGI}", compared, CHEAPER if aimed else None, by)
