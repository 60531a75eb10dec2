"""How long after its storeTimestamp a row is in the table, while messages come at a fixed rate."""

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Final
from urllib.parse import unquote

from pyarrow import parquet

from benchmarks import talk
from benchmarks.launch import Process
from benchmarks.measurement import Measurement, Round, Sample, Target
from benchmarks.plan import QUICK, Plan

DESTINATION: Final = "lagging"
RATE: Final = 1000
"""Messages a second."""
AT_ONCE: Final = 100
"""Messages of one request."""
SECONDS: Final = 60
EVERY: Final = 2
"""Seconds from one batch of the mirror to the next."""
WAIT: Final = 120
"""Seconds that the first row may take."""
LAG: Final = Target("figure", "≤", 5)


def lag(plan: Plan, backend: str, figure: Process) -> Measurement:
    """Return the 95th percentile of one run: the first row is there before the messages come."""
    with tempfile.TemporaryDirectory() as out, _mirroring(backend, out):
        table = Path(out) / "messages"
        talk.preload(figure.url, DESTINATION, 1)
        _wait_for_rows(table, 1)
        number = RATE * (SECONDS // 4 if plan is QUICK else SECONDS)
        begun = time.time()
        for sent in range(0, number, AT_ONCE):
            time.sleep(max(0.0, begun + sent / RATE - time.time()))
            talk.preload(figure.url, DESTINATION, AT_ONCE)
        _wait_for_rows(table, number + 1)
        lags = sorted(each for each in _lags(table, begun))
    name = f"mirror, lag of a row at {RATE:,} messages/s, a batch every {EVERY} s: p95"
    rounds = [Round(Sample(LAG.bound), Sample(quantiles(lags, n=20)[-1]))]
    return Measurement(name, "s", "the target", rounds, LAG, "own client")


@contextmanager
def _mirroring(backend: str, out: str) -> Iterator[None]:
    command = ["run", "--backend", backend, "--out", out, "--every", str(EVERY), "--quiet"]
    with subprocess.Popen([sys.executable, "-m", "bridge.mirror", *command]) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)


def _commits(table: Path) -> Iterator[tuple[float, list[Path]]]:
    """Yield when each commit could be read, seconds since 1970, and the files that it added."""
    for log in sorted((table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
        yield log.stat().st_mtime, [table / unquote(each["add"]["path"]) for each in actions if "add" in each]


def _wait_for_rows(table: Path, number: int) -> None:
    until = time.monotonic() + WAIT
    while sum(parquet.read_metadata(file).num_rows for _, files in _commits(table) for file in files) < number:
        if time.monotonic() > until:
            raise RuntimeError(f"The mirror has less than {number} rows after {WAIT} s.")
        time.sleep(0.5)


def _lags(table: Path, begun: float) -> Iterator[float]:
    """Yield the seconds of each message that was stored after `begun`."""
    for committed, files in _commits(table):
        for file in files:
            for stored in parquet.read_table(file, columns=["store_timestamp"])["store_timestamp"].to_pylist():
                if stored.timestamp() >= begun:
                    yield committed - stored.timestamp()
