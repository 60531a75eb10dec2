"""Kills a job again and again while a reader reads what it writes. A job is any command that ends when all is done."""

import faulthandler
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, NamedTuple

import duckdb

from bridge.errors import CannotStart
from bridge.mirror.table import Table
from tests.mirror.deployment import Deployment
from tests.mirror.end_to_end import numbered
from tests.mirror.readers import by_duckdb
from tests.tiers import SOAK

Victim = Literal["group", "driver", "jvm", "worker"]
VICTIMS: tuple[Victim, ...] = ("group", "driver", "jvm", "worker")
GUARD = 600
_REPEATED: Final = re.compile(r"batch \d+ is in the table already")


class Reader:
    """Reads the messages with DuckDB, over and over; keeps what was wrong."""

    def __init__(self, out: Path | str) -> None:
        self._out = out
        self._over = threading.Event()
        self.looks = 0
        self.most = 0
        self.wrong: list[str] = []

    def look(self) -> None:
        try:
            table = Table.require(str(self._out))
        except CannotStart as error:
            if "There is no mirror in" in str(error):
                return
            raise
        with duckdb.connect() as connection:
            connection.register("rows", table.dataset())
            sums = 'SELECT count(*), count(DISTINCT (log, "offset")), sum(octet_length(body)) FROM rows'
            rows, distinct, _ = connection.execute(sums).fetchall()[0]
        self.looks += 1
        if rows != distinct or rows < self.most:
            self.wrong.append(f"{rows} rows, {distinct} of them distinct, after {self.most}")
        self.most = max(self.most, rows)

    def run(self) -> None:
        while not self._over.is_set():
            try:
                self.look()
            except (duckdb.Error, OSError, CannotStart) as error:
                self.wrong.append(str(error))
            self._over.wait(0.05)  # the job needs the processor, too

    @contextmanager
    def reading(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run, daemon=True)  # a run once never ended, here or in a library
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join(GUARD)
            if thread.is_alive():
                faulthandler.dump_traceback()
                self.wrong.append(f"the reader has not ended within {GUARD} s")


class Kills(NamedTuple):
    """Of a job."""

    running: int
    """Kills that met a running job."""
    between: int
    """Batches that a later run found in the table and not in the checkpoint: it was killed between the two commits."""


def kill_and_finish(  # noqa: PLR0913, PLR0917 - a job, its kills, and the paths of both
    command: Sequence[str], out: Path, victims: Sequence[Victim], seed: int, log: Path, last: Sequence[str] = ()
) -> Kills:
    """Start the job once for each victim, kill that after some batch, then let the job end, as the command `last`.

    Half of the kills are right after a commit of the table, the others at a random point.
    """
    chance = random.Random(seed)  # noqa: S311 - a test that can be repeated
    running = 0
    for victim in victims:
        with _job(command, log) as job:
            _wait_for_a_batch(job, out)
            _wait_to_strike(job, chance.choice((0.0, chance.uniform(0, 3))))
            running += job.poll() is None
            _kill(job, victim)
    for _ in range(3):  # a job whose last worker was killed late may end with that as its error
        with _job(last or command, log) as job:
            if job.wait(GUARD) == 0:
                return Kills(running, len(_REPEATED.findall(log.read_text())))
    raise AssertionError(f"the job does not end:\n{log.read_text()[-5000:]}")


def assert_kills_lose_nothing(place: Deployment, *victims: Victim) -> Kills:
    """Kill each of the victims in the middle of a mirror, 20 times in soak; each message is in the mirror once."""
    chosen = VICTIMS * 5 if SOAK else victims
    amount = 2_000 * (len(chosen) + 1)
    place.publish("orders", numbered(amount))
    reader = Reader(place.out)
    with reader.reading():
        log = place.folder / "job.log"
        kills = kill_and_finish(place.command("--rows", "100"), place.out, chosen, 1, log, place.command())
    assert kills.running == len(chosen), log.read_text()[-5000:]
    assert not SOAK or kills.between
    assert reader.wrong == []
    assert len(by_duckdb(place.out)) == amount
    found = place.verify()
    assert (found["exit"], found["findings"]) == (0, []), found
    return kills


@contextmanager
def _job(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as output:
        job = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            yield job
        finally:
            with_signal(job.pid, signal.SIGKILL)
            job.wait()


def with_signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def _commits(out: Path) -> int:
    return sum(1 for _ in out.glob("messages/_delta_log/*.json"))


def _wait_for_a_batch(job: subprocess.Popen[bytes], out: Path) -> None:
    before, until = _commits(out), time.monotonic() + GUARD
    while job.poll() is None and _commits(out) == before:
        assert time.monotonic() < until, "no batch came"
        time.sleep(0.01)


def _wait_to_strike(job: subprocess.Popen[bytes], seconds: float) -> None:
    """A random point: not a wait for anything."""
    try:
        job.wait(seconds)
    except subprocess.TimeoutExpired:
        return


def _kill(job: subprocess.Popen[bytes], victim: Victim) -> None:
    if victim == "group":
        with_signal(job.pid, signal.SIGKILL)
        return
    for pid in _pids(job.pid, victim):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    if victim == "driver":
        job.wait()
    else:
        _wait_to_strike(job, 2)


def _pids(group: int, victim: Victim) -> list[int]:
    """The processes of a job: Python's first, the JVM, and the workers that the JVM has started."""
    found = []
    for place in Path("/proc").iterdir():
        if not place.name.isdecimal():
            continue
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            line = (place / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[2]) != group and int(fields[3]) != group:
            continue
        kind = "driver" if int(place.name) == group else "jvm" if b"java" in line.split(b"\0")[0] else "worker"
        if kind == victim:
            found.append(int(place.name))
    return found
