"""A program that tests have started ends with them, however they end, and not with one of their threads."""

import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from tests.brokers.process import Process

SECONDS = 30.0


def test_it_dies_with_a_killed_parent(tmp_path: Path) -> None:
    script = """
        import sys, time
        from pathlib import Path
        from tests.brokers.process import Process
        print(Process("exec sleep 1000", Path(sys.argv[1])).pid, flush=True)
        time.sleep(1000)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "output")]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert _runs(pid)
        parent.kill()
    deadline = time.monotonic() + SECONDS
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _runs(pid)


def test_it_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    started: list[Process] = []
    thread = threading.Thread(target=lambda: started.append(Process("exec sleep 1000", tmp_path / "output")))
    thread.start()
    thread.join()
    [process] = started
    with pytest.raises(TimeoutError):
        process.wait(0.5)  # PR_SET_PDEATHSIG would have ended it at once
    process.send(signal.SIGKILL)
    process.wait(SECONDS)
    assert not _runs(process.pid)


def test_what_it_writes_is_kept_from_one_run_to_the_next(tmp_path: Path) -> None:
    output = tmp_path / "output"
    for word in "first", "second":
        Process(f"echo {word}; echo {word} >&2", output).wait(SECONDS)
    assert output.read_text("utf-8").split() == ["first", "first", "second", "second"]


def _runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
