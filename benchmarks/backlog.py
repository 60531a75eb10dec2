"""Cost per message with a thousand and with a million messages waiting."""

from collections.abc import Iterator
from typing import Final

from benchmarks import effort, talk
from benchmarks.launch import bridge
from benchmarks.load import generator
from benchmarks.measurement import Measurement, Round, Target
from benchmarks.plan import Plan

SHALLOW: Final = 1000
SERVER: Final = "granian"
"""It leaves the most of a request to the part that could grow with the backlog."""
TARGET: Final = Target("ratio", "≤", 1.2)


def measure(plan: Plan) -> Iterator[Measurement]:
    """Yield a row for produce and one for pull and ack: 100-byte bodies, every message kept, none settled before."""
    with bridge(SERVER) as shallow, bridge(SERVER) as deep:
        for process, number in ((shallow, SHALLOW), (deep, plan.backlog)):
            talk.preload(process.url, "orders", number, talk.SMALL)
            effort.consume(process, "orders", "billing", SHALLOW // 2)  # joins and warms up
        stored, taken = [], []
        for _ in range(plan.rounds):
            stored.append(Round(*(effort.produce(p, "orders", plan.steps) for p in (shallow, deep))))
            taken.append(Round(*(effort.consume(p, "orders", "billing", plan.steps) for p in (shallow, deep))))
    against = f"{SHALLOW:,} waiting"
    name = f"{plan.backlog:,} waiting, {SERVER}"
    yield Measurement(f"produce, {name}", "CPU µs/message", against, stored, TARGET, generator())
    yield Measurement(f"pull + ack, {name}", "CPU µs/message", against, taken, TARGET, "own client")
