"""Pull and ack, each message two requests; and the piggy-backed form, whose pull brings the last receipt along.

h2load cannot take a receipt from one answer into the next request. So pulls and acks are measured one after the
other: N pulls of a fresh group, which fetch N messages and lease them; then N acks of another group's receipts,
gathered beforehand. Together they are all the work of N messages.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from benchmarks import talk
from benchmarks.launch import Process, bare, bridge
from benchmarks.load import Shot, generator, sized, timed
from benchmarks.measurement import Measurement, Round, Sample, Target
from benchmarks.plan import SERVERS, Plan

AT_STREAMS: Final = 64
TARGET: Final = Target("ratio", "≥", 0.35)
MOST: Final = 20_000
"""Messages of one round; the window, which is not to run out of room for leases, ends at 100,000."""


class Pair(NamedTuple):
    """Ceiling and figure on one server."""

    server: str
    ceiling: Process
    figure: Process


def measure(plan: Plan) -> Iterator[Measurement]:
    """Yield the rows of each server."""
    for server in SERVERS:
        with bare(server) as ceiling:
            some = Shot([talk.pull_path("orders", "billing")])
            numbers = {s: min(MOST, sized(ceiling, some, s, plan.seconds)) for s in plan.streams}
            # room for the leases of a round; and with it a piggy-backed round refills the window once, by N
            window = {"OMS_LIMITS__WINDOW": str(2 * max(numbers.values()))}
            with bridge(server, settings=window) as figure:
                pair = Pair(server, ceiling, figure)
                for streams, number in numbers.items():
                    yield from _in_two(plan, pair, streams, number)
                yield _in_one(plan, pair, max(numbers.values()))


def _in_two(plan: Plan, pair: Pair, streams: int, number: int) -> Iterator[Measurement]:
    source = f"orders-{streams}"
    server, ceiling, figure = pair
    talk.preload(figure.url, source, number)
    pulls, acks = [], []
    for turn in range(plan.rounds):
        pull = Shot([talk.pull_path(source, f"pull-{turn}")])
        pulls.append(
            Round(timed(ceiling, pull, number, streams), timed(figure, pull, number, streams, delivered=number))
        )
        receipts = talk.receipts(figure.url, talk.pull_path(source, f"ack-{turn}"), number)
        ack = Shot([talk.ack_path(receipt) for receipt in receipts], body=b"-")  # h2load has no empty POST
        acks.append(Round(timed(ceiling, ack, number, streams), timed(figure, ack, number, streams, settled=number)))
    both = [
        Round(_together(pull.ceiling, ack.ceiling), _together(pull.figure, ack.figure))
        for pull, ack in zip(pulls, acks, strict=True)
    ]
    at = f"{server}, {streams} at once"
    target = TARGET if streams == AT_STREAMS else None
    yield Measurement(f"pull, {at}", "requests/s", "bare application", pulls, None, generator())
    yield Measurement(f"ack, {at}", "requests/s", "bare application", acks, None, generator())
    yield Measurement(f"pull + ack, {at}", "requests/s", "bare application", both, target, generator())


def _in_one(plan: Plan, pair: Pair, number: int) -> Measurement:
    server, ceiling, figure = pair
    talk.preload(figure.url, "orders-next", 3 * number)
    rounds = []
    for turn in range(plan.rounds):
        path = talk.pull_path("orders-next", f"next-{turn}")
        receipts = talk.receipts(figure.url, path, number)
        shot = Shot([f"{path}&receipt={receipt}" for receipt in receipts])
        bare_sample = timed(ceiling, shot, number, AT_STREAMS)
        rounds.append(Round(bare_sample, timed(figure, shot, number, AT_STREAMS, delivered=number, settled=number)))
    name = f"pull that acks the last, {server}, {AT_STREAMS} at once"
    return Measurement(name, "requests/s", "bare application", rounds, None, generator())


def _together(pull: Sample, ack: Sample) -> Sample:
    """Per request; CPU per message, which is both."""
    return Sample(2 / (1 / pull.value + 1 / ack.value), (pull.cpu or 0) + (ack.cpu or 0))
