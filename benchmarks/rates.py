"""Latency of a produce at fixed rates, as shares of the highest rate that the bridge reaches in this run."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from benchmarks import talk
from benchmarks.launch import Process
from benchmarks.load import Shot, fire, sized
from benchmarks.measurement import BRIDGE, Measurement, Sample, Target, part, rows
from benchmarks.open_loop import latencies, percentile
from benchmarks.plan import Plan
from benchmarks.subjects import BARE, RSGI, in_turn, subjects

SERVER: Final = "granian"
SHARES: Final = (0.1, 0.25, 0.5, 0.75, 0.9)
PERCENTILES: Final = (50, 99, 99.9)
STREAMS: Final = 64
TARGETS: Final[Mapping[tuple[float, float], Target]] = {(0.5, 99): Target("figure", "≤", 5)}
"""By share and percentile."""


def measure(plan: Plan) -> Iterator[Measurement]:
    """Yield the rows of each rate: the latencies of the bridge, and those of the bare application at the same rate."""
    shot = talk.single("orders")
    with subjects(plan, SERVER) as started:
        among = {name: process for name, process in started.items() if name != BARE}
        number = sized(among[BRIDGE], shot, STREAMS, plan.seconds)
        highest = max(fire(among[BRIDGE].url, shot, number, STREAMS) for _ in range(plan.rounds))
        for share in SHARES:
            rate = round(highest * share, -2)
            name = f"produce at {rate:,.0f}/s ({share:.0%} of the highest rate), {SERVER}"
            loads = in_turn(plan, among, partial(_load, shot=shot, rate=rate, number=int(rate * plan.steady)))
            for percent in PERCENTILES:
                targets = {RSGI: target} if (target := TARGETS.get((share, percent))) else {}
                yield from rows(f"{name}, p{percent:g}", "ms", part(loads, percent), targets, "own client")


def _load(process: Process, _: int, *, shot: Shot, rate: float, number: int) -> dict[float, Sample]:
    with process.expecting(produced=number):
        before = process.cpu()
        took = latencies(process.url, shot, rate, number)
        cpu = (process.cpu() - before) / number * 1000
    return {percent: Sample(percentile(percent, took) * 1000, cpu) for percent in PERCENTILES}
