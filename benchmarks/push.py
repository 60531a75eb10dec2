"""Messages per second out of push streams: each framing, beside the bare server that streams the same bytes."""

from collections.abc import Iterator
from itertools import count
from typing import Final, NamedTuple

from benchmarks import talk
from benchmarks.launch import Process, bare, bridge
from benchmarks.load import Shot, fire, generator
from benchmarks.measurement import Measurement, Round, Sample, Target
from benchmarks.plan import SERVERS, Plan
from benchmarks.rawh2 import pack
from benchmarks.reader import acknowledge, record

FRAMINGS: Final = {"multipart": "multipart/mixed", "ndjson": "application/x-ndjson", "SSE": "text/event-stream"}
SIZES: Final = {"100 B": talk.SMALL, "1 KiB": talk.BODY}
STREAMS: Final = {1: "1 stream", 16: "16 streams of one group"}
"""Each message goes to one of the 16."""
RECORDED: Final = 250
"""Messages of a recording, which the bare application repeats."""
STEP: Final = RECORDED * max(STREAMS)
"""A round is a multiple of it."""
MOST: Final = 6 * STEP
LONGER: Final = 3
"""Times the messages of the bridge that the bare application streams: the same number would be over in 20 ms."""
CREDIT: Final = 1000
TARGET: Final = Target("figure", "≥", 40_000)
AT_SERVER, AT_SIZE, AT_FRAMINGS = "granian", "1 KiB", ("multipart", "ndjson")
"""Where it applies; one of the two framings shall reach it."""


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


class Pair(NamedTuple):
    """Ceiling and figure on one server."""

    server: str
    ceiling: Process
    figure: Process
    groups: Iterator[int]
    """Numbers of groups that are new to the figure; each of them gets all messages."""

    def streamed(self, case: Case, number: int) -> Sample:
        """Read so many messages from the bridge."""
        counts = {"delivered": number, "settled": number} if case.ack else {"delivered": number}
        with self.figure.expecting(**counts):
            return case.read(self.figure, case.path(next(self.groups), number // case.streams), number)


def measure(plan: Plan) -> Iterator[Measurement]:
    """Yield a row for each server and case."""
    for server in SERVERS:
        with bare(server) as ceiling, bridge(server) as figure:
            for body in SIZES.values():
                talk.preload(figure.url, _orders(body), MOST, body)
            pair = Pair(server, ceiling, figure, count())
            for case in CASES:
                yield _row(plan, pair, case)


def _row(plan: Plan, pair: Pair, case: Case) -> Measurement:
    _prepare(pair, case)
    rate = pair.streamed(case, STEP).value
    number = min(MOST, max(1, round(rate * plan.seconds / STEP)) * STEP)
    replay = f"{talk.PUSH}?repeat={number // case.streams // RECORDED}"
    case.read(pair.ceiling, replay, number)  # warms up
    rounds = [Round(case.read(pair.ceiling, replay, number), pair.streamed(case, number)) for _ in range(plan.rounds)]
    aimed = pair.server == AT_SERVER and case.size == AT_SIZE and case.framing in AT_FRAMINGS and not case.ack
    return Measurement(
        f"push{' + ack' if case.ack else ''}, {pair.server}, {case.framing}, {case.size}, {STREAMS[case.streams]}",
        "messages/s",
        "bare application",
        rounds,
        TARGET if aimed else None,
        "own client" if case.ack else generator(),
    )


def _prepare(pair: Pair, case: Case) -> None:
    """Give the ceiling what the bridge sends for so many messages."""
    # nobody acknowledges a recording: its stream is over when its leases are
    path = case.path(next(pair.groups), RECORDED) + "&leasemills=1"
    recording = record(pair.figure.url, path, FRAMINGS[case.framing])
    fire(pair.ceiling.url, Shot([talk.PUSH], body=recording), 1, 1)
    played = record(pair.ceiling.url, f"{talk.PUSH}?repeat=2", FRAMINGS[case.framing])
    if len(recording) < RECORDED * len(SIZES[case.size]) or played != 2 * recording:
        raise RuntimeError("The bare application does not stream what the bridge does.")


def _orders(body: bytes) -> str:
    return f"orders-{len(body)}"
