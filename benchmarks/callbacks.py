"""Callbacks per second to one endpoint: one message in each, with the produce, and in batches."""

import time
from collections.abc import Iterator
from itertools import count
from typing import Final
from urllib.request import Request, urlopen

from benchmarks import talk
from benchmarks.launch import Process, sink
from benchmarks.load import Shot, fire, generator
from benchmarks.measurement import BEFORE, BRIDGE, Measurement, Sample, Target, beside, part, rows
from benchmarks.plan import Plan
from benchmarks.subjects import bridges, in_turn

SERVER: Final = "granian"
IN_FLIGHT: Final = 64
BATCH: Final = 100
SOURCE: Final = "orders"
ENDPOINT: Final = "h2load to the endpoint"
TARGETS: Final = {ENDPOINT: Target("figure", "≥", 2000)}
FASTER: Final = {BEFORE: Target("ratio", "≥", 1.5)}
BATCHES: Final = Target("ratio", "≥", 6)
"""Against one message each."""
NETWORK: Final = "127.0.0.1/32"
SECRET: Final = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="  # noqa: S105 - signs nothing that matters
PATIENCE: Final = 60
"""Seconds for one load."""


def measure(plan: Plan) -> Iterator[Measurement]:
    """Yield the rows of one server: it takes the registrations and, in one row, the messages."""
    number = max(talk.BATCH, plan.steps)
    with sink() as endpoint:
        settings = {"TARGETS": endpoint.url, "NETWORKS": NETWORK, "SECRETS": SECRET, "IN_FLIGHT": str(IN_FLIGHT)}
        variables = {f"OMS_CALLBACKS__{name}": value for name, value in settings.items()}
        with bridges(plan, SERVER, settings=variables) as running:
            for process in running.values():
                talk.preload(process.url, SOURCE, number)
            delivery = Delivery(endpoint, number)
            in_turn(plan._replace(rounds=1), running, delivery.load)  # warms up
            bare = {ENDPOINT: [delivery.posted() for _ in range(plan.rounds)]}
            loads = in_turn(plan, running, delivery.load)
    unit, by, singles = "messages/s", "the bridge itself", part(loads, "singles")
    yield from rows(f"callbacks, {SERVER}, 1 KiB, {IN_FLIGHT} in flight", unit, bare | singles, TARGETS, by)
    yield from rows(f"produce and callback, {SERVER}, 1 KiB", unit, bare | part(loads, "both"), FASTER, generator())
    if "batches" in loads[BRIDGE][0]:
        compared = beside(singles[BRIDGE], part({BRIDGE: loads[BRIDGE]}, "batches")[BRIDGE])
        yield Measurement(
            f"callbacks in batches of {BATCH}, {SERVER}, 1 KiB", unit, "one message each", compared, BATCHES, by
        )


class Delivery:
    """Has a bridge deliver messages to the endpoint, each time to a new group."""

    def __init__(self, endpoint: Process, number: int) -> None:
        self._endpoint = endpoint
        self._number = number
        self._names = (f"calls-{turn}" for turn in count())

    def load(self, process: Process, _: int) -> dict[str, Sample]:
        """Deliver stored messages, then messages that are produced meanwhile, then stored ones in batches."""
        shot = talk.single(destination := next(self._names))
        samples = {
            "singles": self._called(process, SOURCE)[0],
            "both": self._called(process, destination, shot)[0],
        }
        batches, posts = self._called(process, SOURCE, batch=BATCH)
        return samples | ({"batches": batches} if posts < self._number else {})  # an older bridge posts each message

    def posted(self) -> Sample:
        """POST as many with h2load: what the endpoint can take."""
        shot = Shot(["/orders"], talk.single(SOURCE).headers, talk.BODY, http1=True)
        fire(self._endpoint.url, shot, self._number, IN_FLIGHT)
        return Sample(self._received()[0])

    def _called(self, process: Process, source: str, shot: Shot | None = None, *, batch: int = 1) -> tuple[Sample, int]:
        """Register the endpoint until it has every message, and return the number of POSTs too."""
        number, group, before = self._number, next(self._names), process.cpu()
        with process.expecting(settled=number, callbacks_failed=0):
            all_settled = process.counts()["settled"] + number
            _register(process, talk.callback_path(source, group, f"{self._endpoint.url}/orders", batch))
            if shot is not None:
                fire(process.url, shot, number, IN_FLIGHT)
            rate, posts = self._received()
            deadline = time.monotonic() + PATIENCE
            while process.counts()["settled"] < all_settled and time.monotonic() < deadline:
                time.sleep(0.01)  # the last answers are on their way
            _register(process, talk.callback_path(source, group, ""))
        return Sample(rate, (process.cpu() - before) / number * 1000), posts

    def _received(self) -> tuple[float, int]:
        """Messages per second from the first to the last POST, and the number of POSTs."""
        with urlopen(f"{self._endpoint.url}/{self._number}", timeout=PATIENCE) as answer:  # noqa: S310
            seconds, posts = answer.read().split()
        return (self._number - 1) / float(seconds), int(posts)


def _register(process: Process, path: str) -> None:
    headers = {"accept": "application/x-ndjson"}
    request = Request(process.url + path, method="POST", headers=headers)  # noqa: S310 - our own process's URL
    urlopen(request, timeout=PATIENCE).close()  # noqa: S310
