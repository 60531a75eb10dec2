"""Five minutes of requests from the OpenAPI document, and of broken HTTP: no undocumented 5xx, no traceback."""

import contextlib
import random
import re
import socket
import time
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.core.result import Ok

from tests.launch import Bridge

pytestmark = pytest.mark.soak

schemathesis.serializer.alias("application/x-ndjson", "application/json")  # of one line

SECONDS: Final = 300
TIMEOUT: Final = 0.5
"""Seconds to wait for more of a response: many broken requests get none."""

DOCUMENTED: Final = (503, 504)
"""Statuses of a full backend, of too many requests in flight, and of an unknown outcome."""

TOKENS: Final = (
    *(b"\r\n", b"\n", b"\r", b"\0", b": ", b" ", b"\t", b"%2f", b"\xff", b"*", b",", b";", b'"', b"0", b"9" * 30),
    *(b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n"),
    *(b"x-oms-version: 1.0.0\r\n", b"x-oms-h-qos: 9\r\n", b"x-oms-p-a*: UTF-8''%00\r\n", b"Host: 127.0.0.1\r\n"),
    *(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b" HTTP/1.1\r\n",
        b" HTTP/1.0\r\n",
        b"GET ",
        b"POST ",
        b"/v1/messages",
        b"?",
    ),
)
_HEAD: Final = b"Host: 127.0.0.1\r\nx-oms-version: 1.0.0\r\n"
_CHUNK: Final = b'[{"header":{"destination":"fuzz"}}]'
REQUESTS: Final = (
    b"GET /v1/capabilities HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /v1/messages?version=1.0.0&source=fuzz&consumerid=g HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"POST /v1/messages HTTP/1.1\r\n%bx-oms-h-destination: fuzz\r\nContent-Length: 5\r\n\r\nhello" % _HEAD,
    b"POST /v1/messages HTTP/1.1\r\n%bContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n%b"
    % (_HEAD, b"%x\r\n%b\r\n0\r\n\r\n" % (len(_CHUNK), _CHUNK)),
)


def test_requests_from_the_document(fuzzed: Bridge) -> None:
    document = schemathesis.openapi.from_url(f"{fuzzed.url}/openapi.json")
    operations = [result.ok() for result in document.get_all_operations() if isinstance(result, Ok)]
    cases = st.one_of(*(operation.as_strategy() for operation in operations))
    end = time.monotonic() + SECONDS

    @settings(max_examples=200, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=True)
    @given(cases)
    def ask(case: "schemathesis.Case[Any]") -> None:
        if (case.method, case.path) == ("GET", "/v1/push") or waits(case):
            return
        response = case.call(base_url=fuzzed.url, timeout=30)
        assert response.status_code < 500 or response.status_code in DOCUMENTED, response.text

    while time.monotonic() < end:
        ask()


def test_broken_http(fuzzed: Bridge) -> None:
    parts = urlsplit(fuzzed.url)
    chance, end = random.Random(), time.monotonic() + SECONDS  # noqa: S311
    while time.monotonic() < end:
        seed = chance.randrange(1 << 32)
        data = broken(random.Random(seed))  # noqa: S311
        answer = conversation(parts.hostname or "", parts.port or 0, data)
        for status in map(int, re.findall(rb"HTTP/1\.[01] (\d{3}) ", answer)):
            assert status < 500 or status in DOCUMENTED, f"seed {seed}: {data!r} is answered {answer[:2000]!r}"


def waits(case: "schemathesis.Case[Any]") -> bool:
    """Whether the request asks for a long wait."""
    return "waitmills" in f"{case.query} {case.headers}"


def broken(chance: random.Random) -> bytes:
    """Return one to three requests with a few changes: tokens put in, bytes changed, parts removed."""
    data = bytearray(b"".join(chance.choices(REQUESTS, k=chance.randint(1, 3))))
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(3):
            case 0:
                data[at:at] = chance.choice(TOKENS)
            case 1:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case _:
                del data[at : at + chance.randint(1, 20)]
    return bytes(data)


def conversation(host: str, port: int, data: bytes) -> bytes:
    """Send `data` and return what comes back until the bridge closes the connection or is silent."""
    received = b""
    with socket.create_connection((host, port), timeout=30) as connection, contextlib.suppress(OSError):
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(TIMEOUT)
        while piece := connection.recv(65536):
            received += piece
    return received
