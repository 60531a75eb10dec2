"""The Python client and `oms-bridge push --raw`, beside h2load. The CPU seconds are those of the client's process."""

import os
import subprocess
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import talk
from benchmarks.launch import Process, cpu_seconds
from benchmarks.load import Shot, fire
from benchmarks.measurement import BEFORE, BRIDGE, Measurement, Sample, Target, rows
from benchmarks.plan import Plan
from benchmarks.revision import Revision
from benchmarks.subjects import bridges, in_turn, revisions

SERVER: Final = "granian"
TASKS: Final = 64
PROGRAM: Final = Path(__file__).with_name("client_load.py")
SOURCE: Final = "orders"
CEILING: Final = "h2load"
PRODUCE: Final = {BEFORE: Target("ratio", "≥", 4)}
LINGER: Final = {BEFORE: Target("ratio", "≥", 15)}
"""Against single requests of the revision before."""
PUSH: Final = {BEFORE: Target("ratio", "≥", 8)}
NDJSON: Final = [("accept", "application/x-ndjson")]


class User(NamedTuple):
    """A client and a bridge of one revision."""

    revision: Revision
    bridge: Process

    def run(self, work: str, destination: str, number: int) -> Sample:
        """Run `client_load.py`."""
        command = [str(self.revision.python), "-P", str(PROGRAM), work, self.bridge.url, destination, str(number)]
        variables = os.environ | self.revision.variables
        said = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True).stdout
        rate, cpu = map(float, said.split())
        return Sample(rate, cpu / number * 1000)

    def print_raw(self, group: str, number: int) -> Sample:
        """Read the output of `oms-bridge push --raw`, and measure from its first part to its last byte."""
        options = [SOURCE, "--group", group, "--raw", "--count", str(number), "--url", self.bridge.url]
        command, variables = [self.revision.program, "push", *options], os.environ | self.revision.variables
        with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, bufsize=0) as program:
            assert program.stdout is not None  # noqa: S101 - it is a pipe
            first = missing = number * len(talk.BODY)
            begun = before = 0.0
            while missing and (part := program.stdout.read(1 << 16)):
                missing -= len(part)
                if not begun:
                    begun, before, first = time.perf_counter(), cpu_seconds(program.pid), missing
            seconds, cpu = time.perf_counter() - begun, cpu_seconds(program.pid) - before
        if missing or program.returncode:
            raise RuntimeError(f"oms-bridge push --raw did not print {number} messages.")
        messages = first / len(talk.BODY)
        return Sample(messages / seconds, cpu / messages * 1000)


def measure(plan: Plan) -> Iterator[Measurement]:
    """Yield the rows of producing and of receiving."""
    number = 2 * plan.steps
    with bridges(plan, SERVER) as running:
        users = {name: User(revision, running[name]) for name, revision in revisions(plan).items()}
        yield from _produced(plan, users, number)
        for process in running.values():
            talk.preload(process.url, SOURCE, number + TASKS)
        yield from _received(plan, users, number)


def _produced(plan: Plan, users: dict[str, User], number: int) -> Iterator[Measurement]:
    shot = talk.single("sent")
    highest = [Sample(fire(users[BRIDGE].bridge.url, shot, number, TASKS)) for _ in range(plan.rounds)]
    singles = in_turn(plan, users, lambda user, _: user.run("produce", "sent", number))
    name = f"client produce, {TASKS} tasks"
    yield from rows(name, "messages/s", {CEILING: highest} | singles, PRODUCE, "the client")
    (lingering,) = in_turn(plan, {BRIDGE: users[BRIDGE]}, lambda user, _: user.run("linger", "sent", number)).values()
    compared = {name: samples for name, samples in singles.items() if name != BRIDGE}
    compared |= {"single requests": singles[BRIDGE], BRIDGE: lingering}
    yield from rows(f"{name}, linger", "messages/s", compared, LINGER, "the client")


def _received(plan: Plan, users: dict[str, User], number: int) -> Iterator[Measurement]:
    groups = (f"client-{turn}" for turn in count())
    bridge = users[BRIDGE].bridge
    streams = (Shot([talk.push_path(SOURCE, group, number)], NDJSON) for group in groups)
    highest = {CEILING: [Sample(fire(bridge.url, next(streams), 1, 1) * number) for _ in range(plan.rounds)]}
    pushed = in_turn(plan, users, lambda user, _: user.run("push", SOURCE, number))
    yield from rows("client push + ack, 1 KiB", "messages/s", highest | pushed, PUSH, "the client")
    printed = in_turn(plan, users, lambda user, _: user.print_raw(next(groups), number))
    yield from rows("oms-bridge push --raw, 1 KiB", "messages/s", highest | printed, PUSH, "the command")
