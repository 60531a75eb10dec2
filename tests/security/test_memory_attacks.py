"""Clients that have the bridge hold bytes for them: replies that they do not read, and bodies that they do not finish.

Each bridge has a budget of 64 MiB. Its process may grow by that and 64 MiB more. Another client is served meanwhile.
"""

import gzip
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import httpx
import pytest

from bridge.wire.log_block import decode
from tests.conformance.frames import Frames
from tests.http.asking import VERSION, fresh, post, producing, pulling, store
from tests.launch import Bridge

BUDGET: Final = 64 << 20
SLACK: Final = 64 << 20
BODY: Final = 4 << 20
GUARD: Final = 60.0

SHORT: Final = (1, 40)
LONG: Final = (6, 128)
SIZES: Final = [SHORT, LONG]
"""Connections, and requests on each."""

pytestmark = pytest.mark.extended


@pytest.fixture(params=["hypercorn", "granian"])
def bridge(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bridge]:
    with Bridge(tmp_path, server=request.param, settings={"OMS_LIMITS__MEMORY": "64MiB"}) as bridge:
        yield bridge


class Watch:
    """Measures a bridge during an attack, and asks it as a client with another address."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._before = bridge.resident_bytes()

    def check(self) -> None:
        """Assert that the process is within its budget, and that the stranger can produce and pull a large body."""
        grown = self._bridge.resident_bytes() - self._before
        assert grown < BUDGET + SLACK, f"{grown >> 20} MiB"
        target, url = fresh().decode(), f"{self._bridge.url}/v1/messages"
        transport = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(transport=transport, headers=[VERSION], timeout=GUARD) as stranger:
            produced = stranger.post(url, headers={"x-oms-h-destination": target}, content=bytes(BODY))
            assert produced.status_code == httpx.codes.OK, produced.text
            pulled = stranger.get(url, headers={"x-oms-source": target, "x-oms-consumerid": "g"})
        assert len(pulled.content) == BODY

    def well_afterwards(self) -> None:
        """Assert that nothing is held any more, and that the attacker's address is served, too."""
        deadline = time.monotonic() + GUARD
        while self._metric("oms_memory_held_bytes"):
            assert time.monotonic() < deadline, "the bridge still holds bytes of clients that are gone"
            time.sleep(0.05)
        with Frames(self._bridge.url) as frames:
            store(frames, fresh(), bytes(BODY))

    def refuses(self) -> None:
        """Wait until the bridge has refused a request for a share: push streams inflate after their headers."""
        deadline = time.monotonic() + GUARD
        while not self._metric('oms_refusals_total{code="limit-reached"}'):
            assert time.monotonic() < deadline, "the bridge has refused no request"
            time.sleep(0.05)

    def _metric(self, name: str) -> float:
        text = httpx.get(f"{self._bridge.management}/metrics", trust_env=False).text
        return next((float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"{name} ")), 0.0)


@pytest.mark.parametrize("size", SIZES)
def test_replies_that_are_not_read(bridge: Bridge, size: tuple[int, int]) -> None:
    with Frames(bridge.url) as frames:
        store(frames, b"large", bytes(BODY))
        logs = json.loads(frames.ask("GET", "/v1/logs", [VERSION]).body)["logs"]
    log = next(name for name, (first, end) in logs.items() if "/large/" in name and end > first)
    attack(bridge, size, "/v1/log", [VERSION, (b"x-oms-log", log.encode())])


@pytest.mark.parametrize("size", SIZES)
def test_blocks_of_large_headers_that_are_not_read(bridge: Bridge, size: tuple[int, int]) -> None:
    """A block was 110 MB once: only bodies counted, and these messages have none."""
    message = {
        "header": {"destination": "headers"},
        "extensionHeader": {"partition": 0},
        "properties": {"p": "x" * 55_000},
    }
    batch = json.dumps([message] * 70, separators=(",", ":")).encode()
    with Frames(bridge.url) as frames:
        for _ in range(29):
            assert post(frames, [VERSION, (b"content-type", b"application/json")], batch).status == 200
        [log] = json.loads(frames.ask("GET", "/v1/logs", [VERSION]).body)["logs"]
        answer = frames.ask("GET", "/v1/log", [VERSION, (b"x-oms-log", log.encode())])
    assert len(answer.body) <= BODY
    assert 70 < len(decode(answer.body).offsets) < 80
    attack(bridge, size, "/v1/log", [VERSION, (b"x-oms-log", log.encode())])


@pytest.mark.parametrize("size", [SHORT, (2, 100)])
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/push"])
def test_small_gzip_bodies_that_are_not_read(bridge: Bridge, size: tuple[int, int], path: str) -> None:
    packed = gzip.compress(bytes(BODY))
    pairs = producing(b"bomb", (b"content-encoding", b"gzip"))
    with Frames(bridge.url) as frames:
        for _ in range(size[0] * size[1] + 1):
            answer = post(frames, pairs, packed)
            assert answer.status == 200, answer
    attack(bridge, size, path, pulling(b"bomb", (b"x-oms-credit", b"1"), (b"accept", b"application/x-ndjson")))


def attack(bridge: Bridge, size: tuple[int, int], path: str, pairs: list[tuple[bytes, bytes]]) -> None:
    """Send many requests and read no reply, with a window of zero."""
    watch = Watch(bridge)
    connections, requests = size
    with ExitStack() as open_ones:
        for _ in range(connections):
            frames = open_ones.enter_context(Frames(bridge.url, window=0))
            streams = [frames.request("GET", path, pairs, b"") for _ in range(requests)]
            for stream in streams:
                assert frames.headers_of(stream, GUARD).status in {200, 429}
            watch.check()
        watch.refuses()
    watch.well_afterwards()


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_bodies_that_are_not_finished(bridge: Bridge, size: tuple[int, int], declared: bool) -> None:
    watch = Watch(bridge)
    connections, requests = size
    length = [(b"content-length", b"%d" % BODY)] if declared else []
    with ExitStack() as open_ones:
        for _ in range(connections):
            frames = open_ones.enter_context(Frames(bridge.url))
            streams = [frames.request("POST", "/v1/messages", producing(b"half", *length)) for _ in range(requests)]
            for stream in streams:
                frames.send(stream, bytes(BODY - 1))
            watch.check()
        watch.refuses()
    watch.well_afterwards()


def test_batches_of_many_properties(tmp_path: Path) -> None:
    """A property of eight bytes takes some 200 when it is decoded; the destination is full after the first ones."""
    message = {"header": {"destination": "heavy"}, "properties": {f"{number:x}": "" for number in range(300)}}
    batch = json.dumps([message] * 1000, separators=(",", ":")).encode()
    settings = {"OMS_LIMITS__MEMORY": "64MiB"}
    with Bridge(tmp_path, server="hypercorn", backend="memory://?max_bytes=1048576", settings=settings) as bridge:
        before = bridge.resident_bytes()
        with ExitStack() as open_ones:
            clients = [open_ones.enter_context(Frames(bridge.url)) for _ in range(16)]
            pairs = [VERSION, (b"content-type", b"application/json")]
            streams = [frames.request("POST", "/v1/messages", pairs, batch) for frames in clients]
            statuses = {frames.headers_of(each, GUARD).status for frames, each in zip(clients, streams, strict=True)}
        assert statuses <= {207, 429, 503}
        grown = bridge.peak_resident_bytes() - before
        assert grown < BUDGET + SLACK, f"{grown >> 20} MiB"
