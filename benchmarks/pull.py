"""Pull and ack, each message two requests; and the piggy-backed form, whose pull brings the last receipt along.

h2load cannot take a receipt from one answer into the next request. So pulls and acks are measured one after the
other: N pulls of a fresh group, which fetch N messages and lease them; then N acks of another group's receipts,
gathered beforehand. Together they are all the work of N messages.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from benchmarks import talk
from benchmarks.launch import Process
from benchmarks.load import Shot, generator, sized, timed
from benchmarks.measurement import BEFORE, Measurement, Sample, Target, part, rows
from benchmarks.plan import SERVERS, Plan
from benchmarks.subjects import BARE, Subjects, in_turn, subjects

STREAMS: Final = 64
"""Where the targets apply."""
CASES: Final[Mapping[str, Mapping[str, Target]]] = {
    "pull": {},
    "ack": {},
    "pull + ack": {BARE: Target("ratio", "≥", 0.35), BEFORE: Target("ratio", "≥", 1.5)},
}
MOST: Final = 20_000
"""Messages of one round; the prefetch buffer must hold the leases of a round, and is limited to 100,000."""
BUFFER: Final = {"OMS_LIMITS__PREFETCH": str(2 * MOST)}
"""Enough for the leases of a round; then a piggy-backed round refills the buffer once."""
RECEIPT: Final = "00000000-0000-4000-8000-{:012}"
"""Of the bare application, which has none."""


def measure(plan: Plan) -> Iterator[Measurement]:
    """Yield the rows of each server."""
    for server in SERVERS:
        with subjects(plan, server, BUFFER) as among:
            some = Shot([talk.pull_path("orders", "billing")])
            numbers = {s: min(MOST, sized(among[BARE], some, s, plan.seconds)) for s in plan.streams}
            for streams, number in numbers.items():
                yield from _in_two(plan, server, among, streams, number)
            yield from _in_one(plan, server, among, max(numbers.values()))


def _in_two(plan: Plan, server: str, among: Subjects, streams: int, number: int) -> Iterator[Measurement]:
    source = f"orders-{streams}"
    _preload(among, source, number)

    def load(process: Process, turn: int) -> dict[str, Sample]:
        pull = Shot([talk.pull_path(source, f"pull-{turn}")])
        pulled = timed(process, pull, number, streams, delivered=number)
        receipts = _receipts(process, talk.pull_path(source, f"ack-{turn}"), number)
        ack = Shot([talk.ack_path(receipt) for receipt in receipts], body=b"-")  # h2load has no empty POST
        acked = timed(process, ack, number, streams, settled=number)
        return {"pull": pulled, "ack": acked, "pull + ack": _together(pulled, acked)}

    loads = in_turn(plan, among, load)
    for case, targets in CASES.items():
        name = f"{case}, {server}, {streams} at once"
        yield from rows(name, "requests/s", part(loads, case), targets if streams == STREAMS else {}, generator())


def _in_one(plan: Plan, server: str, among: Subjects, number: int) -> Iterator[Measurement]:
    _preload(among, "orders-next", 3 * number)

    def pull(process: Process, turn: int) -> Sample:
        path = talk.pull_path("orders-next", f"next-{turn}")
        shot = Shot([f"{path}&receipt={receipt}" for receipt in _receipts(process, path, number)])
        return timed(process, shot, number, STREAMS, delivered=number, settled=number)

    name = f"pull that acks the last, {server}, {STREAMS} at once"
    yield from rows(name, "requests/s", in_turn(plan, among, pull), by=generator())


def _preload(among: Subjects, source: str, number: int) -> None:
    for process in among.values():
        if process.is_bridge:
            talk.preload(process.url, source, number)


def _receipts(process: Process, path: str, number: int) -> list[str]:
    return talk.receipts(process.url, path, number) if process.is_bridge else [RECEIPT.format(n) for n in range(number)]


def _together(pull: Sample, ack: Sample) -> Sample:
    """Per request; CPU per message, which is both."""
    return Sample(2 / (1 / pull.value + 1 / ack.value), (pull.cpu or 0) + (ack.cpu or 0))
