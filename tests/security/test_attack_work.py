"""Attacks by work out of proportion to its bytes, against running bridges: other clients are answered.

The other kinds of attack have their tests elsewhere: cross-site reads in `tests/browser/test_cross_site.py` and
`tests/http/test_paths.py`; control frames in `tests/server/test_control_frames.py`; request smuggling in
`tests/http/test_framing.py`; shares of destinations, groups and delayed messages in `tests/http/test_shares.py`;
faults of one request in `tests/server/test_h2_cases.py`, `tests/server/test_node_client.py` and
`tests/http/test_neighbours.py`; gzip bombs of one message in `tests/http/test_bad_bodies.py`.
"""

import base64
import gzip
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple
from urllib.request import urlopen

import pytest

from tests.conformance.frames import Answer, Frames
from tests.http.asking import VERSION, fresh, post, refusal, store, stored
from tests.launch import Bridge

MIB: Final = 1 << 20
PATIENCE: Final = 240.0
"""Seconds after which a wait fails: a guard, not a measurement."""
JSON: Final = (b"content-type", b"application/json")
PARTS: Final = (b"content-type", b"multipart/mixed; boundary=b")


class Size(NamedTuple):
    """How much the attackers send, all at once."""

    clients: int
    body: int
    """Bytes of each body; also the limit of the bridge."""


SIZES: Final = [
    pytest.param(Size(4, MIB), id="few"),
    pytest.param(Size(20, 4 * MIB), id="many", marks=pytest.mark.extended),
]


@pytest.fixture(params=["hypercorn", "granian"])
def server(request: pytest.FixtureRequest) -> str:
    """Attack both servers."""
    name: str = request.param
    return name


@pytest.fixture
def attacked(server: str, size: Size, tmp_path: Path) -> Iterator[Bridge]:
    """Return a bridge with small limits, which must be well after the attack."""
    settings = {"OMS_LIMITS__BODY": str(size.body), "OMS_LIMITS__CLIENT_SHARE": "100"}
    with Bridge(tmp_path, server=server, settings=settings) as bridge:
        yield bridge
        with urlopen(f"{bridge.management}/livez") as response:  # noqa: S310 - its own management port
            assert response.status == 200
        with Frames(bridge.url) as stranger:
            target = fresh()
            store(stranger, target)
            assert stored(stranger, target) == [b"good"]
        assert '"level": "error"' not in bridge.log
        assert "Traceback" not in bridge.log
        assert bridge.terminate() == 0


def many_header_lines(target: bytes, size: int) -> bytes:
    """Return parts of as many header lines as they may have, and of a field that refuses each at its end."""
    last = b"x-oms-h-destination: %b\r\nx-oms-h-qos: 9\r\n\r\n" % target
    part = b"\r\n--b\r\n" + b"a:\r\n" * 8000 + last
    return part * ((size - 100) // len(part)) + b"\r\n--b--\r\n"


def many_members(target: bytes, size: int) -> bytes:
    """Return messages of as many properties as are read, which are too many for a consumer."""
    properties = b",".join(b'"%x":""' % number for number in range(3900))
    message = b'{"header":{"destination":"%b"},"properties":{%b}},' % (target, properties)
    return b"[" + message * ((size - 100) // len(message)) + b'{"header":{}}]'


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("kind", "build"), [(PARTS, many_header_lines), (JSON, many_members)], ids=["header-lines", "members"]
)
def test_a_stranger_is_answered_before_the_attackers(
    attacked: Bridge, size: Size, kind: tuple[bytes, bytes], build: Callable[[bytes, int], bytes]
) -> None:
    target = fresh()
    body = build(target, size.body)
    answers: list[Answer] = []
    uploaded = threading.Barrier(size.clients + 1, timeout=PATIENCE)

    def attack() -> None:
        with Frames(attacked.url) as attacker:
            stream = attacker.request("POST", "/v1/messages", [VERSION, kind], body)
            uploaded.wait()
            answers.append(attacker.answer(stream, PATIENCE))

    attackers = [threading.Thread(target=attack) for _ in range(size.clients)]
    with Frames(attacked.url) as stranger:
        for each in attackers:
            each.start()
        uploaded.wait()
        for _ in range(5):
            assert stranger.ask("GET", "/v1/capabilities", [VERSION]).status == 200
            with urlopen(f"{attacked.management}/livez") as response:  # noqa: S310 - as above
                assert response.status == 200
        answered = len(answers)
        for each in attackers:
            each.join(PATIENCE)
        assert answered < size.clients, "all large bodies were decoded before five small requests were answered"
        assert [answer.status for answer in answers] == [207] * size.clients
        assert all(result["status"] in (400, 431) for answer in answers for result in json.loads(answer.body))
    with Frames(attacked.url) as stranger:  # on a slow machine the first was idle for too long meanwhile
        assert stored(stranger, target) == []


@pytest.mark.parametrize("size", [Size(1, MIB // 8)])
def test_the_gzip_bodies_of_a_batch_have_a_limit_together(attacked: Bridge, size: Size) -> None:
    target = fresh()
    bomb = base64.b64encode(gzip.compress(bytes(size.body))).decode()
    message = {"header": {"destination": target.decode(), "compression": "gzip"}, "data": bomb}
    with Frames(attacked.url) as frames:
        answer = post(frames, [VERSION, JSON], json.dumps([message] * 100).encode())
        assert answer.status == 207
        results = json.loads(answer.body)
        assert [result["status"] for result in results] == [200] * 16 + [413] * 84
        assert {result["code"] for result in results[16:]} == {"body-too-large"}
        assert "together" in results[-1]["detail"]
        assert stored(frames, target) == [bytes(size.body)] * 16


@pytest.mark.parametrize("size", [Size(1, 4 * MIB)])
def test_bodies_that_once_cost_seconds_are_refused(attacked: Bridge, size: Size, subtests: pytest.Subtests) -> None:
    target = fresh()
    head = b'[{"header":{"destination":"%b"},"properties":{' % target
    properties = b",".join(b'"%x":""' % number for number in range(330_000))
    bodies = {
        "a million messages": (b"[" + b"{}," * 1_390_000 + b"{}]", 413, "body-too-large"),
        "a million numbers": (b"[" + b"0.1," * 1_000_000 + b"1]", 413, "body-too-large"),
        "many properties": (head + properties + b"}}]", 431, "headers-too-large"),
        "a property that is an array": (head + b'"a":[' + b"[]," * 1_390_000 + b"[]]}}]", 400, "body-invalid"),
        "brackets": (b"[" * 2 * MIB, 400, "body-invalid"),
        "braces": (b"[" + b'{"a":' * 400_000, 400, "body-invalid"),
    }
    with Frames(attacked.url) as frames:
        for name, (body, status, code) in bodies.items():
            with subtests.test(name):
                assert len(body) <= size.body
                refusal(post(frames, [VERSION, JSON], body), status, code)
        assert stored(frames, target) == []
