"""Transactions of one message, a prepare and a commit: beside single produces, and beside a native Kafka producer."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count, islice
from time import perf_counter
from typing import Final

from benchmarks import talk
from benchmarks.kafka import CLIENTS, NATIVE, Place, broker
from benchmarks.launch import Process
from benchmarks.load import Shot
from benchmarks.measurement import BRIDGE, Measurement, Sample, Target, rows
from benchmarks.plan import Plan
from benchmarks.rawh2 import Connection, pack
from benchmarks.subjects import Subjects, bridges, in_turn

SERVER: Final = "granian"
AT_ONCE: Final = 64
SINGLE: Final = "single produce"
EFFORT: Final = Target("CPU ratio", "≤", 2.3)
RATE: Final = Target("figure", "≥", 300)
WARM_UP: Final = 200

_names = count()


def measure(plan: Plan) -> Iterator[Measurement]:
    """Yield the rows of memory and of Kafka."""
    yield from _memory(plan)
    with broker() as servers:
        for client in CLIENTS:
            yield from _kafka(plan, Place(client, servers))


def transact(process: Process, destination: str, number: int) -> Sample:
    """Prepare and commit so many messages, each in its own transaction."""
    shot, url = talk.single(destination), process.url
    blocks = []
    for _ in range(number):
        name = f"{destination}-{next(_names)}"
        headers = [*_headers(shot), ("x-oms-transaction", "prepare"), ("x-oms-h-transactionid", name)]
        commit = pack(url, "POST", f"/v1/transactions/{name}/commit", [talk.VERSION])
        blocks.append([pack(url, "POST", shot.paths[0], headers), commit])
    with process.expecting(transactions_committed=number):
        return _timed(process, blocks, shot.body)


def produce(process: Process, destination: str, number: int) -> Sample:
    """Produce so many messages."""
    shot = talk.single(destination)
    block = pack(process.url, "POST", shot.paths[0], _headers(shot))
    with process.expecting(produced=number):
        return _timed(process, [[block]] * number, shot.body)


def _headers(shot: Shot) -> list[tuple[str, str]]:
    return [*shot.headers, ("content-length", str(len(shot.body)))]


def _memory(plan: Plan) -> Iterator[Measurement]:
    number = plan.steps * 4  # a single produce costs so little that fewer vary too much
    with bridges(plan, SERVER) as running:
        loads = {SINGLE: partial(produce, running[BRIDGE], "singles", number), **_loads(running, number)}
        samples = in_turn(plan, loads, lambda load, _: load())
    name = f"memory, transactions of one message, {AT_ONCE} at once"
    yield from rows(name, "transactions/s", samples, {SINGLE: EFFORT}, "own client")


def _kafka(plan: Plan, place: Place) -> Iterator[Measurement]:
    topic, number = f"{place.client}-transactions", plan.steps
    with bridges(plan, SERVER, place.backend) as running:
        loads = {NATIVE: partial(place.native, "transact", topic, number // 4), **_loads(running, number, topic)}
        samples = in_turn(plan, loads, lambda load, _: load())
    name = f"Kafka, {place.client}, transactions of one message, {AT_ONCE} at once"
    yield from rows(name, "transactions/s", samples, {NATIVE: RATE}, "own client")


def _loads(running: Subjects, number: int, destination: str = "transactions") -> dict[str, "partial[Sample]"]:
    for process in running.values():
        transact(process, destination, WARM_UP)
    return {name: partial(transact, process, destination, number) for name, process in running.items()}


def _timed(process: Process, works: Sequence[Sequence[bytes]], body: bytes) -> Sample:
    """Do works, of one request after the other, `AT_ONCE` works at a time. The first request of each has the body."""
    connection = Connection(process.url)
    coming = map(iter, works)
    doing: dict[int, Iterator[bytes]] = {}
    cpu, began = process.cpu(), perf_counter()

    def begin() -> None:
        for work in islice(coming, AT_ONCE - len(doing)):
            doing[connection.ask(next(work), body)] = work

    begin()
    while doing:
        connection.flush()
        for answer in connection.answers():
            work = doing.pop(answer.stream)
            for block in islice(work, 1):
                doing[connection.ask(block)] = work
        begin()
    rate = len(works) / (perf_counter() - began)
    connection.close()
    return Sample(rate, (process.cpu() - cpu) / len(works) * 1000)
