"""`oms-bridge push` as a separate process against a real bridge, with each way to end."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from uuid import uuid4

import pytest

from bridge.client import Client
from bridge.message import Message
from tests.launch import Bridge

PATIENCE = 30
QUIET = 300
"""How long a pull waits where nothing must come, ms."""
PROGRAM = str(Path(sys.executable).with_name("oms-bridge"))


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    with Bridge(tmp_path_factory.mktemp("bridge")) as running:
        yield running


@pytest.fixture
def source() -> str:
    return f"push-{uuid4().hex}"


def store(bridge: Bridge, source: str, *bodies: bytes) -> None:
    async def storing() -> None:
        async with Client(bridge.url) as client:
            for body in bodies:
                await client.produce(Message(source, body, {"A": "ü"}, message_key="k"))

    asyncio.run(storing())


def left(bridge: Bridge, source: str, expected: int = 0) -> dict[bytes, int]:
    """Take what the group still holds, waiting for as many as must be there: bodies, and how often delivered."""

    async def taking() -> dict[bytes, int]:
        found: dict[bytes, int] = {}
        async with Client(bridge.url) as client:
            while True:
                wait_ms = 10_000 if len(found) < expected else QUIET
                delivery = await client.pull(source, "g", wait_ms=wait_ms)
                if delivery is None:
                    return found
                found[delivery.message.body] = delivery.delivery_count
                await client.ack(delivery.receipt or "")

    return asyncio.run(taking())


def oms(bridge: Bridge, command: str, source: str, *options: str, group: str = "g") -> subprocess.CompletedProcess[str]:
    arguments = [PROGRAM, command, source, "--group", group, "--url", bridge.url, *options]
    return subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=PATIENCE)


@contextmanager
def tailing(bridge: Bridge, source: str, unbuffered: str = "") -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    arguments = [PROGRAM, "push", source, "--group", "g", "--url", bridge.url, "--json"]
    environ = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(arguments, bufsize=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout
        finally:
            process.kill()


@pytest.mark.parametrize("form", [[], ["--json"], ["--raw"]], ids=["text", "json", "raw"])
def test_it_prints_what_pull_prints(bridge: Bridge, source: str, form: list[str]) -> None:
    store(bridge, source, b"first", "é\x1b".encode())
    pulled = oms(bridge, "pull", source, "--count", "2", *form)
    pushed = oms(bridge, "push", source, "--count", "2", *form, group="h")
    changes = re.compile(r'(x-oms-receipt: |"receipt": "|"leaseUntil": )[0-9a-f-]+')
    assert (pushed.returncode, pushed.stderr, pulled.returncode) == (0, "", 0)
    assert changes.sub("", pushed.stdout) == changes.sub("", pulled.stdout)
    assert "first" in pushed.stdout or form == ["--json"]


def test_it_ends_after_so_many_and_leaves_the_others(bridge: Bridge, source: str) -> None:
    store(bridge, source, b"1", b"2", b"3")
    done = oms(bridge, "push", source, "--count", "2", "--raw")
    assert (done.returncode, done.stdout, done.stderr) == (0, "12", "")
    assert left(bridge, source, 1) == {b"3": 1}


def test_silence_ends_it_with_3_when_nothing_came(bridge: Bridge, source: str) -> None:
    store(bridge, source, b"1")
    first, second = (oms(bridge, "push", source, "--wait-ms", "0", "--raw") for _ in range(2))
    assert (first.returncode, first.stdout) == (0, "1")
    assert (second.returncode, second.stdout, second.stderr) == (3, "", "")


def test_without_ack_it_all_comes_back(bridge: Bridge, source: str) -> None:
    store(bridge, source, b"1")
    done = oms(bridge, "push", source, "--no-ack", "--count", "1", "--raw")
    assert (done.returncode, done.stdout) == (0, "1")
    assert left(bridge, source, 1) == {b"1": 2}


def test_without_ack_it_shows_more_than_the_usual_credit(bridge: Bridge, source: str) -> None:
    async def storing() -> None:
        async with Client(bridge.url) as client:
            await client.produce_batch([Message(source, b"x")] * 100)

    asyncio.run(storing())
    done = oms(bridge, "push", source, "--no-ack", "--count", "100", "--raw")
    assert (done.returncode, done.stdout) == (0, "x" * 100)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_well(bridge: Bridge, source: str, number: signal.Signals) -> None:
    store(bridge, source, b"1")
    with tailing(bridge, source) as (process, output):
        assert json.loads(output.readline())["data"] == "MQ=="
        store(bridge, source, b"2")
        assert json.loads(output.readline())["data"] == "Mg=="
        process.send_signal(number)
        rest, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, rest, errors) == (0, b"", b"")
    assert left(bridge, source) == {}


def test_what_a_signal_finds_half_printed_is_finished(bridge: Bridge, source: str) -> None:
    """As behind a pager: the pipe takes 64 KiB, the message has more."""
    bodies = [b"%d" % number + bytes(200_000) for number in range(3)]
    store(bridge, source, *bodies)
    with tailing(bridge, source) as (process, output):
        start = output.read(1)
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (0, b"")
    printed = [json.loads(line) for line in (start + rest).splitlines()]
    assert len(printed) == 1
    assert sorted(left(bridge, source, 2)) == sorted(bodies[1:])


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_a_signal_finds_half_printed_comes_back_when_it_cannot_be_finished(
    bridge: Bridge, source: str, unbuffered: str
) -> None:
    body = bytes(200_000)
    store(bridge, source, body)
    with tailing(bridge, source, unbuffered) as (process, output):
        output.read(1)
        process.send_signal(signal.SIGTERM)
        wait_until_noticed(process, signal.SIGTERM)
        output.close()
        assert process.wait(PATIENCE) == 1
    assert left(bridge, source, 1) == {body: 2}


def wait_until_noticed(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """The command lets a second signal through once it has seen the first (Linux says which are caught)."""
    deadline = time.monotonic() + PATIENCE
    while True:
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = int(re.findall(r"^SigCgt:\s*(\w+)", status, re.MULTILINE)[0], 16)
        if not caught >> (number - 1) & 1:
            return
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_a_broken_pipe_did_not_take_comes_back(bridge: Bridge, source: str) -> None:
    store(bridge, source, b"1")
    with tailing(bridge, source) as (process, output):
        output.readline()
        output.close()
        store(bridge, source, b"2")
        assert process.wait(PATIENCE) == 1
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert left(bridge, source, 1) == {b"2": 2}


def test_a_bridge_that_cannot_be_reached_is_one_sentence(source: str) -> None:
    arguments = [PROGRAM, "push", source, "--group", "g", "--url", "http://127.0.0.1:1"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("Error: The bridge at http://127.0.0.1:1 cannot be reached (Connection refused).")


def test_it_is_raw_or_json(bridge: Bridge, source: str) -> None:
    assert oms(bridge, "push", source, "--raw", "--json").returncode == 2
