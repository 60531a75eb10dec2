"""The Kafka backend beside a native program with the same client library, on a broker of this run's own."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import memory, talk
from benchmarks.launch import Process, bridge
from benchmarks.load import Shot, fire, generator, sized, timed
from benchmarks.measurement import BRIDGE, Measurement, Round, Sample, Target, rows
from benchmarks.plan import Plan
from benchmarks.rawh2 import pack
from benchmarks.reader import acknowledge
from benchmarks.subjects import Subjects, bridges, in_turn
from tests.brokers.kafka import Kafka
from tests.brokers.provide import kafka_runtime

CLIENTS: Final = ("kafka-python", "confluent")
SERVER: Final = "granian"
STREAMS: Final = 64
PROGRAM: Final = Path(__file__).with_name("native.py")
NATIVE: Final = "native program"
SIZES: Final = {1: Target("ratio", "≥", 0.5), 100: Target("ratio", "≥", 0.7)}
"""Messages of one request, and what the rate shall be of the native program's with as many in flight."""
EFFORT: Final = {("confluent", 1): Target("figure", "≤", 0.12), ("confluent", 100): Target("figure", "≤", 0.05)}
"""CPU seconds of the bridge for 1,000 messages."""
READ: Final = Target("ratio", "≥", 0.5)
FIRST: Final = Target("figure", "≤", 1.2)
MEMORY: Final = Target("figure", "≤", 120)
STARTS: Final = 3
LONGER: Final = 3
"""Times the length of other rounds: batches that the broker writes need a while to be in step."""
LEAVES: Final = {"OMS_DELIVERY__GROUP_IDLE": "1000"}
"""A sidecar has a group or two: what a round's group holds is not to be there in the next."""


Load = Callable[[], Sample]


class Place(NamedTuple):
    """One client library on one broker."""

    client: str
    servers: str

    @property
    def backend(self) -> str:
        """The bridge's backend URL; with its own instance, so that a start finds its partitions."""
        own = f"{self.client}-{{name}}"  # two revisions share the broker
        return f"kafka://{self.servers}?client={self.client}&instance=bench-{own}&prefix=oms.{own}."

    def native(self, work: str, topic: str, number: int, at_once: int = 1) -> Sample:
        """Run the native program."""
        command = [
            sys.executable,
            "-P",
            str(PROGRAM),
            work,
            self.client,
            self.servers,
            topic,
            str(number),
            str(at_once),
        ]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rate, cpu = map(float, said.split())
        return Sample(rate, cpu / number * 1000)


def measure(plan: Plan) -> Iterator[Measurement]:
    """Yield the rows of each client."""
    with broker() as servers:
        for client in CLIENTS:
            place = Place(client, servers)
            with bridges(plan, SERVER, place.backend, LEAVES) as running:
                held = {"the target": [Sample(memory.TARGET.bound)], **memory.idle(running)}
                yield from rows(f"Kafka, {client}, idle memory", "MiB", held)
                for size, target in SIZES.items():
                    yield from _produced(plan, place, running, size, target)
                yield from _pushed(plan, place, running)
                peak = Sample(running[BRIDGE].memory("VmHWM"))
            yield Measurement(f"Kafka, {client}, peak memory of all that", "MiB", "the target", [
                Round(Sample(MEMORY.bound), peak)], MEMORY)  # fmt: skip
            yield _first(place)


@contextmanager
def broker() -> Iterator[str]:
    """A broker of this run's own; its address."""
    with (
        tempfile.TemporaryDirectory() as directory,
        Kafka(kafka_runtime(lasting=True), Path(directory) / "kafka") as kafka,
    ):
        yield kafka.bootstrap


def _produced(plan: Plan, place: Place, running: Subjects, size: int, target: Target) -> Iterator[Measurement]:
    topic = f"{place.client}-{size}"
    shot = talk.single(topic) if size == 1 else talk.batch(topic, size)
    number = min(sized(process, shot, STREAMS, plan.seconds * LONGER) for process in running.values())
    loads: dict[str, Load] = {NATIVE: partial(place.native, "produce", topic, number * size, STREAMS * size)}
    for name, process in running.items():
        loads[name] = partial(timed, process, shot, number, STREAMS, each=size, produced=number * size)
    samples = in_turn(plan, loads, lambda load, _: load())
    name = f"Kafka, {place.client}, {'singles' if size == 1 else f'batches of {size}'}, {STREAMS} at once"
    yield from rows(name, "messages/s", samples, {NATIVE: target}, generator())
    effort = {each: [Sample(sample.cpu or 0) for sample in samples[each]] for each in (NATIVE, BRIDGE)}
    targets = {NATIVE: bound} if (bound := EFFORT.get((place.client, size))) else {}
    yield from rows(f"{name}: CPU", "s/1,000", effort, targets, generator())


def _pushed(plan: Plan, place: Place, running: Subjects) -> Iterator[Measurement]:
    topic, groups = f"{place.client}-read", (f"push-{turn}" for turn in count())
    number = max(talk.BATCH, int(plan.seconds * 40_000) // talk.BATCH * talk.BATCH)
    talk.preload(running[BRIDGE].url, topic, number + talk.BATCH)
    commit, poll = "native, a commit for each", "native, a commit per poll"
    loads: dict[str, Load] = {
        commit: partial(place.native, "commit", topic, number // 20),
        poll: partial(place.native, "consume", topic, number),
    }
    for name, process in running.items():
        loads[name] = partial(_push, process, topic, groups, number)
    samples = in_turn(plan, loads, lambda load, _: load())
    yield from rows(f"Kafka, {place.client}, push + ack", "messages/s", samples, {commit: READ}, "own client")


def _push(figure: Process, topic: str, groups: Iterator[str], number: int) -> Sample:
    headers, group = [("accept", "multipart/mixed")], next(groups)
    _joined(figure, topic, group)
    path = talk.push_path(topic, group, number, ack="true", credit=1000)
    with figure.expecting(delivered=number, settled=number):
        before = figure.cpu()
        rate = acknowledge(figure.url, [pack(figure.url, "GET", path, headers)], number)
        return Sample(rate, (figure.cpu() - before) / number * 1000)


def _joined(figure: Process, topic: str, group: str) -> None:
    """Join the group beforehand, as the native program has when it is measured: one message goes."""
    fire(figure.url, Shot([talk.pull_path(topic, group, ack="false")]), 1, 1)


def _first(place: Place) -> Measurement:
    """From the start of the process to the first message of a group that exists."""
    rounds = []
    for _ in range(STARTS + 1):
        begun = time.perf_counter()
        with bridge(SERVER, place.backend.replace("{name}", BRIDGE)) as figure:
            ready = time.perf_counter()
            _joined(figure, f"{place.client}-read", "restarts")
            rounds.append(Round(Sample(ready - begun), Sample(time.perf_counter() - begun)))
    name = f"Kafka, {place.client}, start to first message"
    return Measurement(name, "s", "start to ready line", rounds[1:], FIRST)
