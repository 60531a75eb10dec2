"""The RabbitMQ backend beside a native asynchronous program with pika, on a broker of this run's own."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pika

from adapters.rabbitmq.topology.names import Own
from adapters.rabbitmq.topology.records import encode
from benchmarks import memory, talk
from benchmarks.lateness import lateness
from benchmarks.launch import Process, bridge
from benchmarks.load import Shot, fire, generator, sized, timed
from benchmarks.measurement import BEFORE, BRIDGE, Measurement, Round, Sample, Target, rows
from benchmarks.plan import Plan
from benchmarks.rawh2 import pack
from benchmarks.reader import acknowledge
from benchmarks.subjects import Subjects, bridges, in_turn
from tests.brokers.provide import own_rabbitmq

SERVER: Final = "granian"
STREAMS: Final = 64
MEMORY: Final = "in memory"
MORE: Final = "in memory, and 0.04 s"
PROGRAM: Final = Path(__file__).with_name("native_amqp.py")
NATIVE: Final = "native program"
SIZES: Final = {1: Target("ratio", "≥", 0.5), 100: Target("ratio", "≥", 0.7)}
"""Messages of one request, and what the rate shall be of the native program's with as many in flight."""
ADDED: Final = 0.04
"""CPU seconds for 1,000 single messages that RabbitMQ may cost more than the memory backend."""
EFFORT: Final = {1: {NATIVE: Target("figure", "≤", 0.15), MORE: Target("ratio", "≤", 1)}}
"""By messages of one request: CPU seconds of the bridge for 1,000 messages, and beside those in memory."""
GAIN: Final = {1: Target("ratio", "≥", 1.3), 100: Target("ratio", "≥", 1.5)}
"""What the rate shall be of the revision's before, by messages of one request."""
READ: Final = Target("ratio", "≥", 0.6)
LATE: Final = Target("figure", "≤", 100)
EARLY: Final = Target("figure", "≥", 0)
GROUPS: Final = 10_000
"""In the catalogue, which a bridge reads when it starts."""
START: Final = Target("figure", "≤", 3)
LONGER: Final = 3
"""Times the length of other rounds: confirms come in larger lots once the broker is under load."""

Load = Callable[[], Sample]


def measure(plan: Plan) -> Iterator[Measurement]:
    """Yield the rows of RabbitMQ."""
    with broker() as url:
        # two revisions share the broker: each has its own prefix, and its own destinations
        with bridges(plan, SERVER, f"{url}?instance=bench-{{name}}&prefix=oms.{{name}}.") as running:
            held = {"the target": [Sample(memory.TARGET.bound)], **memory.idle(running)}
            yield from rows("RabbitMQ, idle memory", "MiB", held)
            for size, target in SIZES.items():
                yield from _produced(plan, url, running, size, target)
            yield from _pushed(plan, url, running)
            yield from _delayed(plan, running[BRIDGE])
        yield _started(plan, url)


@contextmanager
def broker() -> Iterator[str]:
    """A broker of this run's own; its address."""
    with tempfile.TemporaryDirectory() as directory, own_rabbitmq(Path(directory) / "rabbitmq") as rabbit:
        yield rabbit.url


def _native(work: str, url: str, destination: str, number: int, at_once: int = 1) -> Sample:
    command = [sys.executable, "-P", str(PROGRAM), work, url, destination, str(number), str(at_once)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rate, cpu = map(float, said.split() or (0, 0))
    return Sample(rate, cpu / (number or 1) * 1000)


def _produced(plan: Plan, url: str, running: Subjects, size: int, target: Target) -> Iterator[Measurement]:
    with bridge(SERVER) as in_memory:
        processes = {**running, MEMORY: in_memory}
        shots = {
            name: (talk.single if size == 1 else partial(talk.batch, size=size))(_own(f"produced-{size}", name))
            for name in processes
        }
        for name, process in running.items():
            _join(process, _own(f"produced-{size}", name), "billing")
        number = min(sized(process, shots[name], STREAMS, plan.seconds * LONGER) for name, process in running.items())
        destination = _own(f"produced-{size}", BRIDGE)
        loads: dict[str, Load] = {NATIVE: partial(_native, "produce", url, destination, number * size, STREAMS * size)}
        for name, process in processes.items():
            load = partial(timed, process, shots[name], number, STREAMS, each=size, produced=number * size)
            loads[name] = load
        samples = in_turn(plan, loads, lambda load, _: load())
    cost = {each: [Sample(sample.cpu or 0) for sample in samples[each]] for each in (NATIVE, MEMORY, BRIDGE)}
    del samples[MEMORY]
    name = f"RabbitMQ, {'singles' if size == 1 else f'batches of {size}'}, {STREAMS} at once"
    yield from rows(name, "messages/s", samples, {NATIVE: target, BEFORE: GAIN[size]}, generator())
    cost[MORE] = [Sample(sample.value + ADDED) for sample in cost.pop(MEMORY)]
    yield from rows(f"{name}: CPU", "s/1,000", cost, EFFORT.get(size, {}), generator())


def _pushed(plan: Plan, url: str, running: Subjects) -> Iterator[Measurement]:
    number = max(talk.BATCH, int(plan.seconds * 40_000) // talk.BATCH * talk.BATCH)

    def load(name: str, turn: int) -> Sample:
        process = running[BRIDGE if name == NATIVE else name]
        source = _own(f"read-{turn}", name)
        _join(process, source, "billing")
        if name == NATIVE:
            _native("queues", url, source, 0)
        talk.preload(process.url, source, number + talk.BATCH)
        return _native("consume", url, source, number) if name == NATIVE else _push(process, source, number)

    samples = in_turn(plan, {name: name for name in (NATIVE, *running)}, load)
    samples = {"native, an ack for each": samples.pop(NATIVE), **samples}
    yield from rows("RabbitMQ, push + ack", "messages/s", samples, {"native, an ack for each": READ}, "own client")


def _own(destination: str, subject: str) -> str:
    """Return the name of a destination of one subject."""
    return f"{destination}-{subject.rsplit(maxsplit=1)[-1]}"


def _push(figure: Process, source: str, number: int) -> Sample:
    path = talk.push_path(source, "billing", number, ack="true", credit=1000)
    with figure.expecting(delivered=number, settled=number):
        before = figure.cpu()
        rate = acknowledge(figure.url, [pack(figure.url, "GET", path, [("accept", "multipart/mixed")])], number)
        return Sample(rate, (figure.cpu() - before) / number * 1000)


def _delayed(plan: Plan, figure: Process) -> Iterator[Measurement]:
    late = [lateness(figure.url, f"delayed-{turn}") for turn in range(plan.rounds)]
    for name, values, target in (
        ("p99", [each.p99 for each in late], LATE),
        ("least", [each.least for each in late], EARLY),
    ):
        rounds = [Round(Sample(LATE.bound), Sample(value)) for value in values]
        yield Measurement(f"RabbitMQ, lateness of a delay: {name}", "ms", "the target", rounds, target, "own client")


def _started(plan: Plan, url: str) -> Measurement:
    """From the start of the process to the first message that is stored."""
    few, many = "few.", "many."
    for prefix in (few, many):  # makes what each has in the broker
        _start(url, prefix)
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        channel = connection.channel()
        for number in range(GROUPS):
            for entry in (encode("begun", "orders", f"g{number}"), encode("ready", "orders", f"g{number}", [])):
                channel.basic_publish("", Own(many).catalogue, entry)
    rounds = [Round(_start(url, few), _start(url, many)) for _ in range(plan.rounds)]
    name = f"RabbitMQ, start to first message, {GROUPS:,} groups"
    return Measurement(name, "s", "with no group", rounds, START, "own client")


def _start(url: str, prefix: str) -> Sample:
    begun = time.perf_counter()
    with bridge(SERVER, f"{url}?prefix={prefix}") as figure:
        fire(figure.url, talk.single("started"), 1, 1)
        return Sample(time.perf_counter() - begun)


def _join(figure: Process, destination: str, group: str) -> None:
    """Have the group beforehand, as the native program has its queues when it is measured."""
    fire(figure.url, Shot([talk.pull_path(destination, group, ack="false", waitmills=0)]), 1, 1)
