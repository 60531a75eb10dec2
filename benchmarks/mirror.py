"""The mirror: each backend into the table, beside the same source into Spark's noop sink."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from adapters.rabbitmq.topology import names
from benchmarks import kafka, rabbitmq, talk
from benchmarks.launch import ROOMY, Process, bridge
from benchmarks.measurement import Measurement, Round, Sample, Target
from benchmarks.mirror_lag import lag
from benchmarks.plan import QUICK, Plan
from benchmarks.revision import THIS
from benchmarks.tree import peak

SERVER: Final = "granian"
STREAM: Final = Path(__file__).with_name("native_stream.py")
DESTINATION: Final = "mirrored"
MESSAGES: Final = {"memory": 200_000, "Kafka": 200_000, "RabbitMQ": 100_000}
"""Of 256 bytes, in batches of 50,000; a quick run has a tenth."""
MANY: Final = 1000
"""Destinations."""
INTO_TABLE: Final = Target("ratio", "≥", 0.5)
FROM_KAFKA: Final = Target("ratio", "≥", 0.55)
MEMORY: Final = Target("figure", "≤", 1500)
SLOWER: Final = Target("ratio", "≤", 1.3)
AS_EFFICIENT: Final = Target("ratio", "≥", 0.85)
"""Rows for a second of CPU with two executors, of those with one."""
CLUSTER: Final = "local-cluster[{executors},1,1024]"
"""Spark's own cluster on one machine: executors of one core and 1 GiB, each a process."""
UNIT: Final = "messages/s"

Flows = list[list[Mapping[str, float]]]


def measure(plan: Plan) -> Iterator[Measurement]:
    """Yield the rows of the mirror."""
    with bridge(SERVER, ROOMY) as figure:
        _fill(figure, _messages(plan, "memory"))
        yield _into_table("memory", _flows(plan, "memory://", figure.url))
    with kafka.broker() as servers:
        backend = f"kafka://{servers}"
        with bridge(SERVER, backend) as figure:
            _fill(figure, _messages(plan, "Kafka"))
        one = _flows(plan, backend)
        yield _into_table("Kafka", one, FROM_KAFKA)
        yield _footprint(backend)
        yield _executors(plan, backend)
        with bridge(SERVER, backend) as figure:
            yield lag(plan, backend, figure)
    yield _destinations(plan, one)
    with rabbitmq.broker() as url:
        with bridge(SERVER, url) as figure:
            _fill(figure, _messages(plan, "RabbitMQ"))
        yield from _stream(plan, url)


def _destinations(plan: Plan, one: Flows) -> Measurement:
    """Mirror as many messages of many destinations, of one partition each: 8,000 are more than one broker bears."""
    number = _messages(plan, "Kafka")
    with kafka.broker() as servers:
        backend = f"kafka://{servers}?partitions=1"
        with bridge(SERVER, backend) as figure:
            for destination in range(MANY):
                talk.preload(figure.url, f"{DESTINATION}-{destination}", number // MANY, None)
        many = _flows(plan, backend)
    rounds = [
        Round(Sample(few["seconds"]), Sample(more["seconds"])) for (_, few), (_, more) in zip(one, many, strict=True)
    ]
    return Measurement(
        f"mirror, Kafka into the table, {MANY:,} destinations", "s", "1 destination", rounds, SLOWER, "Spark"
    )


def _stream(plan: Plan, url: str) -> Iterator[Measurement]:
    number = _messages(plan, "RabbitMQ")
    flows = _flows(plan, url)
    yield _into_table("RabbitMQ", flows)
    command = [sys.executable, "-P", str(STREAM), url, names.log(DESTINATION), str(number)]
    bare = [float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in flows]
    rounds = [Round(Sample(rate), _rate(figure)) for rate, (_, figure) in zip(bare, flows, strict=True)]
    yield Measurement("mirror, RabbitMQ into the table", UNIT, "bare stream reader", rounds, None, "Spark")


def _into_table(name: str, flows: Flows, target: Target = INTO_TABLE) -> Measurement:
    rounds = [Round(_rate(ceiling), _rate(figure)) for ceiling, figure in flows]
    return Measurement(f"mirror, {name} into the table", UNIT, "Spark's noop sink", rounds, target, "Spark")


def _footprint(backend: str) -> Measurement:
    with tempfile.TemporaryDirectory() as out:
        most = peak(["-m", "bridge.mirror", "once", "--backend", backend, "--out", out, "--quiet"])
    return Measurement(
        "mirror, Kafka, peak memory of the whole job", "MiB", "the target", [Round(Sample(MEMORY.bound), Sample(most))],
        MEMORY, "Spark",
    )  # fmt: skip


def _executors(plan: Plan, backend: str) -> Measurement:
    one, two = (_flows(plan, backend, master=CLUSTER.format(executors=number)) for number in (1, 2))
    rounds = [
        Round(Sample(few["rows"] / few["cpu"]), Sample(more["rows"] / more["cpu"]))
        for (_, few), (_, more) in zip(one, two, strict=True)
    ]
    return Measurement(
        "mirror, Kafka into the table, 2 executors", "messages/s of CPU", "1 executor", rounds, AS_EFFICIENT, "Spark"
    )


def _flows(plan: Plan, backend: str, url: str = "", master: str = "") -> Flows:
    """Let one Spark read everything into nothing and into a mirror, in turn; warmed up before."""
    command = [sys.executable, "-m", "benchmarks.mirror_flow", backend, url, str(plan.rounds), master]
    said = subprocess.run(command, cwd=THIS.root, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [json.loads(line) for line in said.splitlines()]


def _fill(figure: Process, number: int) -> None:
    with figure.expecting(produced=number):
        talk.preload(figure.url, DESTINATION, number, None)


def _messages(plan: Plan, backend: str) -> int:
    return MESSAGES[backend] // (10 if plan is QUICK else 1)


def _rate(flow: Mapping[str, float]) -> Sample:
    return Sample(flow["rows"] / flow["seconds"])
