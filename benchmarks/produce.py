"""Single produce: 1 KiB with a key, a property and a content type, over HTTP/2 and HTTP/1.1."""

from collections.abc import Iterator, Mapping
from typing import Final

from benchmarks import talk
from benchmarks.launch import Process
from benchmarks.load import Shot, generator, sized, timed
from benchmarks.measurement import BEFORE, Measurement, Sample, Samples, Target, rows
from benchmarks.plan import SERVERS, Plan
from benchmarks.subjects import BARE, RSGI, Subjects, in_turn, subjects

STREAMS: Final = 64
"""Where the targets apply."""
TARGETS: Final[Mapping[str, Mapping[str, Target]]] = {
    "hypercorn": {BARE: Target("ratio", "≥", 0.75)},
    "granian": {RSGI: Target("CPU ratio", "≤", 2.5), BEFORE: Target("ratio", "≥", 1.8)},
}


def measure(plan: Plan) -> Iterator[Measurement]:
    """Yield the rows of each server and number of streams, and of HTTP/1.1."""
    shot = talk.single("orders")
    for server in SERVERS:
        with subjects(plan, server) as among:
            for streams in plan.streams:
                samples = _samples(plan, among, shot, streams)
                targets = TARGETS[server] if streams == STREAMS else {}
                yield from rows(f"produce, {server}, {streams} at once", "requests/s", samples, targets, generator())
            if server == "hypercorn":
                continue  # h2load counts a response over HTTP/1.1 only if its status line has a reason phrase
            samples = _samples(plan, among, shot._replace(http1=True), STREAMS)
            name = f"produce over HTTP/1.1, {server}, {STREAMS} at once"
            yield from rows(name, "requests/s", samples, TARGETS[server], generator())


def _samples(plan: Plan, among: Subjects, shot: Shot, streams: int) -> Samples:
    numbers = {process: sized(process, shot, streams, plan.seconds) for process in among.values()}

    def load(process: Process, _: int) -> Sample:
        return timed(process, shot, numbers[process], streams, produced=numbers[process])

    return in_turn(plan, among, load)
