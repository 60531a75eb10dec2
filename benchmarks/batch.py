"""Batches of 10 and 100 as multipart/mixed, in messages per second, against singles and the bare application."""

from collections.abc import Iterator
from typing import Final

from benchmarks import talk
from benchmarks.launch import bare, bridge
from benchmarks.load import generator, sized, timed
from benchmarks.measurement import Measurement, Round, Sample, Target
from benchmarks.plan import SERVERS, Plan

SIZES: Final = (10, 100)
STREAMS: Final = 64
TARGETS: Final = {100: Target("ratio", "≥", 5)}
"""Against singles."""


def measure(plan: Plan) -> Iterator[Measurement]:
    """Yield two rows for each server and size."""
    for server in SERVERS:
        with bare(server) as ceiling, bridge(server) as figure:
            shots = {size: talk.batch("orders", size) for size in SIZES} | {1: talk.single("orders")}
            # a batch takes longer than a bare request: sized by the bridge, a round is as long as a single's
            numbers = {size: sized(figure, shot, STREAMS, plan.seconds) for size, shot in shots.items()}
            rounds: list[dict[int, Round]] = []
            for _ in range(plan.rounds):
                sides: dict[int, list[Sample]] = {size: [] for size in shots}
                for size, shot in shots.items():
                    for process in (ceiling, figure):
                        stored = {"produced": numbers[size] * size} if process is figure else {}
                        sides[size].append(timed(process, shot, numbers[size], STREAMS, each=size, **stored))
                rounds.append({size: Round(*both) for size, both in sides.items()})
            yield from _rows(server, rounds)


def _rows(server: str, rounds: list[dict[int, Round]]) -> Iterator[Measurement]:
    for size in SIZES:
        name = f"batch of {size}, {server}, {STREAMS} at once"
        bare_rounds = [r[size] for r in rounds]
        yield Measurement(name, "messages/s", "bare application", bare_rounds, None, generator())
        single_rounds = [Round(r[1].figure, r[size].figure) for r in rounds]
        yield Measurement(name, "messages/s", "singles", single_rounds, TARGETS.get(size), generator())
