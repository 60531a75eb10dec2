"""What `oms-bridge serve` prints when it listens, while its backend is not ready, and when it cannot start."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.http import late_backend

PATIENCE = 30.0
PROGRAM = str(Path(sys.executable).with_name("oms-bridge"))


class Served:
    """A running `oms-bridge serve`."""

    def __init__(self, process: subprocess.Popen[bytes], directory: Path) -> None:
        self.process = process
        self._output, self._errors = directory / "stdout", directory / "stderr"

    @property
    def printed(self) -> list[str]:
        return self._output.read_text().splitlines()

    @property
    def errors(self) -> list[str]:
        return self._errors.read_text().splitlines()

    def wait_for(self, done: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < deadline, (self.printed, self.errors)
            time.sleep(0.05)

    def ended(self) -> tuple[int, list[str]]:
        """Wait for its end: the exit status, and standard error."""
        return self.process.wait(PATIENCE), self.errors


@contextmanager
def serving(directory: Path, *options: str, **variables: str) -> Iterator[Served]:
    directory.mkdir(exist_ok=True)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OMS_")}
    environ |= {"OMS_LISTEN": "127.0.0.1:0", "OMS_MANAGEMENT": "127.0.0.1:0", **variables}
    with (directory / "stdout").open("wb") as output, (directory / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            [PROGRAM, "serve", *options], stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environ
        )
    try:
        yield Served(process, directory)
    finally:
        process.kill()
        process.wait()


def test_the_ready_line_and_status_say_which_server_serves_and_why(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for setting, kind, reason in (
        (None, "granian", "installed by the extra fast"),
        ("auto", "granian", "installed by the extra fast"),
        ("granian", "granian", "named by the setting server"),
        ("hypercorn", "hypercorn", "named by the setting server"),
    ):
        variables = {} if setting is None else {"OMS_SERVER": setting}
        with subtests.test(setting), serving(tmp_path / str(setting), **variables) as served:
            served.wait_for(lambda: served.printed)
            assert served.printed[0].endswith(f"server {kind.capitalize()} ({reason})")
            [management] = re.findall(r"management on (http://[^,]+),", served.printed[0])
            answer = httpx.get(f"{management}/status", trust_env=False, timeout=PATIENCE)
            assert answer.headers.get("server") == ("granian" if kind == "granian" else None)
            assert (answer.json()["server"], answer.json()["serverReason"]) == (kind, reason)


def test_a_port_in_use_is_one_sentence_that_names_the_setting(
    tmp_path: Path, server: str, subtests: pytest.Subtests
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for setting in ("listen", "management"):
            with (
                subtests.test(setting),
                serving(tmp_path / setting, "--server", server, f"--{setting}", address) as served,
            ):
                sentence = f"Error: {setting}: cannot listen on {address}: Address already in use."
                assert served.ended() == (1, [sentence])
                assert served.printed == []


@pytest.mark.parametrize("url", ["kafka://127.0.0.1:{port}", "amqp://127.0.0.1:{port}"])
def test_a_broker_that_is_away_is_named_and_the_log_stays_short(tmp_path: Path, url: str) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        backend = url.format(port=nobody.getsockname()[1])
        with serving(tmp_path, "--backend", backend) as served:
            served.wait_for(lambda: served.printed)
            time.sleep(3)
            (line,) = served.printed
            assert line.startswith("oms-bridge is listening: messages on http://127.0.0.1:")
            addresses, _, reason = line.partition("; backend not ready: ")
            assert backend in addresses
            assert "127.0.0.1" in reason
            assert sum("the backend is not ready" in each for each in served.errors) <= 2, served.errors
            assert len(served.errors) < 15, served.errors
            served.process.send_signal(signal.SIGTERM)
            assert served.ended()[0] == 0


def test_a_backend_that_comes_late_is_announced(tmp_path: Path) -> None:
    file, installed = tmp_path / "state", late_backend.install(tmp_path)
    with serving(tmp_path, "--backend", f"late://{file}", **installed) as served:
        served.wait_for(lambda: served.printed)
        assert served.printed[0].endswith("; backend not ready: The broker is away")
        file.write_text("ready")
        served.wait_for(lambda: len(served.printed) == 2)
        listening, ready = served.printed
        assert ready.startswith("oms-bridge is ready: messages on http://127.0.0.1:")
        assert ready.removeprefix("oms-bridge is ready: ") in listening
        served.process.send_signal(signal.SIGTERM)
        assert served.ended()[0] == 0


def test_a_backend_that_turns_out_to_be_unusable_ends_the_bridge(tmp_path: Path) -> None:
    file, installed = tmp_path / "state", late_backend.install(tmp_path)
    with serving(tmp_path, "--backend", f"late://{file}", **installed) as served:
        served.wait_for(lambda: served.printed)
        file.write_text("Kafka 2.1 or newer is needed.")
        status, errors = served.ended()
        assert (status, errors[-1]) == (1, "Error: Kafka 2.1 or newer is needed.")


def test_a_journal_in_use_is_waited_for(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with serving(tmp_path / "first", "--backend", f"memory://?journal={journal}") as first:
        first.wait_for(lambda: first.printed)
        assert first.printed[0].startswith("oms-bridge is ready: ")
        with serving(tmp_path / "second", "--backend", f"memory://?journal={journal}") as second:
            second.wait_for(lambda: second.printed)
            assert second.printed[0].endswith(
                f"; backend not ready: The journal's directory {journal} is in use by another process"
            )
            first.process.send_signal(signal.SIGTERM)
            assert first.ended()[0] == 0
            second.wait_for(lambda: len(second.printed) == 2)
            assert second.printed[1].startswith("oms-bridge is ready: ")


def test_a_journal_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    no_directory = tmp_path / "file"
    no_directory.touch()
    with serving(tmp_path / "third", "--backend", f"memory://?journal={no_directory}") as third:
        status, errors = third.ended()
        assert (status, third.printed, len(errors)) == (1, [], 1)
        assert errors[0].startswith(f"Error: The journal's directory {no_directory} cannot be used: ")
