"""Single produce: 1 KiB with a key, a property and a content type, one connection, against the bare application."""

from collections.abc import Iterator
from typing import Final

from benchmarks import talk
from benchmarks.launch import bare, bridge
from benchmarks.load import generator, sized, timed
from benchmarks.measurement import Measurement, Round, Target
from benchmarks.plan import SERVERS, Plan

TARGETS: Final = {"hypercorn": Target("ratio", "≥", 0.75), "granian": Target("ratio", "≥", 0.55)}
AT_STREAMS: Final = 64
"""Where the targets apply."""


def measure(plan: Plan) -> Iterator[Measurement]:
    """Yield one row for each server and number of streams."""
    shot = talk.single("orders")
    for server in SERVERS:
        with bare(server) as ceiling, bridge(server) as figure:
            for streams in plan.streams:
                most = sized(ceiling, shot, streams, plan.seconds)
                number = sized(figure, shot, streams, plan.seconds)
                rounds = [
                    Round(timed(ceiling, shot, most, streams), timed(figure, shot, number, streams, produced=number))
                    for _ in range(plan.rounds)
                ]
                target = TARGETS[server] if streams == AT_STREAMS else None
                name = f"produce, {server}, {streams} at once"
                yield Measurement(name, "requests/s", "bare application", rounds, target, generator())
