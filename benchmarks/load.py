"""Load on one connection: by h2load where it is installed, else by our own client. The results say which."""

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.launch import Process
from benchmarks.measurement import Sample
from benchmarks.rawh2 import Connection, pack

WARM_UP: Final = 300
_TOOK: Final = re.compile(r"finished in ([\d.]+)(us|ms|s),")
_UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_DONE: Final = re.compile(r"(\d+) succeeded, (\d+) failed.* (\d+) 2xx", re.DOTALL)


class Shot(NamedTuple):
    """What to ask: the paths in turn, each with the same headers and body. Without a body it is a GET."""

    paths: Sequence[str]
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""


@cache
def generator() -> str:
    """Name what makes the load."""
    found = shutil.which("h2load")
    if found is None:
        return "own client"
    return subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout.strip()


def fire(url: str, shot: Shot, number: int, streams: int) -> float:
    """Make `number` requests, `streams` at a time; returns requests per second. Raises unless each is a 2xx."""
    return (_fire_own if generator() == "own client" else _fire_h2load)(url, shot, number, streams)


def sized(process: Process, shot: Shot, streams: int, seconds: float) -> int:
    """Return how many requests take about so long; warms the process up on the way."""
    fire(process.url, shot, WARM_UP, streams)
    rate = fire(process.url, shot, WARM_UP, streams)
    return max(WARM_UP, int(rate * seconds))


def timed(process: Process, shot: Shot, number: int, streams: int, *, each: int = 1, **counts: int) -> Sample:
    """Fire and watch: the rate, and what the process worked for it. A request carries `each` messages."""
    with process.expecting(**counts):
        before = process.cpu()
        rate = fire(process.url, shot, number, streams)
        cpu = process.cpu() - before
    return Sample(rate * each, cpu / number / each * 1000)


def _fire_h2load(url: str, shot: Shot, number: int, streams: int) -> float:
    with tempfile.TemporaryDirectory() as directory:
        command = ["h2load", f"-n{number}", "-c1", f"-m{streams}", "-t1"]
        command += [f"-H{name}: {value}" for name, value in shot.headers]
        if shot.body:
            Path(directory, "body").write_bytes(shot.body)
            command += ["-d", f"{directory}/body"]
        if len(shot.paths) == 1:
            command.append(url + shot.paths[0])
        else:
            Path(directory, "uris").write_text("".join(f"{url}{path}\n" for path in shot.paths), "ascii")
            command += ["-i", f"{directory}/uris"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    took, done = _TOOK.search(said), _DONE.search(said)
    if took is None or done is None or done.groups() != (str(number), "0", str(number)):
        raise RuntimeError(f"h2load did not succeed with {number} requests:\n{said}")
    # not its "req/s", which has two decimals: too few for a handful of long streams
    return number / (float(took[1]) * _UNITS[took[2]])


def _fire_own(url: str, shot: Shot, number: int, streams: int) -> float:
    method = "POST" if shot.body else "GET"
    headers = [*shot.headers, ("content-length", str(len(shot.body)))] if shot.body else shot.headers
    blocks = [pack(url, method, path, headers) for path in shot.paths]
    connection = Connection(url)
    begun = time.perf_counter()
    coming = islice(cycle(blocks), number)
    for block in islice(coming, streams):
        connection.ask(block, shot.body)
    connection.flush()
    missing = number
    while missing:
        for _ in connection.answers():
            missing -= 1
            if (block := next(coming, None)) is not None:  # type: ignore[assignment]
                connection.ask(block, shot.body)
        connection.flush()
    took = time.perf_counter() - begun
    connection.close()
    return number / took
