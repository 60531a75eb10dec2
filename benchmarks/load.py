"""Load by h2load: as many requests at once as a row says, on one HTTP/2 connection or on as many of HTTP/1.1."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.launch import Process
from benchmarks.measurement import Sample

WARM_UP: Final = 300
_TOOK: Final = re.compile(r"finished in ([\d.]+)(us|ms|s),")
_UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_DONE: Final = re.compile(r"(\d+) succeeded, (\d+) failed.* (\d+) 2xx", re.DOTALL)


class Shot(NamedTuple):
    """What to request: the paths in turn, each with the same headers and body. Without a body it is a GET."""

    paths: Sequence[str]
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""
    http1: bool = False
    """Over HTTP/1.1, with a connection for each request at once, instead of HTTP/2."""


@cache
def generator() -> str:
    """Name what makes the load. Raises `RuntimeError` if it is not installed."""
    found = shutil.which("h2load")
    if found is None:
        raise RuntimeError("The benchmark needs h2load: apt-get install nghttp2-client")
    return subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout.strip()


def sized(process: Process, shot: Shot, streams: int, seconds: float) -> int:
    """Return how many requests take about so long; warms the process up on the way."""
    fire(process.url, shot, WARM_UP, streams)
    rate = fire(process.url, shot, WARM_UP, streams)
    return max(WARM_UP, int(rate * seconds))


def timed(process: Process, shot: Shot, number: int, streams: int, *, each: int = 1, **counts: int) -> Sample:
    """Make these requests; the rate, and the CPU time of the process. A request has `each` messages."""
    with process.expecting(**counts):
        before = process.cpu()
        rate = fire(process.url, shot, number, streams)
        cpu = process.cpu() - before
    return Sample(rate * each, cpu / number / each * 1000)


def fire(url: str, shot: Shot, number: int, streams: int) -> float:
    """Make `number` requests, `streams` at a time; returns requests per second. Raises unless each is a 2xx."""
    at_once = ["--h1", f"-c{streams}"] if shot.http1 else ["-c1", f"-m{streams}"]
    with tempfile.TemporaryDirectory() as directory:
        command = ["h2load", f"-n{number}", "-t1", *at_once]
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
