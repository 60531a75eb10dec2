"""Purging and deleting on a running bridge: on the management port, and from the command line."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conformance.frames import Frames
from tests.http.asking import fresh, pull, store, stored
from tests.http.streaming import EVENTS, LINES, Streams
from tests.launch import Bridge


@pytest.fixture
def operator(bridge: Bridge) -> Iterator[httpx.Client]:
    """Connect to the management port."""
    with httpx.Client(base_url=bridge.management, trust_env=False, timeout=20) as client:
        yield client


def run(bridge: Bridge, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command against the management port."""
    program = Path(sys.executable).with_name("oms-bridge")
    command = [str(program), *arguments, "--management", bridge.management]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_group_and_a_destination_are_purged_and_deleted(frames: Frames, operator: httpx.Client) -> None:
    name = fresh()
    path = f"/v1/destinations/{name.decode()}"
    store(frames, name, b"a")
    assert pull(frames, name).status == 200
    assert operator.post(f"{path}/groups/g/purge").status_code == 204
    assert pull(frames, name).status == 204
    assert stored(frames, name) == [b"a"]
    assert operator.delete(f"{path}/groups/g").status_code == 204
    assert pull(frames, name).body == b"a"
    assert operator.post(f"{path}/purge").status_code == 204
    assert pull(frames, name, group=b"late").status == 204
    store(frames, name, b"b")
    assert operator.delete(path).status_code == 204
    assert operator.delete(path).json()["code"] == "destination-unknown"
    assert pull(frames, name).status == 204


@pytest.mark.parametrize(("method", "path", "reason"), [("POST", "/purge", "purged"), ("DELETE", "", "deleted")])
@pytest.mark.parametrize("group", ["", "/groups/g"])
@pytest.mark.parametrize("accept", [LINES, EVENTS])
def test_a_stream_ends_with_what_was_done_to_its_group(  # noqa: PLR0913, PLR0917 - each is a part of the case
    bridge: Bridge, operator: httpx.Client, method: str, path: str, reason: str, group: str, accept: tuple[bytes, bytes]
) -> None:
    name = fresh()
    with Streams(bridge.url) as there:
        store(there, name, b"one")
        stream = there.push(name, accept=accept)
        there.until(lambda: len(there.lines(stream)) == 1, "it is open and has its message")
        changed = operator.request(method, f"/v1/destinations/{name.decode()}{group}{path}")
        assert changed.status_code == 204
        there.until(lambda: there.over(stream) is not None, "it ends")
        assert there.lines(stream)[-1] == {"end": reason}


def test_a_wrong_request_changes_nothing(frames: Frames, operator: httpx.Client, subtests: pytest.Subtests) -> None:
    name = fresh()
    store(frames, name)
    path = f"/v1/destinations/{name.decode()}"
    cases: dict[str, tuple[str, str, dict[str, str], int]] = {
        "an unknown group": ("DELETE", f"{path}/groups/none", {}, 404),
        "a name that is none": ("DELETE", "/v1/destinations/__a", {}, 400),
        "a page of another origin": ("POST", f"{path}/purge", {"origin": "https://evil.example"}, 403),
        "a form without an origin": ("POST", f"{path}/purge", {"sec-fetch-site": "cross-site"}, 403),
        "a name that was rebound": ("DELETE", path, {"host": "evil.example"}, 403),
        "another method": ("GET", path, {}, 405),
    }
    for what, (method, target, headers, status) in cases.items():
        with subtests.test(what):
            answer = operator.request(method, target, headers=headers)
            assert answer.status_code == status
            if status != 405:
                assert answer.headers["content-type"] == "application/problem+json"
                assert answer.json()["code"] == answer.headers["x-oms-error"]
    assert stored(frames, name) == [b"good"]


def test_from_the_command_line(frames: Frames, bridge: Bridge) -> None:
    name = fresh().decode()
    store(frames, name.encode())
    assert run(bridge, "purge", name).returncode == 0
    assert stored(frames, name.encode()) == []
    assert run(bridge, "delete", name, "--group", "inspector").returncode == 0
    assert run(bridge, "delete", name).returncode == 0
    again = run(bridge, "delete", name)
    assert (again.returncode, again.stderr) == (1, f"Error: There is no destination {name}.\n")
    assert '"code": "destination-unknown"' in run(bridge, "purge", name, "--json").stderr


def test_a_bridge_that_cannot_be_reached(bridge: Bridge) -> None:
    program = Path(sys.executable).with_name("oms-bridge")
    command = [str(program), "delete", "orders", "--management", "http://127.0.0.1:1"]
    failed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert failed.returncode == 1
    assert failed.stderr.startswith("Error: The bridge at http://127.0.0.1:1 cannot be reached (Connection refused).")
    assert bridge.alive
