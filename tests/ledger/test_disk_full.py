"""The disk below a running journal fills up: what is refused is not stored, what was answered 200 is never lost.

The disk is a small tmpfs, so root is needed; the file system's own "no space left" then meets SQLite, not a stand-in.
"""

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from tests.launch import Bridge

SIZE = 8 << 20
BALLAST = 3 << 20
"""Bytes that something else takes on the same disk, and gives back."""
BODY = 20_000
REFUSALS = 20
"""Refused in a row: the disk is full, and not just full for a large batch."""
GROUP = "readers"
PATIENCE = 60.0


class Disk:
    """A file system of a few MiB."""

    def __init__(self, folder: Path) -> None:
        self.journal = folder / "journal"
        self._ballast = folder / "ballast"

    def fill(self, most: int) -> None:
        """Let something else take so many bytes, or all that are left."""
        try:
            with self._ballast.open("wb", buffering=0) as file:
                for _ in range(most // 4096):
                    file.write(b"\0" * 4096)
        except OSError as error:
            assert error.strerror == "No space left on device"  # noqa: PT017 - it is what full means

    def free(self) -> None:
        """Take it away again."""
        self._ballast.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Mount one; CI's machines let root do that."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        failure = done.stderr.strip() if done.returncode else None
    except FileNotFoundError:
        failure = "there is no program mount"
    if failure is not None:
        sentence = f"needs its own small disk, which only root may mount: {failure}"
        if os.environ.get("CI") == "true":
            pytest.fail(sentence)
        pytest.skip(sentence)
    yield Disk(folder)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Producer:
    """Sends messages, and records the outcome of each."""

    def __init__(self, http: httpx.Client) -> None:
        self.stored: dict[str, bytes] = {}
        self.refused: set[str] = set()
        self.http = http

    def one(self) -> int:
        """Send one message."""
        name, body = self._next()
        answer = self.http.post("/v1/messages", headers=_fields(name), content=body)
        document = answer.json() if answer.status_code != 200 else {}
        self._note(name, body, answer.status_code, document)
        if answer.status_code == 503:
            assert answer.headers["x-oms-retry-safe"] == "true"
            assert int(answer.headers["retry-after"]) > 0
        return answer.status_code

    def batch(self) -> None:
        """Send ten in one request."""
        sent = [self._next(number) for number in range(10)]
        parts = []
        for name, body in sent:
            head = "".join(f"{header}: {value}\r\n" for header, value in _fields(name).items())
            parts.append(f"--frontier\r\n{head}\r\n".encode() + body + b"\r\n")
        headers = {"x-oms-version": "1.0.0", "content-type": "multipart/mixed; boundary=frontier"}
        answer = self.http.post("/v1/messages", headers=headers, content=b"".join(parts) + b"--frontier--")
        assert answer.status_code in {200, 207}, answer.text
        for (name, body), result in zip(sent, answer.json(), strict=True):
            self._note(name, body, result["status"], result)

    def _next(self, ahead: int = 0) -> tuple[str, bytes]:
        name = f"m{len(self.stored) + len(self.refused) + ahead}"
        return name, name.encode().ljust(BODY, b".")

    def _note(self, name: str, body: bytes, status: int, said: Mapping[str, object]) -> None:
        if status == 200:
            self.stored[name] = body
            return
        # "the disk is full | 503 backend-full, not stored"
        assert (status, said["code"], said["retrySafe"]) == (503, "backend-full", True), said
        assert "disk is full" in str(said["detail"]), said
        self.refused.add(name)


def test_what_was_answered_is_kept_and_what_was_refused_is_not(disk: Disk, tmp_path: Path) -> None:
    disk.fill(BALLAST)
    acknowledged: set[str] = set()
    with running(disk, tmp_path) as bridge, talking(bridge) as http:
        producer = Producer(http)
        fill_up(producer)
        stored_when_full = len(producer.stored)
        assert stored_when_full > 10
        # what is in memory is handed out all the same; an acknowledgement counts if it says so
        taken = http.get("/v1/messages", headers=_asking(wait=10_000))
        assert taken.status_code == 200, taken.text
        assert producer.stored[taken.headers["x-oms-h-messageid"]] == taken.content
        settled = http.post(
            "/v1/ack", headers={"x-oms-version": "1.0.0", "x-oms-receipt": taken.headers["x-oms-receipt"]}
        )
        assert settled.status_code in {204, 503, 504}, settled.text
        if settled.status_code == 204:
            acknowledged.add(taken.headers["x-oms-h-messageid"])
        disk.free()
        # "tries the disk again with the next request"
        assert producer.one() == 200
        producer.batch()
        assert len(producer.stored) == stored_when_full + 11
        bridge.kill()
    with running(disk, tmp_path) as bridge, talking(bridge) as http:
        kept = everything(http)
    expected = {name: body for name, body in producer.stored.items() if name not in acknowledged}
    uncertain = set() if settled.status_code == 204 else {taken.headers["x-oms-h-messageid"]}
    assert kept.keys() | uncertain == expected.keys() | uncertain
    assert all(body == expected[name] for name, body in kept.items())
    assert not kept.keys() & producer.refused


def test_a_bridge_stops_and_starts_on_a_full_disk(disk: Disk, tmp_path: Path) -> None:
    disk.fill(BALLAST)
    with running(disk, tmp_path) as bridge, talking(bridge) as http:
        producer = Producer(http)
        fill_up(producer)
        assert bridge.terminate() == 0
    disk.fill(SIZE)
    with running(disk, tmp_path) as bridge, talking(bridge) as http:
        disk.free()
        begun = time.monotonic()
        while (ready := httpx.get(f"{bridge.management}/readyz", trust_env=False)).status_code != 200:
            assert time.monotonic() < begun + PATIENCE, ready.text
            time.sleep(0.1)
        assert everything(http) == producer.stored
        assert Producer(http).one() == 200


def running(disk: Disk, directory: Path) -> Bridge:
    return Bridge(directory / "bridge", backend=f"memory://?journal={disk.journal}")


def talking(bridge: Bridge) -> httpx.Client:
    return httpx.Client(base_url=bridge.url, trust_env=False, timeout=60)


def fill_up(producer: Producer) -> None:
    """Produce, one by one and in batches, until nothing goes any more."""
    joined = producer.http.get("/v1/messages", headers=_asking(wait=0))
    assert joined.status_code == 204, joined.text
    refused = 0
    while refused < REFUSALS:
        assert len(producer.stored) * BODY < SIZE, "more was answered 200 than the disk has room for"
        if len(producer.stored) % 3 == 0 and refused < REFUSALS // 2:
            before = len(producer.stored)
            producer.batch()
            refused += len(producer.stored) == before
        else:
            refused = refused + 1 if producer.one() == 503 else 0


def everything(http: httpx.Client) -> dict[str, bytes]:
    """Take what the group is given, each message once."""
    found: dict[str, bytes] = {}
    while (answer := http.get("/v1/messages", headers=_asking(wait=1_000))).status_code == 200:
        name = answer.headers["x-oms-h-messageid"]
        assert name not in found, f"{name} came twice"
        found[name] = answer.content
        receipt = {"x-oms-version": "1.0.0", "x-oms-receipt": answer.headers["x-oms-receipt"]}
        assert http.post("/v1/ack", headers=receipt).status_code == 204
    assert answer.status_code == 204, json.dumps(answer.json())
    return found


def _fields(name: str) -> dict[str, str]:
    return {"x-oms-version": "1.0.0", "x-oms-h-destination": "orders", "x-oms-h-messageid": name}


def _asking(*, wait: int) -> dict[str, str]:
    asking = {"version": "1.0.0", "source": "orders", "consumerid": GROUP, "ack": "true", "waitmills": str(wait)}
    return {f"x-oms-{name}": value for name, value in asking.items()}
