"""Messages per second out of push streams: each framing, beside the bare server that streams the same bytes."""

from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Final, NamedTuple

from benchmarks import talk
from benchmarks.launch import Process
from benchmarks.load import Shot, fire, generator
from benchmarks.measurement import BEFORE, BRIDGE, Measurement, Sample, Target, rows
from benchmarks.plan import SERVERS, Plan
from benchmarks.rawh2 import pack
from benchmarks.reader import acknowledge, record
from benchmarks.subjects import BARE, Subjects, in_turn, subjects

FRAMINGS: Final = {"multipart": "multipart/mixed", "ndjson": "application/x-ndjson", "SSE": "text/event-stream"}
SIZES: Final = {"100 B": talk.SMALL, "1 KiB": talk.BODY}
STREAMS: Final = {1: "1 stream", 16: "16 streams of one group"}
"""Each message goes to one of the 16."""
RECORDED: Final = 250
"""Messages of a recording, which the bare application repeats."""
STEP: Final = RECORDED * max(STREAMS)
"""A round is a multiple of it."""
MOST: Final = 6 * STEP
CREDIT: Final = 1000
TARGETS: Final = {BARE: Target("figure", "≥", 40_000), BEFORE: Target("ratio", "≥", 1.5)}
AT_SERVER, AT_SIZE, AT_FRAMINGS = "granian", "1 KiB", ("multipart", "ndjson")
"""Where they apply."""


class Case(NamedTuple):
    """One row."""

    framing: str
    size: str
    streams: int
    ack: bool = False

    def path(self, group: int, number: int) -> str:
        """Return the path of a stream that ends after so many messages."""
        more: dict[str, str | int] = {"ack": "true", "credit": CREDIT} if self.ack else {}
        return talk.push_path(_orders(SIZES[self.size]), f"push-{group}", number, **more)

    def read(self, process: Process, path: str, number: int) -> Sample:
        """Read that path on every stream; `number` messages come on all of them together."""
        headers = [("accept", FRAMINGS[self.framing])]
        before = process.cpu()
        if self.ack:
            rate = acknowledge(process.url, [pack(process.url, "GET", path, headers)] * self.streams, number)
        else:
            rate = fire(process.url, Shot([path], headers), self.streams, self.streams) * number / self.streams
        return Sample(rate, (process.cpu() - before) / number * 1000)


CASES: Final = (
    *(Case(framing, size, streams) for size in SIZES for framing in FRAMINGS for streams in STREAMS),
    *(Case(framing, AT_SIZE, streams, ack=True) for framing in AT_FRAMINGS for streams in STREAMS),
)


def measure(plan: Plan) -> Iterator[Measurement]:
    """Yield the rows of each server and case."""
    for server in SERVERS:
        with subjects(plan, server) as among:
            for process in among.values():
                for body in SIZES.values() if process.is_bridge else ():
                    talk.preload(process.url, _orders(body), MOST, body)
            groups = count()
            for case in CASES:
                yield from _rows(plan, server, among, case, groups)


def _rows(plan: Plan, server: str, among: Subjects, case: Case, groups: Iterator[int]) -> Iterator[Measurement]:
    _record(among, case, next(groups))

    def load(process: Process, _: int, number: int = STEP) -> Sample:
        if not process.is_bridge:
            return case.read(process, f"{talk.PUSH}?repeat={number // case.streams // RECORDED}", number)
        counts = {"delivered": number, "settled": number} if case.ack else {"delivered": number}
        with process.expecting(**counts):
            return case.read(process, case.path(next(groups), number // case.streams), number)

    in_turn(plan._replace(rounds=1), among, load)  # warms up
    rate = load(among[BRIDGE], 0).value
    number = min(MOST, max(1, round(rate * plan.seconds / STEP)) * STEP)
    aimed = server == AT_SERVER and case.size == AT_SIZE and case.framing in AT_FRAMINGS and not case.ack
    yield from rows(
        f"push{' + ack' if case.ack else ''}, {server}, {case.framing}, {case.size}, {STREAMS[case.streams]}",
        "messages/s",
        in_turn(plan, among, partial(load, number=number)),
        TARGETS if aimed else {},
        "own client" if case.ack else generator(),
    )


def _record(among: Subjects, case: Case, group: int) -> None:
    """Give the bare applications what the bridge sends for so many messages."""
    # no client acknowledges a recording: its stream is over when its leases are
    path = case.path(group, RECORDED) + "&leasemills=1"
    recording = record(among[BRIDGE].url, path, FRAMINGS[case.framing])
    for process in among.values():
        if process.is_bridge:
            continue
        fire(process.url, Shot([talk.PUSH], body=recording), 1, 1)
        played = record(process.url, f"{talk.PUSH}?repeat=2", FRAMINGS[case.framing])
        if len(recording) < RECORDED * len(SIZES[case.size]) or played != 2 * recording:
            raise RuntimeError("The bare application does not stream what the bridge does.")


def _orders(body: bytes) -> str:
    return f"orders-{len(body)}"
