"""Where the CPU time of one produce goes: a flame graph, and a table by function. py-spy samples a loaded bridge."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import talk
from benchmarks.launch import Process, bridge
from benchmarks.load import fire, sized
from benchmarks.plan import Plan
from benchmarks.revision import ROOT

SERVER: Final = "granian"
STREAMS: Final = 64
SECONDS: Final = 10
"""Of plan.steady 1; a quick run takes less."""
SAMPLES: Final = 500
"""In a second."""
SHOWN: Final = 15
"""Functions in the table."""
FLAMES: Final = ROOT / "docs" / "produce-profile.svg"
_TITLE: Final = re.compile(r'(?<=<text id="title")([^>]*)>[^<]*')
"""In a flame graph: py-spy writes its own command there, with the paths of this machine."""
_FRAME: Final = re.compile(r"(?P<function>.+) \((?P<file>.+)\)")


class Row(NamedTuple):
    """One function: how often it ran itself, and how often it or a function that it called."""

    function: str
    own: int
    total: int


def record(plan: Plan) -> str:
    """Write the flame graph, and return the table as Markdown. Raises `RuntimeError` if py-spy is not installed."""
    program = shutil.which("py-spy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        raise RuntimeError("The profile needs py-spy: pip install 'openmessaging-bridge[bench]'")
    seconds = str(max(2, round(SECONDS * plan.steady)))
    with tempfile.TemporaryDirectory() as directory, bridge(SERVER) as process:
        stacks = Path(directory, "stacks")
        spy = [
            program,
            "record",
            "--pid",
            str(process.pid),
            "--rate",
            str(SAMPLES),
            "--duration",
            seconds,
            "--nolineno",
        ]
        with _loaded(process, plan):
            subprocess.run([*spy, "-o", str(FLAMES)], check=True, stdout=subprocess.DEVNULL)
            FLAMES.write_text(titled(FLAMES.read_text("utf-8")), "utf-8")
            before = process.counts()["produced"], process.main_thread(), process.cpu()
            subprocess.run([*spy, "--format", "raw", "-o", str(stacks)], check=True, stdout=subprocess.DEVNULL)
            after = process.counts()["produced"], process.main_thread(), process.cpu()
        produced, python, everything = (late - early for early, late in zip(before, after, strict=True))
        rows = functions(stacks.read_text("utf-8").splitlines())
    return markdown(rows, python / produced * 1e6, everything / produced * 1e6)


def functions(stacks: Sequence[str]) -> list[Row]:
    """Sum up py-spy's `raw` format (`outer (file);inner (file) count`) by function, the most costly itself first.

    An empty stack is a thread of the server without Python, and is left out.
    """
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for line in stacks:
        stack, _, count = line.rpartition(" ")
        if not stack:
            continue
        frames = stack.split(";")
        own[frames[-1]] += int(count)
        for frame in set(frames):
            total[frame] += int(count)
    return [Row(frame, count, total[frame]) for frame, count in own.most_common()]


def titled(graph: str) -> str:
    """Return a flame graph with a title that says what it shows."""
    return _TITLE.sub(r"\1>The Python thread of a bridge that stores single messages", graph, count=1)


def markdown(rows: Sequence[Row], python: float, everything: float) -> str:
    """Return the table. One produce costs `python` microseconds in the Python thread, `everything` in the process."""
    each = python / sum(row.own for row in rows)
    lines = ["| function | file | µs in itself | µs with what it calls |", "|---|---|--:|--:|"]
    for row in rows[:SHOWN]:
        found = _FRAME.fullmatch(row.function)
        function, file = (found["function"], found["file"]) if found else (row.function, "")
        lines.append(f"| `{function}` | `{file}` | {row.own * each:.1f} | {row.total * each:.1f} |")
    rest = sum(row.own for row in rows[SHOWN:]) * each
    lines.append(f"| {max(0, len(rows) - SHOWN)} others | | {rest:.1f} | |")
    lines.append(f"| the server's own threads | | {everything - python:.1f} | |")
    lines.append(f"| all | | {everything:.1f} | |")
    return "\n".join(lines)


@contextmanager
def _loaded(process: Process, plan: Plan) -> Iterator[None]:
    """Produce all the time, from another thread."""
    shot = talk.single("orders")
    number = sized(process, shot, STREAMS, plan.seconds)
    done = threading.Event()

    def load() -> None:
        while not done.is_set():
            fire(process.url, shot, number, STREAMS)

    loading = threading.Thread(target=load)
    loading.start()
    try:
        yield
    finally:
        done.set()
        loading.join()
